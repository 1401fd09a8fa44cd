"""``railbed cost``: bill of materials, cost and power of fabrics, side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.output import json_option, print_json, table
from topologies.builders import preset_spec
from topologies.model import FabricKind, fabric_kind
from topologies.presets import preset as named_preset

if TYPE_CHECKING:
    from simulator.economics.bill import Bill, Comparison, Sum
    from simulator.economics.price_book import PriceBook, Prices
    from simulator.economics.reading import Figure

GPUS = (32_768,)
RAILS = (8, 256)
RADIXES = (64, 128, 256)
RATES_FROM = "dgx-h100"
RATIOS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Price of a switch port over that of a transceiver with its half of a cable."""


@click.command("cost")
@click.argument("fabrics", nargs=-1, metavar="[FABRIC]...")
@click.option(
    "--gpus",
    multiple=True,
    type=click.IntRange(min=1),
    default=GPUS,
    show_default=True,
    help="GPUs in all; repeatable.",
)
@click.option(
    "--rails",
    multiple=True,
    type=click.IntRange(min=1),
    help="GPUs in each HB domain; repeatable.  [default: those of --preset, else 8 and 256]",
)
@click.option(
    "--switch-ports",
    multiple=True,
    type=click.IntRange(min=2),
    default=RADIXES,
    show_default=True,
    help="Ports of a switch; repeatable.",
)
@click.option("--preset", help=f"Hardware that the NIC's rate and the domain's size are from.  [default: {RATES_FROM}]")
@click.option(
    "--oversubscription", default=1.0, show_default=True, help="Rate into the leaves over rate out of them upwards."
)
@click.option(
    "--uplinks", default=1, show_default=True, help="Uplinks of a NIC; 2 is dual-homed, at half the rate each."
)
@click.option(
    "--baseline", default="rail-optimized", show_default=True, help="Fabric that the others are compared with."
)
@click.option(
    "--prices",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Price book (YAML).  [default: the built-in one]",
)
@click.option("--print-prices", is_flag=True, help="Print the built-in price book, to be saved and edited, and end.")
@click.option("--sensitivity", is_flag=True, help="Show too how the saving depends on the price of switch and optics.")
@click.option(
    "--figures",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the cost bars and the sensitivity as PNG and SVG into this folder.",
)
@json_option
def command(
    fabrics: tuple[str, ...],
    gpus: tuple[int, ...],
    rails: tuple[int, ...],
    switch_ports: tuple[int, ...],
    preset: str | None,
    oversubscription: float,
    uplinks: int,
    baseline: str,
    prices: Path | None,
    print_prices: bool,
    sensitivity: bool,
    figures: Path | None,
    as_json: bool,
) -> None:
    """Count what the network of each FABRIC is made of, and say what it costs and draws. Needs no root.

    FABRIC is rail-only, rail-optimized, spine-leaf or ideal; without it, all four. Every combination of the repeatable
    options is reckoned. Counted are switches, transceivers and cables from the NICs upwards; NVLink is not.
    """
    from simulator.economics.bill import compare
    from simulator.economics.price_book import default_price_book, default_text, load_price_book

    if print_prices:
        click.echo(default_text(), nl=False)
        return
    kinds = list(dict.fromkeys(fabric_kind(name) for name in fabrics)) or list(FabricKind)
    against = fabric_kind(baseline)
    if against is FabricKind.IDEAL:
        raise click.BadParameter("the ideal fabric has no network to compare with", param_hint="'--baseline'")
    if not rails:
        rails = RAILS if preset is None else (named_preset(preset).gpus_per_domain,)
    template = dataclasses.replace(
        preset_spec(preset or RATES_FROM, against, 1), oversubscription=oversubscription, uplinks=uplinks
    )
    book = default_price_book() if prices is None else load_price_book(prices)
    comparisons = compare(kinds, against, template, book, *(dict.fromkeys(v) for v in (gpus, rails, switch_ports)))
    rate_gbps = comparisons[0].baseline.materials.port_rate_gbps
    own_prices = book.prices(rate_gbps)
    written = [] if figures is None else _write_figures(figures, comparisons, book, own_prices)
    if as_json:
        print_json(
            {
                "baseline": against.value,
                "port_rate_gbps": rate_gbps,
                "oversubscription": oversubscription,
                "uplinks": uplinks,
                "price_book": _book_json(book, own_prices),
                "bills": [_bill_json(comparison, bill) for comparison in comparisons for bill in comparison.bills],
                "sensitivity": _sensitivity_json(comparisons, own_prices) if sensitivity else None,
                "figures": written,
            }
        )
        return
    click.echo(
        f"ports of {rate_gbps:g} Gbit/s, oversubscription {oversubscription:g}:1, {_prices_text(book, own_prices)}"
    )
    click.echo(_bills_table(comparisons, book, against))
    click.echo()
    for line in _in_words(comparisons, against):
        click.echo(line)
    if sensitivity and _sensitivity_rows(comparisons, own_prices):
        click.echo(f"\n{_sensitivity_table(comparisons, own_prices)}")
    for path in written:
        click.echo(f"figure: {path}")


def _prices_text(book: PriceBook, prices: Prices) -> str:
    figures = [getattr(prices, field.name) for field in dataclasses.fields(prices) if field.name != "switches"]
    assumed = sum(figure.source.startswith("assumed") for figure in figures)
    note = f" ({assumed} of {len(figures)} figures are assumed; --print-prices shows them)" if assumed else ""
    return f"prices from {book.name}{note}"


def _bills_table(comparisons: Sequence[Comparison], book: PriceBook, baseline: FabricKind) -> str:
    headings = (
        "GPUS", "K", "PORTS", "FABRIC", "SWITCHES", "BY TIER", "SWITCH PORTS", "TRANSCEIVERS", "CABLES",
        f"COST (million {book.currency})", "POWER (kW)", "SWITCHES LESS", "OPTICS LESS", "COST LESS", "POWER LESS",
    )  # fmt: skip
    rows: list[tuple[object, ...]] = []
    for comparison in comparisons:
        for bill in comparison.bills:
            materials = bill.materials
            rows.append(
                (
                    f"{comparison.gpus:,}",
                    comparison.rails,
                    comparison.radix,
                    materials.spec.kind.value,
                    f"{materials.switches:,}",
                    " + ".join(f"{tier.switches:,}" for tier in materials.tiers) or "-",
                    f"{materials.ports:,}",
                    f"{materials.transceivers:,}",
                    f"{materials.cables:,}",
                    f"{bill.cost.total / 1e6:,.3f}",
                    f"{bill.power_w.total / 1e3:,.1f}",
                    *(_percent(share) for share in _savings(comparison, bill).values()),
                )
            )
    return table(headings, rows)


def _savings(comparison: Comparison, bill: Bill) -> dict[str, float | None]:
    """Shares by which a bill is below the baseline's; None for the ideal fabric, whose network is not in the bill."""
    from simulator.economics.bill import less

    ours, theirs = bill.materials, comparison.baseline.materials
    pairs = {
        "switches_less": (ours.switches, theirs.switches),
        "transceivers_less": (ours.transceivers, theirs.transceivers),
        "cost_less": (bill.cost.total, comparison.baseline.cost.total),
        "power_less": (bill.power_w.total, comparison.baseline.power_w.total),
    }
    if ours.spec.kind is FabricKind.IDEAL:
        return dict.fromkeys(pairs)
    return {name: less(*pair) for name, pair in pairs.items()}


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.1f} %".replace("-0.0", "0.0")


def _in_words(comparisons: Sequence[Comparison], baseline: FabricKind) -> list[str]:
    """What rail-only saves at each domain size, where it is among the fabrics, and what the bill leaves out."""
    lines = []
    cases = [
        (case, bill) for case in comparisons for bill in case.bills if bill.materials.spec.kind is FabricKind.RAIL_ONLY
    ]
    if cases and baseline is not FabricKind.RAIL_ONLY:
        for gpus, rails in dict.fromkeys((case.gpus, case.rails) for case, _ in cases):
            group = [(case, bill) for case, bill in cases if (case.gpus, case.rails) == (gpus, rails)]
            ports = ", ".join(str(case.radix) for case, _ in group)
            savings = [_savings(case, bill) for case, bill in group]
            said = "; ".join(
                f"{what} {', '.join(_percent(saving[name]) for saving in savings)}"
                for what, name in (("switches", "switches_less"), ("cost", "cost_less"), ("power", "power_less"))
            )
            lines.append(f"{gpus:,} GPUs, K = {rails}: rail-only below {baseline.value} at {ports} ports by: {said}")
        lines.append(_tiers_in_words(cases))
    if any(bill.materials.spec.kind is FabricKind.IDEAL for case in comparisons for bill in case.bills):
        lines.append("NVLink is not in the bill, so the ideal fabric, all NVLink, has none and is not compared.")
    return lines


def _tiers_in_words(cases: Sequence[tuple[Comparison, Bill]]) -> str:
    """The cases in which a rail needs fewer tiers than the baseline, which is where its saving is from."""
    fewer = [
        f"K = {case.rails} at {case.radix} ports ({len(bill.materials.tiers)} for {len(case.baseline.materials.tiers)})"
        for case, bill in cases
        if len(bill.materials.tiers) < len(case.baseline.materials.tiers)
    ]
    return f"A rail needs fewer tiers of switches than the whole fabric for {', '.join(fewer) or 'none of these'}."


def _sensitivity_rows(comparisons: Sequence[Comparison], prices: Prices) -> list[tuple[Comparison, Bill, list[float]]]:
    """The bills whose saving can depend on prices, with the ratios to show: round ones and the price book's own."""
    from simulator.economics.bill import can_differ, price_ratio

    rows = []
    for comparison in comparisons:
        own = price_ratio(prices, comparison.radix)
        ratios = sorted({*RATIOS, *([] if own is None else [round(own, 3)])})
        rows += [(comparison, bill, ratios) for bill in comparison.bills if can_differ(bill, comparison.baseline)]
    return rows


def _sensitivity_json(comparisons: Sequence[Comparison], prices: Prices) -> list[dict[str, Any]]:
    from simulator.economics.bill import less_at_ratio, switch_share_at_ratio

    return [
        {
            "gpus": comparison.gpus,
            "rails": comparison.rails,
            "switch_ports": comparison.radix,
            "fabric": bill.materials.spec.kind.value,
            "port_price_in_transceivers": ratio,
            "baseline_switch_share": switch_share_at_ratio(comparison.baseline.materials, ratio),
            "cost_less": less_at_ratio(bill.materials, comparison.baseline.materials, ratio),
        }
        for comparison, bill, ratios in _sensitivity_rows(comparisons, prices)
        for ratio in ratios
    ]


def _sensitivity_table(comparisons: Sequence[Comparison], prices: Prices) -> str:
    headings = ("GPUS", "K", "PORTS", "FABRIC", "PORT PRICE (TRANSCEIVERS)", "SWITCHES' SHARE OF BASELINE", "COST LESS")
    return table(
        headings,
        [
            (
                f"{row['gpus']:,}", row["rails"], row["switch_ports"], row["fabric"],
                f"{row['port_price_in_transceivers']:g}", _percent(row["baseline_switch_share"]),
                _percent(row["cost_less"]),
            )
            for row in _sensitivity_json(comparisons, prices)
        ],
    )  # fmt: skip


def _book_json(book: PriceBook, prices: Prices) -> dict[str, Any]:
    def shown(figure: Figure) -> dict[str, Any]:
        return {"value": figure.value, "source": figure.source}

    figures = {field.name: getattr(prices, field.name) for field in dataclasses.fields(prices)}
    switches = figures.pop("switches")
    return {
        "name": book.name,
        "currency": book.currency,
        **{name: shown(figure) for name, figure in figures.items()},
        "switches": {
            str(ports): {"price": shown(own.price), "power_w": shown(own.power_w)} for ports, own in switches.items()
        },
    }


def _bill_json(comparison: Comparison, bill: Bill) -> dict[str, Any]:
    materials = bill.materials

    def parts(whole: Sum) -> dict[str, float]:
        return {**dataclasses.asdict(whole), "total": whole.total, "switch_share": whole.switch_share}

    return {
        "fabric": materials.spec.kind.value,
        "gpus": comparison.gpus,
        "rails": comparison.rails,
        "domains": materials.spec.domains,
        "switch_ports": comparison.radix,
        "switches": materials.switches,
        "tiers": [dataclasses.asdict(tier) for tier in materials.tiers],
        "ports": materials.ports,
        "ports_used": materials.ports_used,
        "nic_links": materials.nic_links,
        "cables": materials.cables,
        "transceivers": materials.transceivers,
        "cost": parts(bill.cost),
        "power_w": parts(bill.power_w),
        **_savings(comparison, bill),
    }


def _write_figures(folder: Path, comparisons: Sequence[Comparison], book: PriceBook, prices: Prices) -> list[Path]:
    from experiments.figures.cost import cost_figure, sensitivity_figure
    from experiments.figures.style import figure_bytes
    from experiments.files import make_folder, write_atomically
    from simulator.economics.errors import PriceBookError

    drawn = {}
    if any(bill.materials.tiers for comparison in comparisons for bill in comparison.bills):
        drawn["cost"] = cost_figure(comparisons, book.currency)
    if _sensitivity_rows(comparisons, prices):
        drawn["sensitivity"] = sensitivity_figure(comparisons, prices)
    written = []
    try:
        make_folder(folder)
        for name, figure in drawn.items():
            for file_format in ("png", "svg"):
                path = folder / f"{name}.{file_format}"
                write_atomically(path, figure_bytes(figure, file_format))
                written.append(path)
    except OSError as error:
        raise PriceBookError(f"{folder} cannot be written: {error.strerror}; choose another folder") from None
    return written
