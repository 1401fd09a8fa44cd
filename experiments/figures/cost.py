"""What fabrics cost, and how that depends on prices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, RAIL_COLOURS, RAIL_DASHES, STYLE, legend_beside
from simulator.economics.bill import Comparison, can_differ, less, less_at_ratio, price_ratio
from simulator.economics.price_book import Prices
from topologies.model import FabricKind

_PART_COLOURS = {"switches": BLUE, "transceivers": ORANGE, "cables": GREEN}
PAPER_COST_LESS = (0.38, 0.77)
"""Saving in network cost that the abstract of the Rail-only paper (arXiv 2307.12169) states."""


def cost_figure(comparisons: Sequence[Comparison], currency: str) -> Figure:
    """Cost bars: for each size, domain size and number of ports one bar a fabric, by switches, transceivers, cables.

    Above a bar stands what it is below the baseline. The ideal fabric has no bill and no bar.
    """
    with rc_context(STYLE):
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
    with rc_context(STYLE):
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
        legend_beside(panel)
    return figure
