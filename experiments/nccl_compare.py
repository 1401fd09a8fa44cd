"""Runs beside a log of nccl-tests: bus bandwidth measured on real GPUs, emulated or simulated, and expected. Pure."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.errors import CannotCompareError
from experiments.outcome import HEALTHY, Outcome
from workloads.importers.nccl_tests import NcclTestsLog, Row

_GBPS_OF_GBYTES_PER_S = 8.0


@dataclass(frozen=True)
class ComparedSize:
    """One size of a collective on one fabric; bus bandwidths are decimal GB/s of the real machine.

    ``run_gbytes_per_s`` is what the run's back end found (None: it was not made in full), ``expected_gbytes_per_s`` the
    fluid model's figure, ``log_gbytes_per_s`` the log's at that size, between its rows by a straight line over the
    logarithm of the size; None outside its sizes. ``ratio`` is the run's over the log's.
    """

    fabric: str
    collective: str
    backend: str
    size_bytes: int
    ranks: int
    run_gbytes_per_s: float | None
    expected_gbytes_per_s: float | None
    log_gbytes_per_s: float | None

    @property
    def ratio(self) -> float | None:
        """The run's bandwidth over the log's; None where one of them is missing."""
        if self.run_gbytes_per_s is None or not self.log_gbytes_per_s:
            return None
        return self.run_gbytes_per_s / self.log_gbytes_per_s


@dataclass(frozen=True)
class Comparison:
    """Sizes by fabric and size, the log's whole curve, and what a reader must know before believing it."""

    sizes: tuple[ComparedSize, ...]
    curve: tuple[tuple[int, float], ...]
    notes: tuple[str, ...]


def compare_with_log(outcomes: Sequence[Outcome], log: NcclTestsLog, name: str) -> Comparison:
    """The healthy runs of the log's collective beside the log called ``name``.

    Raises CannotCompareError where no run is of a collective that the log can be of.
    """
    fits = [outcome for outcome in outcomes if outcome.condition == HEALTHY and _may_be(outcome.operation, log)]
    if not fits:
        ran = ", ".join(sorted({outcome.operation for outcome in outcomes})) or "nothing"
        raise CannotCompareError(
            f"{name} is of {log.collective or 'an unknown collective'}, but the result holds {ran} without a run of it "
            "on a healthy fabric: run the same collective first"
        )
    curve = log_curve(log)
    sizes = sorted((_compared(outcome, curve) for outcome in fits), key=lambda one: (one.fabric, one.size_bytes))
    return Comparison(tuple(sizes), curve, tuple(_notes(fits, sizes, log, name)))


def log_curve(log: NcclTestsLog) -> tuple[tuple[int, float], ...]:
    """(size in bytes, bus bandwidth in GB/s) of every row above size 0, by size; out of place where both were measured.

    Of several rows of a size the last one counts.
    """
    found = {row.size_bytes: _busbw(row) for row in log.rows if row.size_bytes > 0 and row.timings}
    return tuple(sorted(found.items()))


def at_size(curve: Sequence[tuple[int, float]], size_bytes: int) -> float | None:
    """The curve's bandwidth at a size, by a straight line over the logarithm of the size; None outside its sizes."""
    sizes = [size for size, _ in curve]
    place = bisect.bisect_left(sizes, size_bytes)
    if place == len(curve):
        return None
    above, high = curve[place]
    if above == size_bytes:
        return high
    if place == 0:
        return None
    below, low = curve[place - 1]
    share = math.log(size_bytes / below) / math.log(above / below)
    return low + share * (high - low)


def _busbw(row: Row) -> float:
    return row.timings[0].busbw_gbytes_per_s


def _may_be(operation: str, log: NcclTestsLog) -> bool:
    """Whether the log can be of that collective: it tells only the class of its bandwidth factor."""
    if not log.collective:
        return True
    words = {"all-gather": "gather", "reduce-scatter": "scatter"}
    return words.get(operation, operation) in log.collective.replace(",", "").split()


def _compared(outcome: Outcome, curve: Sequence[tuple[int, float]]) -> ComparedSize:
    run = outcome.busbw_gbps
    expected = None
    if run is not None and outcome.duration_s and outcome.predicted_s:
        expected = run * outcome.duration_s / outcome.predicted_s
    return ComparedSize(
        outcome.fabric,
        outcome.collective,
        outcome.backend,
        outcome.size_bytes,
        outcome.group_size,
        None if run is None else run / _GBPS_OF_GBYTES_PER_S,
        None if expected is None else expected / _GBPS_OF_GBYTES_PER_S,
        at_size(curve, outcome.size_bytes),
    )


def _notes(fits: Sequence[Outcome], sizes: Sequence[ComparedSize], log: NcclTestsLog, name: str) -> list[str]:
    notes = [f"busbw: {text}" for text in dict.fromkeys(outcome.busbw_formula for outcome in fits)]
    other = sorted({outcome.group_size for outcome in fits if log.ranks and outcome.group_size != log.ranks})
    if other:
        notes.append(
            f"{name} is of {log.ranks} ranks, the runs of {', '.join(map(str, other))}: bus bandwidth takes the number "
            "of ranks out of a flat fabric only"
        )
    if len({outcome.operation for outcome in fits}) > 1:
        notes.append(f"{name} does not tell which of these collectives it is of")
    outside = sum(one.log_gbytes_per_s is None for one in sizes)
    if outside:
        notes.append(f"{outside} of {len(sizes)} sizes are outside the sizes of {name}")
    if any(outcome.backend == "emulator" and not outcome.faithful for outcome in fits):
        notes.append("some runs were made on an overloaded machine and are not faithful")
    notes.append("Railbed models links, not the start-up of NCCL's kernels: small messages are slower on real GPUs")
    return notes
