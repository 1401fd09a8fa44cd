"""Repetitions as one case: median, confidence interval, and the difference of two cases with its interval. Pure.

Intervals are Student's t for the mean, and Welch's for the difference of two means, at 95 %. They hold for each case by
itself; of twenty true "no difference" about one is called a difference.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.outcome import Outcome

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Case:
    """All repetitions of one collective on one fabric under one condition; at least one."""

    outcomes: tuple[Outcome, ...]

    @property
    def first(self) -> Outcome:
        """The first repetition, for what all have in common."""
        return self.outcomes[0]

    @property
    def durations_s(self) -> tuple[float, ...]:
        """Emulated completion times of the repetitions that were complete."""
        return tuple(outcome.duration_s for outcome in self.outcomes if outcome.duration_s is not None)

    @property
    def real_durations_s(self) -> tuple[float, ...]:
        """The same in seconds of the real machine."""
        return tuple(outcome.real_duration_s for outcome in self.outcomes if outcome.real_duration_s is not None)

    @property
    def lost(self) -> int:
        """Repetitions that were not complete."""
        return len(self.outcomes) - len(self.durations_s)

    @property
    def status(self) -> str:
        """Status of the whole: complete only if every repetition is, else the status of the first that is not."""
        return next((outcome.status for outcome in self.outcomes if outcome.duration_s is None), "complete")


def cases(outcomes: Sequence[Outcome]) -> tuple[Case, ...]:
    """The outcomes as cases, in order of first appearance."""
    found: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault((outcome.fabric, outcome.collective, outcome.condition), []).append(outcome)
    return tuple(Case(tuple(repetitions)) for repetitions in found.values())


def median(values: Sequence[float | None]) -> float | None:
    """Median of the values that are there; None without any."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Student's interval of the mean; None below two values."""
    if len(values) < 2:
        return None
    from scipy import stats  # slow to import, and only needed with repetitions

    mean, spread = statistics.fmean(values), statistics.stdev(values)
    if spread == 0:
        return Interval(mean, mean)
    low, high = stats.t.interval(CONFIDENCE, len(values) - 1, loc=mean, scale=spread / math.sqrt(len(values)))
    return Interval(float(low), float(high))


def difference_interval(values: Sequence[float], base: Sequence[float]) -> Interval | None:
    """Welch's interval of mean(values) - mean(base); None where either has below two values."""
    if len(values) < 2 or len(base) < 2:
        return None
    from scipy import stats

    if statistics.pstdev(values) == 0 and statistics.pstdev(base) == 0:
        gap = statistics.fmean(values) - statistics.fmean(base)
        return Interval(gap, gap)
    found = stats.ttest_ind(values, base, equal_var=False).confidence_interval(CONFIDENCE)
    return Interval(float(found.low), float(found.high))
