"""Figures: throughput over time, completion times, the fabric drawn as on a board, cost, and who talks to whom.

Made with matplotlib's objects, without pyplot, so that no window or figure registry is involved. Colours are those of
Okabe and Ito, which people with any colour vision tell apart; lines also differ by dashes, bars by hatching.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle
from matplotlib.patheffects import withStroke

from experiments.outcome import HEALTHY, Outcome
from experiments.units import rate_text, size_text
from simulator.economics.bill import Comparison, can_differ, less, less_at_ratio, price_ratio
from simulator.economics.price_book import Prices
from topologies.model import Fabric, FabricKind, Link, LinkKind, SwitchKind
from topologies.scale import link_rate_mbps
from workloads.records import FloatArray, RunRecord
from workloads.traffic import Pairs, active_share, ways

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY = "#8a8a8a"
RAIL_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, BLACK)
RAIL_DASHES = ("-", (0, (6, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1.5, 1.5)))
_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 12,
    "axes.titlesize": 14,
    "axes.labelsize": 13,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 11,
    "svg.fonttype": "path",
    "svg.hashsalt": "railbed",
    "hatch.linewidth": 1.2,
}
_PNG_DPI = 130


def figure_bytes(figure: Figure, file_format: str) -> bytes:
    """The figure as ``png`` or ``svg``; the same figure gives the same bytes."""
    FigureCanvasAgg(figure)
    target = io.BytesIO()
    undated = {"Date": None} if file_format == "svg" else {"Software": None}
    with rc_context(_STYLE):
        figure.savefig(target, format=file_format, dpi=_PNG_DPI, facecolor="white", metadata=undated)
    return target.getvalue()


def throughput_figure(fabric: Fabric, record: RunRecord, outcome: Outcome) -> Figure:
    """Throughput over time: per kind of link, and above it the failed link and its detour where a link failed."""
    with rc_context(_STYLE):
        outages = outcome.outages
        figure = Figure(figsize=(11, 7.2 if outages else 4.4), layout="constrained")
        panels = figure.subplots(2 if outages else 1, 1, sharex=True, squeeze=False)[:, 0]
        title = f"{outcome.collective} ({size_text(outcome.size_bytes)}) on {outcome.fabric}, {outcome.backend}"
        figure.suptitle(title, fontsize=15, fontweight="bold")
        if outages:
            _draw_failed_links(panels[0], fabric, record, outcome)
        _draw_link_groups(panels[-1], fabric, record)
        for panel in panels:
            _mark_outages(panel, outcome)
            panel.set_ylim(0, panel.get_ylim()[1] * 1.05)
            panel.grid(axis="y", alpha=0.3)
            _legend_beside(panel)
        end_s = float(record.links.t_s[-1]) if len(record.links.t_s) else 1.0
        panels[-1].set_xlim(0, end_s)
        panels[-1].set_xlabel(f"time (emulated s; 1 s = {1000 / record.scale.time:.3g} ms of the real machine)")
    return figure


def _draw_failed_links(panel: Axes, fabric: Fabric, record: RunRecord, outcome: Outcome) -> None:
    panel.set_title("Failed link and its busiest detour links, both directions together", loc="left")
    panel.set_ylabel("Mbit/s (emulated)")
    # The first line is the widest, so that lines at the same rate are all seen.
    detour_styles = ((BLUE, "-", 5.0), (ORANGE, (0, (3, 1)), 3.4), (GREEN, (0, (6, 1.5, 1.5, 1.5)), 1.8))
    shown: set[str] = set()
    for outage in outcome.outages:
        wide = [link.link_id for link in outage.detour if fabric.link(link.link_id).kind is not LinkKind.NVLINK]
        wide += [link.link_id for link in outage.detour if link.link_id not in wide]
        for (colour, dashes, width), link_id in zip(detour_styles, wide, strict=False):
            if link_id not in shown:
                rates = record.links.rates_mbps([link_id])
                _draw_steps(panel, record, rates, f"{link_id} (detour)", colour, dashes, width)
                shown.add(link_id)
        rates = record.links.rates_mbps([outage.link_id])
        _draw_steps(panel, record, rates, f"{outage.link_id} (fails)", VERMILLION, "-", 3.0)
        rate_mbps = link_rate_mbps(fabric.link(outage.link_id), record.scale)
        label = f"rate per direction,\n{rate_text(rate_mbps)} for {rate_text(rate_mbps * record.scale.rate)}"
        panel.axhline(rate_mbps, color=GREY, linestyle=":", linewidth=1.5, label=label)


def _draw_link_groups(panel: Axes, fabric: Fabric, record: RunRecord) -> None:
    panel.set_title("All links of a kind: mean use of their capacity, both directions", loc="left")
    panel.set_ylabel("share of capacity (%)")
    names = ((LinkKind.NVLINK, "NVLink", GREEN, "-"), (LinkKind.NIC, "NIC", BLUE, (0, (6, 1.5))),
             (LinkKind.FABRIC, "leaf-spine", PURPLE, (0, (2, 1))))  # fmt: skip
    for kind, name, colour, dashes in names:
        links = [link for link in fabric.links if link.kind is kind]
        if links:
            room_mbps = 2 * sum(link_rate_mbps(link, record.scale) for link in links)
            shares = record.links.rates_mbps([link.id for link in links]) / room_mbps * 100
            _draw_steps(panel, record, shares, f"{name} ({len(links)} links)", colour, dashes, 2.2)


def _draw_steps(
    panel: Axes, record: RunRecord, values: FloatArray, label: str, colour: str, dashes: Any, width: float
) -> None:
    """Draw the mean of every interval between samples; nothing without samples."""
    if not len(values):
        return
    panel.stairs(
        values, record.links.t_s, baseline=None, label=label, color=colour,
        linestyle=dashes, linewidth=width,
    )  # fmt: skip


def _mark_outages(panel: Axes, outcome: Outcome) -> None:
    for outage in outcome.outages:
        end_s = outage.up_s if outage.up_s is not None else panel.get_xlim()[1]
        panel.axvspan(outage.down_s, end_s, color=VERMILLION, alpha=0.12, linewidth=0)
        panel.axvline(outage.down_s, color=VERMILLION, linewidth=1.4, label="link down")
        if outage.rerouted_after_s is not None:
            rerouted_s = outage.down_s + outage.rerouted_after_s
            panel.axvline(rerouted_s, color=BLACK, linewidth=1.4, linestyle=":", label="rerouted")
        if outage.up_s is not None:
            panel.axvline(outage.up_s, color=GREEN, linewidth=1.4, linestyle="--", label="link up")


def _legend_beside(panel: Axes) -> None:
    handles, labels = panel.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    panel.legend(once.values(), once.keys(), loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)


def completion_figure(outcomes: Sequence[Outcome]) -> Figure:
    """Completion times side by side: per collective one bar per fabric and condition, with the expected value."""
    with rc_context(_STYLE):
        collectives = list(dict.fromkeys(outcome.collective for outcome in outcomes))
        fabrics = list(dict.fromkeys(outcome.fabric for outcome in outcomes))
        conditions = list(dict.fromkeys(outcome.condition for outcome in outcomes))
        bars = len(fabrics) * len(conditions)
        figure = Figure(figsize=(max(8.0, 1.6 + 0.95 * (bars + 0.8) * len(collectives)), 5.6), layout="constrained")
        panel = figure.subplots()
        highest = max((value for outcome in outcomes for value in (outcome.duration_s, outcome.predicted_s) if value),
                      default=1.0)  # fmt: skip
        step = 0.84 / bars
        for outcome in outcomes:
            bar = fabrics.index(outcome.fabric) * len(conditions) + conditions.index(outcome.condition)
            x = collectives.index(outcome.collective) + (bar - (bars - 1) / 2) * step
            colour = RAIL_COLOURS[fabrics.index(outcome.fabric) % len(RAIL_COLOURS)]
            failed = outcome.condition != HEALTHY
            if outcome.duration_s is None:
                panel.text(x, highest * 0.01, outcome.status, rotation=90, ha="center", va="bottom", color=VERMILLION,
                           fontweight="bold")  # fmt: skip
                continue
            panel.bar(x, outcome.duration_s, step * 0.9, color="white" if failed else colour, edgecolor=colour,
                      hatch="///" if failed else "", linewidth=1.5)  # fmt: skip
            top = max(outcome.duration_s, outcome.predicted_s or 0.0)
            panel.text(x, top + highest * 0.03, f"{outcome.duration_s:#.3g}", ha="center", va="bottom", fontsize=11)
            if outcome.predicted_s is not None:
                panel.plot([x], [outcome.predicted_s], marker="D", markersize=7, color=BLACK, markerfacecolor=YELLOW)
        panel.set_ylim(0, highest * 1.16)
        panel.set_xticks(range(len(collectives)), collectives)
        panel.tick_params(axis="x", length=0, labelsize=13)
        panel.set_ylabel("completion time (emulated s)")
        done = [outcome for outcome in outcomes if outcome.duration_s and outcome.real_duration_s]
        if done:
            real_ms = (done[0].real_duration_s or 0.0) / (done[0].duration_s or 1.0) * 1000
            panel.set_ylabel(f"completion time (emulated s; 1 s = {real_ms:.3g} ms real)")
        panel.grid(axis="y", alpha=0.3)
        panel.set_axisbelow(True)
        handles: list[Patch | Line2D] = [
            Patch(facecolor=RAIL_COLOURS[index % len(RAIL_COLOURS)], label=fabric)
            for index, fabric in enumerate(fabrics)
        ]
        if len(conditions) > 1:
            handles.append(Patch(facecolor="white", edgecolor=GREY, hatch="///", label="with a failing link"))
        expected = "expected (fluid model)"
        handles.append(Line2D([], [], marker="D", linestyle="", color=BLACK, markerfacecolor=YELLOW, label=expected))
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


@dataclass(frozen=True)
class _Board:
    """Where everything stands: centre of every node, and the size of a GPU's box."""

    centre: dict[str, tuple[float, float]]
    gpu_width: float
    width: float
    height: float


_GPU_HEIGHT = 0.5
_NVSWITCH_Y = 0.75
_GPU_Y = 1.75
_LEAF_Y = 4.6
_SPINE_Y = 6.9


def fabric_figure(fabric: Fabric, label: str, failed: Sequence[str] = (), detour: Sequence[str] = ()) -> Figure:
    """The fabric as on a board: domains below, rails as lines to their switches, spines on top.

    Links in ``failed`` are broken lines with a cross, links in ``detour`` have a yellow band. Meant for up to 64 GPUs;
    of larger fabrics the first domains and rails are drawn, and the figure says so.
    """
    with rc_context(_STYLE):
        board = _placed(fabric)
        figure = Figure(
            figsize=(min(max(9.0, board.width), 17.0), 1.6 + 0.85 * board.height),
            layout=ConstrainedLayoutEngine(h_pad=0.12),
        )
        panel = figure.subplots()
        panel.set_axis_off()
        for link in fabric.links:
            if link.kind is not LinkKind.HOST and link.a in board.centre and link.b in board.centre:
                _draw_link(panel, fabric, board, link, link.id in failed, link.id in detour)
        _draw_nodes(panel, fabric, board)
        _draw_board_legend(figure, fabric, bool(failed), bool(detour))
        shown = sum(gpu.switch_id in board.centre for gpu in fabric.gpus)
        part = "" if shown == len(fabric.gpus) else f" (the first {shown} are drawn)"
        spec = fabric.spec
        rates = f"NVLink {rate_text(spec.nvlink_rate_mbps)}"
        if spec.kind is not FabricKind.IDEAL:
            rates += f", NIC {rate_text(spec.nic_rate_mbps)}"
        domains = "1 domain" if spec.domains == 1 else f"{spec.domains} domains"
        panel.set_title(f"{label}: {domains} x {spec.rails} GPUs{part}; {rates}", fontweight="bold", pad=10)
        panel.set_xlim(-0.3, board.width + 0.3)
        panel.set_ylim(-0.1, board.height)
    return figure


_MOST_DOMAINS = 8
_MOST_RAILS = 8


def _placed(fabric: Fabric) -> _Board:
    """Rows from below: domains with their NVSwitch and GPUs, the switches that NICs end at, the spines."""
    domains, rails = min(fabric.spec.domains, _MOST_DOMAINS), min(fabric.spec.rails, _MOST_RAILS * 2)
    pitch = 0.62 if rails > 4 else 0.8
    gap = 0.55
    domain_width = rails * pitch + 0.2
    width = max(domains * (domain_width + gap) - gap, 7.0)
    left = (width - (domains * (domain_width + gap) - gap)) / 2
    centre: dict[str, tuple[float, float]] = {}
    for domain in range(domains):
        start = left + domain * (domain_width + gap)
        centre[f"nv{domain}"] = (start + domain_width / 2, _NVSWITCH_Y)
        for rail in range(rails):
            centre[f"s{domain}r{rail}"] = (start + 0.1 + (rail + 0.5) * pitch, _GPU_Y)
    height = _GPU_Y + 1.0
    for kinds, y in ((_LEAF_KINDS, _LEAF_Y), (_SPINE_KINDS, _SPINE_Y)):
        row = [switch.id for switch in fabric.switches if switch.kind in kinds and max(switch.rail, 0) < rails]
        row = row[: _MOST_DOMAINS * _MOST_RAILS // 2]
        for index, switch_id in enumerate(row):
            centre[switch_id] = (width * (index + 0.5) / len(row), y)
            height = y + 0.5
    return _Board(centre, pitch * 0.82, width, height)


_LEAF_KINDS = (SwitchKind.RAIL, SwitchKind.RAIL_LEAF, SwitchKind.LEAF)
_SPINE_KINDS = (SwitchKind.RAIL_SPINE, SwitchKind.SPINE)


def _rail_style(rail: int) -> tuple[str, Any]:
    return RAIL_COLOURS[rail % len(RAIL_COLOURS)], RAIL_DASHES[rail % len(RAIL_DASHES)]


def _draw_link(panel: Axes, fabric: Fabric, board: _Board, link: Link, failed: bool, detour: bool) -> None:
    (ax, ay), (bx, by) = board.centre[link.a], board.centre[link.b]
    if link.kind is LinkKind.NVLINK:
        ay -= _GPU_HEIGHT / 2
        bx, by = ax, by + 0.2
    elif link.kind is LinkKind.NIC:
        ay += _GPU_HEIGHT / 2
        by -= 0.25
    else:
        ay += 0.25
        by -= 0.25
        copies = [other.id for other in fabric.links_of(link.a) if other.b == link.b]
        shift = (copies.index(link.id) - (len(copies) - 1) / 2) * 0.12
        ax, bx = ax + shift, bx + shift
    if link.kind is LinkKind.NIC:
        colour, dashes = _rail_style(fabric.switch_by_id[link.a].rail)
        width = 1.8
    else:
        colour, dashes, width = (BLACK, "-", 2.6) if link.kind is LinkKind.NVLINK else (GREY, "-", 1.1)
    if detour:
        panel.plot([ax, bx], [ay, by], color=YELLOW, linewidth=8, solid_capstyle="round", zorder=1.5)
        panel.plot([ax, bx], [ay, by], color=colour, linestyle=dashes, linewidth=width + 0.8, zorder=2.2)
    elif failed:
        panel.plot([ax, bx], [ay, by], color=VERMILLION, linestyle=(0, (1.2, 1.2)), linewidth=3.2, zorder=3)
    else:
        panel.plot([ax, bx], [ay, by], color=colour, linestyle=dashes, linewidth=width, alpha=0.85, zorder=2)
    if failed:
        x, y = ax + (bx - ax) * 0.42, ay + (by - ay) * 0.42
        panel.plot([x], [y], marker="X", markersize=17, color=VERMILLION, markeredgecolor="white", zorder=6)
        to_left = x > board.width * 0.8
        gap = 0.02 * board.width * (-1 if to_left else 1)
        text = panel.text(x + gap, y, f"{link.id}\nfails", color=VERMILLION, fontweight="bold", fontsize=12,
                          va="center", ha="right" if to_left else "left", zorder=7)  # fmt: skip
        text.set_path_effects([withStroke(linewidth=4, foreground="white")])


def _draw_nodes(panel: Axes, fabric: Fabric, board: _Board) -> None:
    for domain in range(fabric.spec.domains):
        members = [board.centre[gpu.switch_id][0] for gpu in fabric.gpus
                   if gpu.domain == domain and gpu.switch_id in board.centre]  # fmt: skip
        if not members:
            continue
        left, right = min(members) - board.gpu_width / 2 - 0.16, max(members) + board.gpu_width / 2 + 0.16
        frame = FancyBboxPatch((left, 0.05), right - left, _GPU_Y + 0.35, boxstyle="round,pad=0,rounding_size=0.12",
                               facecolor="#f3f3f3", edgecolor=GREY, linewidth=1.2, zorder=0.5)  # fmt: skip
        panel.add_patch(frame)
        x = (left + right) / 2
        panel.text(x, 0.26, f"domain {domain}", ha="center", va="center", fontsize=11)
        inner = FancyBboxPatch((left + 0.14, _NVSWITCH_Y - 0.2), right - left - 0.28, 0.4,
                               boxstyle="round,pad=0,rounding_size=0.08", facecolor="#444444", edgecolor="none",
                               zorder=4)  # fmt: skip
        panel.add_patch(inner)
        panel.text(x, _NVSWITCH_Y, "NVSwitch", ha="center", va="center", color="white", fontsize=10.5, zorder=5)
    for gpu in fabric.gpus:
        if gpu.switch_id in board.centre:
            _box(panel, board.centre[gpu.switch_id], board.gpu_width, _GPU_HEIGHT, str(gpu.rail), "white")
    for kinds, colour in ((_LEAF_KINDS, "#dcebf7"), (_SPINE_KINDS, "#e9e2f3")):
        row = [switch for switch in fabric.switches if switch.kind in kinds and switch.id in board.centre]
        room = board.width / max(len(row), 1) * 0.9
        for switch in row:
            size = 12.0 if room > 0.85 else max(7.0, 12.0 * room / 0.95)
            edge = _rail_style(switch.rail)[0] if switch.rail >= 0 else BLACK
            _box(
                panel, board.centre[switch.id], min(room, 1.35 if room < 4 else 1.8), 0.5, switch.id, colour, size, edge
            )


def _box(
    panel: Axes, centre: tuple[float, float], width: float, height: float, text: str, colour: str,
    size: float = 12.0, edge: str = BLACK,
) -> None:  # fmt: skip
    corner = (centre[0] - width / 2, centre[1] - height / 2)
    panel.add_patch(FancyBboxPatch(corner, width, height, boxstyle="round,pad=0,rounding_size=0.06", facecolor=colour,
                                   edgecolor=edge, linewidth=1.2 if edge == BLACK else 2.4, zorder=4))  # fmt: skip
    panel.text(*centre, text, ha="center", va="center", fontsize=size, zorder=5)


def _draw_board_legend(figure: Figure, fabric: Fabric, failed: bool, detour: bool) -> None:
    handles: list[Patch | Line2D] = [Patch(facecolor="white", edgecolor=BLACK, label="GPU (its rail)")]
    if fabric.kind is not FabricKind.IDEAL:
        colour, dashes = _rail_style(0)
        handles.append(Line2D([], [], color=colour, linestyle=dashes, linewidth=1.8, label="NIC link (style = rail)"))
    handles.append(Line2D([], [], color=BLACK, linewidth=2.6, label="NVLink"))
    if any(link.kind is LinkKind.FABRIC for link in fabric.links):
        handles.append(Line2D([], [], color=GREY, linewidth=1.1, label="leaf-spine link"))
    if failed:
        handles.append(Line2D([], [], color=VERMILLION, linestyle=(0, (1.2, 1.2)), linewidth=3.2, marker="X",
                              markersize=11, label="failed link"))  # fmt: skip
    if detour:
        handles.append(Line2D([], [], color=YELLOW, linewidth=8, label="detour"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)


_PART_COLOURS = {"switches": BLUE, "transceivers": ORANGE, "cables": GREEN}
PAPER_COST_LESS = (0.38, 0.77)
"""Saving in network cost that the abstract of the Rail-only paper (arXiv 2307.12169) states."""


def cost_figure(comparisons: Sequence[Comparison], currency: str) -> Figure:
    """Cost bars: for each size, domain size and number of ports one bar a fabric, by switches, transceivers, cables.

    Above a bar stands what it is below the baseline. The ideal fabric has no bill and no bar.
    """
    with rc_context(_STYLE):
        groups = [
            [(comparison, bill) for bill in comparison.bills if bill.materials.spec.kind is not FabricKind.IDEAL]
            for comparison in comparisons
        ]
        bars = sum(map(len, groups))
        figure = Figure(figsize=(min(max(9.0, 2.0 + 0.62 * (bars + len(groups))), 24.0), 6.6), layout="constrained")
        panel = figure.subplots()
        highest = max((bill.cost.total for group in groups for _, bill in group), default=0.0) / 1e6 or 1.0
        x, ticks, names = 0.0, [], []
        for comparison, group in zip(comparisons, groups, strict=True):
            for _, bill in group:
                bottom = 0.0
                for part, colour in _PART_COLOURS.items():
                    height = getattr(bill.cost, part) / 1e6
                    panel.bar(x, height, 0.84, bottom=bottom, color=colour, edgecolor="white", linewidth=0.6)
                    bottom += height
                saved = less(bill.cost.total, comparison.baseline.cost.total)
                if bill.materials.spec.kind is not comparison.baseline.materials.spec.kind and saved is not None:
                    text = "same" if abs(saved) < 5e-4 else f"{-saved:+.0%}".replace("-", "\u2212")
                    panel.text(x, bottom + highest * 0.015, text, ha="center", va="bottom", fontsize=11)
                ticks.append(x)
                names.append(bill.materials.spec.kind.value)
                x += 1.0
            if group:
                label = f"K = {comparison.rails}\n{comparison.radix} ports"
                if len({other.gpus for other in comparisons}) > 1:
                    label += f"\n{comparison.gpus:,} GPUs"
                below = -14 - 6.6 * max(map(len, names))  # points, clear of the names of the fabrics
                panel.annotate(label, (x - 0.5 - len(group) / 2, 0), xycoords=("data", "axes fraction"),
                               xytext=(0, below), textcoords="offset points", ha="center", va="top", fontsize=12,
                               annotation_clip=False)  # fmt: skip
            x += 0.8
        panel.set_xticks(ticks, names, rotation=90, fontsize=11)
        panel.tick_params(axis="x", length=0)
        panel.set_xlim(-0.8, x - 1.0)
        panel.set_ylim(0, highest * 1.1)
        panel.set_ylabel(f"cost of the network (million {currency})")
        sizes = " and ".join(f"{gpus:,}" for gpus in dict.fromkeys(comparison.gpus for comparison in comparisons))
        baseline = comparisons[0].baseline.materials.spec.kind.value
        figure.suptitle(f"Network of {sizes} GPUs; above the bars: against {baseline}", fontsize=15, fontweight="bold")
        panel.grid(axis="y", alpha=0.3)
        panel.set_axisbelow(True)
        handles = [Patch(facecolor=colour, label=part) for part, colour in _PART_COLOURS.items()]
        panel.legend(handles=handles[::-1], loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return figure


def sensitivity_figure(comparisons: Sequence[Comparison], prices: Prices) -> Figure:
    """What a fabric saves against the baseline, over the price of a switch port in transceivers.

    Drawn are the fabrics that can differ from the baseline, of which there must be one; cases whose lines would hide
    each other share one line and its label. The band is the range that the Rail-only paper
    states; dotted lines are where the price book stands.
    """
    ratios = [10 ** (step / 20 - 1) for step in range(47)]
    with rc_context(_STYLE):
        figure = Figure(figsize=(11.5, 5.8), layout="constrained")
        panel = figure.subplots()
        baseline = comparisons[0].baseline.materials.spec.kind
        others = [
            (comparison, bill.materials)
            for comparison in comparisons
            for bill in comparison.bills
            if can_differ(bill, comparison.baseline)
        ]
        labels: dict[tuple[float, ...], list[str]] = {}
        for comparison, materials in others:
            values = [less_at_ratio(materials, comparison.baseline.materials, ratio) or 0.0 for ratio in ratios]
            label = f"K = {comparison.rails}, {comparison.radix} ports"
            if len({other.gpus for other in comparisons}) > 1:
                label += f", {comparison.gpus:,} GPUs"
            if len({other.spec.kind for _, other in others}) > 1:
                label = f"{materials.spec.kind.value}, {label}"
            labels.setdefault(tuple(round(value, 4) for value in values), []).append(label)
        if baseline is not FabricKind.RAIL_ONLY:
            low, high = (100 * share for share in PAPER_COST_LESS)
            label = f"paper's range, {low:.0f} to {high:.0f} %"
            panel.axhspan(low, high, color=GREY, alpha=0.15, linewidth=0, label=label)
        for index, (shares, cases) in enumerate(labels.items()):
            panel.plot(ratios, [100 * share for share in shares], linewidth=2.4, label="\n".join(cases),
                       color=RAIL_COLOURS[index % len(RAIL_COLOURS)], linestyle=RAIL_DASHES[index % len(RAIL_DASHES)],
                       clip_on=False)  # fmt: skip
        # A book that prices whole switches has a ratio of its own for each number of ports.
        for own in sorted({price_ratio(prices, comparison.radix) or 0.0 for comparison in comparisons}):
            if ratios[0] <= own <= ratios[-1]:
                panel.axvline(own, color=BLACK, linestyle=":", linewidth=1.6, label=f"price book, {own:.3g}")
        panel.set_xscale("log")
        panel.set_xticks(marks := [0.1, 0.2, 0.5, 1, 2, 5, 10, 20], [f"{mark:g}" for mark in marks])
        panel.set_xlim(ratios[0], ratios[-1])
        lowest = 100 * min((0.0, *(share for shares in labels for share in shares)))
        step = 20 if lowest > -60 else 100
        floor = step * math.floor(lowest / step)
        panel.set_yticks(range(floor, 101, step))
        panel.set_ylim(floor - (100 - floor) / 25, 100)
        panel.set_xlabel("price of a switch port / price of a transceiver with its half of a cable")
        panel.set_ylabel("network cost saved (%)")
        sizes = " and ".join(f"{gpus:,}" for gpus in dict.fromkeys(comparison.gpus for comparison in comparisons))
        kinds = " and ".join(dict.fromkeys(materials.spec.kind.value for _, materials in others))
        figure.suptitle(f"Saving of {kinds} against {baseline.value}, {sizes} GPUs", fontsize=15, fontweight="bold")
        panel.grid(alpha=0.3)
        _legend_beside(panel)
    return figure


_MOST_CELLS = 256
_MOST_DOMAIN_LINES = 64
_MOST_TICKS = 8


def matrix_figure(pairs: Pairs, ranks: int, rails: int, title: str) -> Figure:
    """Who talks to whom: bytes from each rank to each, silent pairs white, HB domains of ``rails`` GPUs as squares.

    Above 256 ranks a cell stands for several of them and holds what they send together. Below it stand the share of
    pairs that talk and what stays in a domain, stays on a rail, or changes both.
    """
    each = -(-ranks // _MOST_CELLS)
    cells = -(-ranks // each)
    sent: FloatArray = np.zeros((cells, cells))
    for (src, dst), size_bytes in pairs.items():
        sent[src // each, dst // each] += size_bytes
    with rc_context({**_STYLE, "axes.spines.top": True, "axes.spines.right": True}):
        figure = Figure(figsize=(9.4, 8.6), layout="constrained")
        panel = figure.subplots()
        figure.suptitle(title, fontsize=15, fontweight="bold")
        edges = (-0.5, ranks - 0.5, ranks - 0.5, -0.5)
        shades = colormaps["viridis_r"].with_extremes(bad="white")
        if sent.any():
            talk = sent[sent > 0]
            norm = LogNorm(talk.min() / 1.5, talk.max())
            image = panel.imshow(
                np.ma.masked_equal(sent, 0), cmap=shades, norm=norm, extent=edges, interpolation="nearest"
            )
            bar = figure.colorbar(image, ax=panel, shrink=0.82)
            low, high = float(talk.min()), float(talk.max())
            tens = [10.0**power for power in range(21) if low <= 10.0**power <= high]
            bar.set_ticks(tens if len(tens) > 1 else sorted({low, high}))
            bar.ax.yaxis.set_major_formatter(_decimal_size)
            bar.set_label("bytes of the real machine" if each == 1 else f"bytes of {each} x {each} pairs together")
            bar.minorticks_off()
        else:
            panel.set_xlim(edges[:2])
            panel.set_ylim(edges[2:])
        _draw_domains(panel, ranks, rails)
        panel.set_xlabel("to rank")
        panel.set_ylabel("from rank")
        step = rails * -(-ranks // (rails * _MOST_TICKS))
        panel.set_xticks(range(0, ranks, step))
        panel.set_yticks(range(0, ranks, step))
        panel.xaxis.set_label_position("top")
        panel.xaxis.tick_top()
        figure.supxlabel(_matrix_caption(pairs, ranks, rails), fontsize=12)
    return figure


def _draw_domains(panel: Axes, ranks: int, rails: int) -> None:
    """A thin square around every domain; around none where they would be too small to see."""
    if ranks // rails > _MOST_DOMAIN_LINES or rails < 2:
        return
    for first in range(0, ranks, rails):
        corner = (first - 0.5, first - 0.5)
        panel.add_patch(Rectangle(corner, rails, rails, fill=False, edgecolor=VERMILLION, linewidth=1.1, zorder=3))


def _matrix_caption(pairs: Pairs, ranks: int, rails: int) -> str:
    share = active_share(pairs, ranks)
    split = ways(pairs, rails)
    whole = max(1, split.in_domain + split.on_rail + split.across_rails)
    parts = ((split.in_domain, "in the domain"), (split.on_rail, "on the rail"), (split.across_rails, "across rails"))
    told = ", ".join(f"{part / whole:.1%} {where}" for part, where in parts)
    squares = "; squares are HB domains" if ranks // rails <= _MOST_DOMAIN_LINES and rails > 1 else ""
    return f"{share:.2%} of all pairs talk{squares}\nbytes: {told}"


def _decimal_size(size_bytes: float, position: float = 0.0) -> str:
    """A size with a decimal unit, the way a colour bar asks for it."""
    units = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
    step = min(int(np.log10(max(size_bytes, 1.0)) + 1e-9) // 3, len(units) - 1)
    return f"{size_bytes / 1000**step:.3g} {units[step]}"
