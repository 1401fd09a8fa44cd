"""Completion times side by side."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.figures.style import BLACK, GREY, RAIL_COLOURS, STYLE, VERMILLION, YELLOW
from experiments.outcome import HEALTHY, Outcome
from experiments.statistics import CONFIDENCE, Case, cases, mean_interval, median


def completion_figure(outcomes: Sequence[Outcome]) -> Figure:
    """Completion times side by side: per collective one bar per fabric and condition, with the expected value.

    A bar is the median over repetitions, its whisker the confidence interval of the mean.
    """
    with rc_context(STYLE):
        collectives = list(dict.fromkeys(outcome.collective for outcome in outcomes))
        fabrics = list(dict.fromkeys(outcome.fabric for outcome in outcomes))
        conditions = list(dict.fromkeys(outcome.condition for outcome in outcomes))
        bars = len(fabrics) * len(conditions)
        figure = Figure(figsize=(max(8.0, 1.6 + 0.95 * (bars + 0.8) * len(collectives)), 5.6), layout="constrained")
        panel = figure.subplots()
        found = cases(outcomes)
        highest = max((_top(case) for case in found), default=0.0) or 1.0
        step = 0.84 / bars
        for case in found:
            first = case.first
            bar = fabrics.index(first.fabric) * len(conditions) + conditions.index(first.condition)
            x = collectives.index(first.collective) + (bar - (bars - 1) / 2) * step
            colour = RAIL_COLOURS[fabrics.index(first.fabric) % len(RAIL_COLOURS)]
            failed = first.condition != HEALTHY
            duration_s = median(case.durations_s)
            if duration_s is None:
                panel.text(x, highest * 0.01, case.status, rotation=90, ha="center", va="bottom", color=VERMILLION,
                           fontweight="bold")  # fmt: skip
                continue
            panel.bar(x, duration_s, step * 0.9, color="white" if failed else colour, edgecolor=colour,
                      hatch="///" if failed else "", linewidth=1.5)  # fmt: skip
            interval = mean_interval(case.durations_s)
            if interval is not None:
                panel.plot([x, x], [interval.low, interval.high], color=BLACK, linewidth=2, marker="_", markersize=9)
            text = f"{duration_s:#.3g}" + (f"\n{case.lost} lost" if case.lost else "")
            panel.text(x, _top(case) + highest * 0.03, text, ha="center", va="bottom", fontsize=11)
            if first.predicted_s is not None:
                panel.plot([x], [first.predicted_s], marker="D", markersize=7, color=BLACK, markerfacecolor=YELLOW)
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
        if any(len(case.durations_s) > 1 for case in found):
            label = f"{CONFIDENCE:.0%} interval"
            handles.append(Line2D([], [], color=BLACK, linewidth=2, marker="_", markersize=9, label=label))
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


def _top(case: Case) -> float:
    """The highest that is drawn of a case."""
    interval = mean_interval(case.durations_s)
    drawn = (median(case.durations_s), case.first.predicted_s, interval.high if interval else None)
    return max((value for value in drawn if value is not None), default=0.0)
