"""Lines over a setting, beside the ranges that were published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib import rc_context
from matplotlib.figure import Figure

from experiments.figures.style import GREY, RAIL_COLOURS, RAIL_DASHES, SKY, STYLE, legend_beside

Line = Sequence[tuple[float, float]]
"""(setting, measured value) by rising setting."""


def lines_figure(
    title: str, x_label: str, y_label: str, lines: Mapping[str, Line], bands: Mapping[str, tuple[float, float]]
) -> Figure:
    """One line for each name of ``lines``, one band for each of ``bands``; settings are on a logarithmic axis."""
    with rc_context(STYLE):
        figure = Figure(figsize=(11.0, 5.4), layout="constrained")
        panel = figure.subplots()
        for index, (name, (low, high)) in enumerate(bands.items()):
            panel.axhspan(low, high, color=(GREY, SKY)[index % 2], alpha=0.22, linewidth=0, label=name)
        for index, (name, line) in enumerate(lines.items()):
            panel.plot(
                [x for x, _ in line], [y for _, y in line], label=name, linewidth=2.2, marker="os^Dv"[index % 5],
                color=RAIL_COLOURS[index % len(RAIL_COLOURS)], linestyle=RAIL_DASHES[index % len(RAIL_DASHES)],
                markersize=7, clip_on=False,
            )  # fmt: skip
        settings = sorted({x for line in lines.values() for x, _ in line})
        panel.set_xscale("log", base=2)
        panel.set_xticks(settings, [f"{x:g}" for x in settings])
        panel.minorticks_off()
        panel.set_ylim(bottom=0)
        panel.set_xlabel(x_label)
        panel.set_ylabel(y_label)
        panel.grid(alpha=0.3)
        figure.suptitle(title, fontsize=15, fontweight="bold")
        legend_beside(panel)
    return figure
