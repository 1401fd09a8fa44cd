"""What planning does to a fabric: load of the links to the spines, and what the jobs get of the ideal."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.figures.style import BLACK, GREY, ORANGE, RAIL_COLOURS, STYLE, VERMILLION, YELLOW
from experiments.outcome import FAILURE, HEALTHY
from experiments.planned_runs import PlannedShares, UplinkLoad

MOST_PANELS = 12


def uplink_figure(loads: Sequence[UplinkLoad]) -> Figure:
    """Bytes that every link carried towards the spines, a panel a run, beside what an even load would be."""
    with rc_context(STYLE):
        shown = loads[:MOST_PANELS]
        columns = min(2, len(shown))
        rows = -(-len(shown) // columns)
        figure = Figure(figsize=(11, 1.2 + 2.5 * rows), layout="constrained")
        panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for panel, load in zip(panels, shown, strict=False):
            colour = ORANGE if load.condition == FAILURE else RAIL_COLOURS[0]
            megabytes = [carried / 1e6 for carried in load.carried_bytes]
            places = range(len(megabytes))
            dead = [link_id in load.failed for link_id in load.link_ids]
            panel.bar(places, megabytes, 0.8, color=["white" if one else colour for one in dead],
                      edgecolor=[VERMILLION if one else colour for one in dead],
                      hatch=["///" if one else "" for one in dead])  # fmt: skip
            panel.axhline(load.mean_bytes / 1e6, color=BLACK, linestyle=(0, (4, 2)), linewidth=1.5)
            condition = "" if load.condition == HEALTHY else ", a link fails"
            panel.set_title(f"{load.label}{condition}: fullest {load.fullest:.2f} of the mean", loc="left", fontsize=12)
            panel.set_xticks([])
            panel.set_xlabel(f"{len(megabytes)} links, leaf by leaf")
            panel.grid(axis="y", alpha=0.3)
            panel.set_axisbelow(True)
        for panel in panels[len(shown) :]:
            panel.set_visible(False)
        figure.supylabel("MB sent towards the spines (emulated)")
        handles: list[Patch | Line2D] = [Patch(facecolor=RAIL_COLOURS[0], label="nothing fails")]
        if any(load.condition == FAILURE for load in shown):
            handles.append(Patch(facecolor=ORANGE, label="with the failure"))
            handles.append(Patch(facecolor="white", edgecolor=VERMILLION, hatch="///", label="the link that fails"))
        handles.append(Line2D([], [], color=BLACK, linestyle=(0, (4, 2)), label="mean of the links that do not fail"))
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


def shares_figure(shares: Sequence[PlannedShares]) -> Figure:
    """Bus bandwidth as a share of the ideal: a bar a run, mean over its jobs, whisker from slowest to fastest.

    A diamond is the optimum of a linear program for the same demands; dotted lines are published numbers.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(max(7.5, 2.2 + 1.25 * len(shares)), 5.8), layout="constrained")
        panel = figure.subplots()
        for x, one in enumerate(shares):
            failed = one.condition == FAILURE
            colour = RAIL_COLOURS[list(dict.fromkeys(each.mode for each in shares)).index(one.mode)]
            panel.bar(x, one.mean, 0.7, color="white" if failed else colour, edgecolor=colour,
                      hatch="///" if failed else "", linewidth=1.5)  # fmt: skip
            panel.plot([x, x], [one.slowest, one.fastest], color=BLACK, linewidth=2, marker="_", markersize=12)
            panel.plot([x], [one.optimum], marker="D", markersize=8, color=BLACK, markerfacecolor=YELLOW, linestyle="")
            panel.text(
                x, max(one.fastest, one.optimum) + 0.025, f"{one.mean:.2f}", ha="center", va="bottom", fontsize=11
            )
            if one.reference is not None:
                (low, high), text = one.reference
                panel.fill_between([x - 0.45, x + 0.45], low - 0.004, high + 0.004, color=GREY, alpha=0.45, zorder=3)
                panel.text(x, 0.02, text, ha="center", va="bottom", fontsize=9, rotation=90, color=BLACK,
                           bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1.5})  # fmt: skip
        names = [one.label.replace(" ", "\n", 1) for one in shares]
        failing = ["\nlink fails" if one.condition == FAILURE else "" for one in shares]
        panel.set_xticks(range(len(shares)), [name + more for name, more in zip(names, failing, strict=True)])
        panel.tick_params(axis="x", length=0, labelsize=10)
        panel.set_ylim(0, 1.15)
        panel.set_ylabel("bus bandwidth over the NIC's rate")
        panel.grid(axis="y", alpha=0.3)
        panel.set_axisbelow(True)
        handles: list[Patch | Line2D] = [
            Patch(facecolor=RAIL_COLOURS[number], label=mode)
            for number, mode in enumerate(dict.fromkeys(one.mode for one in shares))
        ]
        if any(one.condition == FAILURE for one in shares):
            handles.append(Patch(facecolor="white", edgecolor=GREY, hatch="///", label="with the failure"))
        handles += [
            Line2D([], [], color=BLACK, linewidth=2, marker="_", markersize=10, label="slowest to fastest job"),
            Line2D([], [], marker="D", linestyle="", color=BLACK, markerfacecolor=YELLOW, label="optimum"),
        ]
        if any(one.reference is not None for one in shares):
            handles.append(Patch(facecolor=GREY, alpha=0.45, label="published"))
        figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)), frameon=False)
    return figure
