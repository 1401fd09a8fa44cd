"""A comparison as rows of a table, with what a reader must know of it."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.compare import Comparison, Measured
from experiments.statistics import CONFIDENCE
from experiments.tables import percent
from experiments.units import duration_text, size_text

HEADINGS = ("collective, size", "condition", "result", "fabric", "runs", "median", "interval of the mean", "difference",
            "verdict")  # fmt: skip


def comparison_rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """For every case one row of the first result, then one for each other."""
    rows = []
    shown: set[tuple[str, ...]] = set()
    for one in sorted(comparisons, key=lambda one: _order(comparisons, one)):
        what = (f"{one.collective}, {size_text(one.size_bytes)}", one.condition)
        key = (*what, one.base.side, one.base.fabric)
        if key not in shown:
            shown.add(key)
            rows.append((*what, *_measured(one.base), "", ""))
        rows.append(("", "", *_measured(one.other), _difference(one), one.reason or one.verdict))
    return rows


def comparison_notes(comparisons: Sequence[Comparison]) -> list[str]:
    """What a reader of the rows must know."""
    notes = [
        "Times are those of the real machine. difference: mean over the first result's mean, with its interval.",
        f"Intervals are at {CONFIDENCE:.0%} (Student's t, Welch's for differences), each by itself; 'no difference' "
        "means that the interval of the difference holds 0.",
    ]
    sides = [side for one in comparisons for side in (one.base, one.other)]
    if any(side.backend == "simulator" for side in sides):
        notes.append("The simulator has no noise: one run of it is taken as exact.")
    notes += dict.fromkeys(one.remark for one in comparisons if one.remark)
    unfaithful = dict.fromkeys(f"{one.collective} in {side.side}" for one in comparisons
                               for side in (one.base, one.other) if not side.faithful)  # fmt: skip
    if unfaithful:
        notes.append(f"Marked unfaithful: {', '.join(unfaithful)}.")
    return notes


def _order(comparisons: Sequence[Comparison], one: Comparison) -> int:
    """Comparisons of the same case stand together, in the order of the first result."""
    keys = [(other.collective, other.condition, other.base.fabric) for other in comparisons]
    return keys.index((one.collective, one.condition, one.base.fabric))


def _measured(side: Measured) -> tuple[str, ...]:
    runs = str(side.repetitions) + (f", {side.lost} lost" if side.lost else "")
    middle = side.status if side.median_s is None else duration_text(side.median_s)
    interval = side.interval_s
    spread = f"{duration_text(interval.low)} to {duration_text(interval.high)}" if interval else "-"
    return side.side, side.fabric, runs, middle, spread


def _difference(one: Comparison) -> str:
    if one.difference is None:
        return "-"
    text = percent(one.difference)
    if one.interval is not None and one.interval.low != one.interval.high:
        text += f" ({percent(one.interval.low)} to {percent(one.interval.high)})"
    return text
