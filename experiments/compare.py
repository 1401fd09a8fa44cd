"""Results side by side: medians, intervals, and whether there is a difference at all. Pure.

Times are those of the real machine, so that runs at different scales can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from experiments.errors import UnlikeResultsError
from experiments.outcome import Outcome
from experiments.statistics import Case, Interval, cases, difference_interval, mean_interval, median

NO_DIFFERENCE = "no difference"
SLOWER = "slower"
FASTER = "faster"
UNKNOWN = "unknown"

EXACT_SHARE = 1e-9
"""Two results without noise (simulated, one run each) are the same if they differ by less than this share."""


@dataclass(frozen=True)
class Side:
    """One result to compare: how it is called, its outcomes, and the failures that its scenario plans, to read.

    ``failures`` is None where they are not known.
    """

    name: str
    outcomes: tuple[Outcome, ...]
    failures: tuple[str, ...] | None = None

    @property
    def fabrics(self) -> tuple[str, ...]:
        """The fabrics in it."""
        return tuple(dict.fromkeys(outcome.fabric for outcome in self.outcomes))

    def only(self, fabric: str) -> Side:
        """The part of it that ran on one fabric; raises UnlikeResultsError if that is not in it."""
        if fabric not in self.fabrics:
            listed = ", ".join(self.fabrics) or "none"
            raise UnlikeResultsError(f"{self.name} has no fabric '{fabric}'; its fabrics are: {listed}")
        kept = tuple(outcome for outcome in self.outcomes if outcome.fabric == fabric)
        return Side(f"{self.name}:{fabric}", kept, self.failures)


@dataclass(frozen=True)
class Measured:
    """One case in one result: real seconds over its repetitions, None where no repetition was complete."""

    side: str
    fabric: str
    backend: str
    status: str
    repetitions: int
    lost: int
    median_s: float | None
    interval_s: Interval | None
    faithful: bool


@dataclass(frozen=True)
class Comparison:
    """A case in a result beside the same case in the first result.

    ``difference`` is the mean over the first one's mean, minus 1; ``interval`` its confidence interval. ``verdict`` is
    ``slower``, ``faster``, ``no difference`` (the interval holds 0) or ``unknown``, for which ``reason`` is given.
    ``remark`` says so where the two results do not plan the same failures; else it is empty.
    """

    collective: str
    condition: str
    size_bytes: int
    base: Measured
    other: Measured
    difference: float | None
    interval: Interval | None
    verdict: str
    reason: str
    remark: str

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return asdict(self)


def compare(sides: Sequence[Side]) -> tuple[Comparison, ...]:
    """Every case of the first side beside the same case of each other side.

    Cases are the same if collective, condition and fabric are; where each side has one fabric only, fabrics of
    different names are compared. Raises UnlikeResultsError for sides without a case in common, and for cases of one
    name that are not alike (sizes, ranks, operation).
    """
    if len(sides) < 2:
        raise UnlikeResultsError("a comparison needs at least two results")
    across = all(len(side.fabrics) == 1 for side in sides)
    found = []
    for other in sides[1:]:
        theirs = {_key(case, across): case for case in cases(other.outcomes)}
        pairs = [
            (case, theirs[_key(case, across)]) for case in cases(sides[0].outcomes) if _key(case, across) in theirs
        ]
        if not pairs:
            raise UnlikeResultsError(
                f"{sides[0].name} and {other.name} have nothing in common: {_told(sides[0])}; {_told(other)}. "
                "RESULT:FABRIC chooses one fabric of a result"
            )
        for base, case in pairs:
            _check_alike(sides[0], base.first, other, case.first)
            found.append(_compared(sides[0], base, other, case))
    return tuple(found)


def _key(case: Case, across: bool) -> tuple[str, ...]:
    first = case.first
    return (first.collective, first.condition) if across else (first.collective, first.condition, first.fabric)


def _remark(base: Side, other: Side) -> str:
    """That two results do not plan the same failures, so that more than the fabric or the version is compared."""
    if base.failures is None or other.failures is None or base.failures == other.failures:
        return ""
    planned = "; ".join(f"{side.name} has {' and '.join(side.failures or ()) or 'none'}" for side in (base, other))
    return f"The failures are not the same: {planned}."


def _told(side: Side) -> str:
    collectives = dict.fromkeys(outcome.collective for outcome in side.outcomes)
    return f"{side.name} has {', '.join(collectives) or 'nothing'} on {', '.join(side.fabrics) or 'no fabric'}"


def _check_alike(side: Side, base: Outcome, other_side: Side, other: Outcome) -> None:
    for what, one, two in (
        ("the operation", base.operation, other.operation),
        ("size_bytes", base.size_bytes, other.size_bytes),
        ("ranks", base.ranks, other.ranks),
        ("group_size", base.group_size, other.group_size),
    ):
        if one != two:
            raise UnlikeResultsError(
                f"{base.collective} is not the same in both: {what} is {one} in {side.name} and {two} in "
                f"{other_side.name}; compare results of the same workload"
            )


def _measured(side: Side, case: Case) -> Measured:
    seconds = case.real_durations_s
    return Measured(
        side=side.name,
        fabric=case.first.fabric,
        backend=case.first.backend,
        status=case.status,
        repetitions=len(case.outcomes),
        lost=case.lost,
        median_s=median(seconds),
        interval_s=mean_interval(seconds),
        faithful=all(outcome.faithful for outcome in case.outcomes),
    )


def _compared(side: Side, base: Case, other_side: Side, other: Case) -> Comparison:
    ours, theirs = base.real_durations_s, other.real_durations_s
    difference, interval, verdict, reason = None, None, UNKNOWN, ""
    if not ours or not theirs:
        reason = f"no complete run in {other_side.name if ours else side.name}"
    else:
        mean = sum(ours) / len(ours)
        difference = sum(theirs) / len(theirs) / mean - 1
        gap = _gap(base, other)
        interval = Interval(gap.low / mean, gap.high / mean) if gap else None
        if interval is None:
            reason = "an interval needs two repetitions of each"
        elif 0 in interval or abs(difference) < EXACT_SHARE:
            verdict = NO_DIFFERENCE
        else:
            verdict = SLOWER if difference > 0 else FASTER
    return Comparison(
        base.first.collective, base.first.condition, base.first.size_bytes, _measured(side, base),
        _measured(other_side, other), difference, interval, verdict, reason, _remark(side, other_side),
    )  # fmt: skip


def _gap(base: Case, other: Case) -> Interval | None:
    """The interval of other - base in real seconds; what the simulator says is taken as exact."""
    ours, theirs = base.real_durations_s, other.real_durations_s
    if _is_exact(base) and _is_exact(other):
        return Interval(theirs[0] - ours[0], theirs[0] - ours[0])
    if _is_exact(base):
        found = mean_interval(theirs)
        return Interval(found.low - ours[0], found.high - ours[0]) if found else None
    if _is_exact(other):
        found = mean_interval(ours)
        return Interval(theirs[0] - found.high, theirs[0] - found.low) if found else None
    return difference_interval(theirs, ours)


def _is_exact(case: Case) -> bool:
    """Whether one run says everything: the simulator has no noise."""
    return case.first.backend == "simulator"
