"""Prediction against measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.figures.style import BLACK, GREY, RAIL_COLOURS, STYLE, VERMILLION
from experiments.outcome import HEALTHY, Outcome
from experiments.statistics import Interval, cases, mean_interval, median

GOOD_SHARE = 0.10
"""The band that is drawn: measured within this share of the prediction."""
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


@dataclass(frozen=True)
class Point:
    """A case: its fabric, collective and condition, and the times in emulated seconds; None where one is missing.

    ``interval`` is the confidence interval of the measured time over repetitions.
    """

    fabric: str
    collective: str
    condition: str
    predicted_s: float | None
    measured_s: float | None
    status: str
    interval: Interval | None = None


def prediction_figure(outcomes: Sequence[Outcome]) -> Figure:
    """:func:`points_figure` of the outcomes of a run, with confidence intervals over repetitions."""
    return points_figure(
        [
            Point(case.first.fabric, case.first.collective, case.first.condition, case.first.predicted_s,
                  median(case.durations_s), case.status, mean_interval(case.durations_s))
            for case in cases(outcomes)
        ]
    )  # fmt: skip


def points_figure(found: Sequence[Point]) -> Figure:
    """Measured over predicted completion time: one point a case, the line is where both are the same.

    Colour is the fabric, shape the collective, hollow are runs with a failure. Whiskers are confidence intervals over
    repetitions. Cases without a measured or predicted time are named below the panel.
    """
    fabrics = list(dict.fromkeys(case.fabric for case in found))
    collectives = list(dict.fromkeys(case.collective for case in found))
    points = []
    missing = []
    for case in found:
        if case.measured_s is None or case.predicted_s is None:
            missing.append(f"{case.collective} on {case.fabric}, {case.condition}: {case.status}")
        else:
            points.append((case, case.predicted_s, case.measured_s))
    with rc_context(STYLE):
        figure = Figure(figsize=(10.5, 7.0), layout="constrained")
        panel = figure.subplots()
        values = [value for _, predicted_s, measured_s in points for value in (predicted_s, measured_s)] or [1.0]
        is_wide = max(values) > 20 * min(values)
        low, high = (min(values) / 1.5 if is_wide else 0.0), max(values) * (1.5 if is_wide else 1.08)
        if is_wide:
            panel.set_xscale("log")
            panel.set_yscale("log")
        line = [low, high]
        panel.fill_between(
            line, [value * (1 - GOOD_SHARE) for value in line], [value * (1 + GOOD_SHARE) for value in line],
            color=GREY, alpha=0.18, linewidth=0,
        )  # fmt: skip
        panel.plot(line, line, color=BLACK, linewidth=1.2)
        for case, predicted_s, measured_s in points:
            colour = RAIL_COLOURS[fabrics.index(case.fabric) % len(RAIL_COLOURS)]
            if case.interval is not None:
                panel.plot([predicted_s] * 2, [case.interval.low, case.interval.high], color=colour, linewidth=1.6)
            panel.plot(
                predicted_s, measured_s, markersize=10, markeredgecolor=colour, markeredgewidth=2, linestyle="",
                marker=_MARKERS[collectives.index(case.collective) % len(_MARKERS)],
                markerfacecolor=colour if case.condition == HEALTHY else "white", zorder=3,
            )  # fmt: skip
        panel.set_xlim(low, high)
        panel.set_ylim(low, high)
        panel.set_aspect("equal")
        panel.set_xlabel("predicted completion time (emulated s)")
        panel.set_ylabel("measured completion time (emulated s)")
        panel.grid(alpha=0.3)
        figure.suptitle("Prediction (fluid model) against measurement", fontsize=15, fontweight="bold")
        handles: list[Line2D | Patch] = [
            Line2D([], [], marker="o", linestyle="", markersize=10, label=fabric,
                   color=RAIL_COLOURS[index % len(RAIL_COLOURS)])
            for index, fabric in enumerate(fabrics)
        ]  # fmt: skip
        handles += [
            Line2D([], [], marker=_MARKERS[index % len(_MARKERS)], linestyle="", markersize=10, color=GREY, label=name)
            for index, name in enumerate(collectives)
        ]
        if any(case.condition != HEALTHY for case in found):
            handles.append(Line2D([], [], marker="o", linestyle="", markersize=10, markerfacecolor="white",
                                  markeredgecolor=GREY, markeredgewidth=2, label="with a failure"))  # fmt: skip
        handles += [
            Line2D([], [], color=BLACK, linewidth=1.2, label="measured = predicted"),
            Patch(facecolor=GREY, alpha=0.18, label=f"within {GOOD_SHARE:.0%}"),
        ]
        panel.legend(handles=handles, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
        if missing:
            figure.supxlabel("\n".join(missing[:4]), fontsize=11, color=VERMILLION)
    return figure
