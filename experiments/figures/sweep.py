"""How the completion time depends on what was swept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures.style import RAIL_COLOURS, RAIL_DASHES, STYLE, VERMILLION, legend_beside
from experiments.outcome import HEALTHY
from experiments.statistics import Case, Interval, mean_interval, median

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


@dataclass(frozen=True)
class SweptCase:
    """What one collective did on one fabric, under one condition, in one case of a sweep."""

    settings: tuple[tuple[str, Any], ...]
    case: Case


def sweep_figure(swept: Sequence[SweptCase], title: str) -> Figure:
    """Sensitivity lines: completion time in the real machine's time over the first swept key, one panel a collective.

    A line is a fabric under a condition, and one value of each other key. Whiskers are confidence intervals over
    repetitions; what has no completion time is a cross on the axis. ``swept`` is not empty.
    """
    key = swept[0].settings[0][0]
    values = list(dict.fromkeys(one.settings[0][1] for one in swept))
    is_number = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    collectives = list(dict.fromkeys(one.case.first.collective for one in swept))
    with rc_context(STYLE):
        figure = Figure(figsize=(11.5, 1.4 + 3.6 * len(collectives)), layout="constrained")
        panels = figure.subplots(len(collectives), 1, sharex=True, squeeze=False)[:, 0]
        figure.suptitle(title, fontsize=15, fontweight="bold")
        for panel, collective in zip(panels, collectives, strict=True):
            of_it = [one for one in swept if one.case.first.collective == collective]
            labels = list(dict.fromkeys(_label(one) for one in of_it))
            for index, label in enumerate(labels):
                line = [one for one in of_it if _label(one) == label]
                xs = [one.settings[0][1] if is_number else values.index(one.settings[0][1]) for one in line]
                _draw(panel, xs, [one.case for one in line], label, index)
            panel.set_title(collective, loc="left", fontsize=13)
            panel.set_ylabel("completion time\n(ms of the real machine)")
            panel.set_ylim(bottom=0)
            panel.grid(alpha=0.3)
            legend_beside(panel)
        if is_number and min(values) > 0 and max(values) / min(values) >= 8:
            panels[-1].set_xscale("log", base=2)
        ticks = sorted(values) if is_number else range(len(values))
        panels[-1].set_xticks(list(ticks), [str(value) for value in (sorted(values) if is_number else values)])
        panels[-1].minorticks_off()
        panels[-1].set_xlabel(key)
    return figure


def _label(one: SweptCase) -> str:
    first = one.case.first
    others = [f"{key} = {value}" for key, value in one.settings[1:]]
    return "\n".join([first.fabric + ("" if first.condition == HEALTHY else ", with a failure"), *others])


def _draw(panel: Axes, xs: Sequence[float], found: Sequence[Case], label: str, index: int) -> None:
    colour = RAIL_COLOURS[index % len(RAIL_COLOURS)]
    points = sorted((x, 1000 * real_s) for x, case in zip(xs, found, strict=True)
                    if (real_s := median(case.real_durations_s)) is not None)  # fmt: skip
    panel.plot(
        [x for x, _ in points], [ms for _, ms in points], color=colour, linestyle=RAIL_DASHES[index % len(RAIL_DASHES)],
        marker=_MARKERS[index % len(_MARKERS)], markersize=8, linewidth=2, label=label,
    )  # fmt: skip
    for x, case in zip(xs, found, strict=True):
        interval: Interval | None = mean_interval(case.real_durations_s)
        if interval is not None:
            panel.plot([x, x], [1000 * interval.low, 1000 * interval.high], color=colour, linewidth=2)
        if not case.durations_s:
            panel.plot(x, 0, marker="X", markersize=11, color=VERMILLION, clip_on=False, linestyle="", zorder=4,
                       label="no completion time")  # fmt: skip
