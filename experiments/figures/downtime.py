"""What failures cost a job: stacked bars of the parts of its downtime."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib import rc_context
from matplotlib.figure import Figure

from experiments.figures.style import BLUE, GREEN, ORANGE, PURPLE, STYLE

_COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
_HATCHES = ("", "//", "..", "xx")
_LEAST_LABELLED = 0.065
"""Share of a panel's width from which on a part has room for its number."""


def downtime_figure(shares: Mapping[str, Mapping[str, float]]) -> Figure:
    """Bars by case of the parts' shares in percent of the job's time, and the same as percent of the downtime."""
    with rc_context(STYLE):
        height = 1.9 + 1.1 * len(shares)
        figure = Figure(figsize=(11.5, height), layout="constrained")
        time_panel, own_panel = figure.subplots(1, 2, sharey=True)
        names = list(shares)
        totals = {name: sum(parts.values()) for name, parts in shares.items()}
        longest = max(totals.values(), default=0.0) or 1.0
        for panel, scale_of in (
            (time_panel, dict.fromkeys(names, 1.0)),
            (own_panel, {name: 100 / total if total else 0.0 for name, total in totals.items()}),
        ):
            width = longest if panel is time_panel else 100.0
            left = dict.fromkeys(names, 0.0)
            for index, part in enumerate(next(iter(shares.values()))):
                for row, name in enumerate(names):
                    value = shares[name][part] * scale_of[name]
                    panel.barh(row, value, 0.62, left=left[name], color=_COLOURS[index], hatch=_HATCHES[index],
                               edgecolor="white", linewidth=0.6, label=part if row == 0 else None)  # fmt: skip
                    if value > _LEAST_LABELLED * width:
                        text = f"{value:.2f}" if panel is time_panel else f"{value:.0f}"
                        panel.text(left[name] + value / 2, row, text, ha="center", va="center", fontsize=11,
                                   bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})  # fmt: skip
                    left[name] += value
            panel.grid(axis="x", alpha=0.3)
            panel.set_axisbelow(True)
        for row, name in enumerate(names):
            time_panel.text(totals[name] + longest * 0.015, row, f"{totals[name]:.2f} %", va="center", fontsize=12,
                            fontweight="bold")  # fmt: skip
        time_panel.set_yticks(range(len(names)), names)
        time_panel.invert_yaxis()
        time_panel.set_xlim(0, longest * 1.2)
        own_panel.set_xlim(0, 100)
        time_panel.set_xlabel("downtime (% of the job's time)")
        own_panel.set_xlabel("share of a part (% of the downtime)")
        for panel in (time_panel, own_panel):
            panel.tick_params(axis="y", length=0)
        handles, labels = time_panel.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        figure.suptitle("What failures cost a training job", fontsize=15, fontweight="bold")
    return figure
