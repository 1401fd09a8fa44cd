"""Results held against the expected values of a scenario. Pure."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from experiments.outcome import HEALTHY, Outcome
from experiments.scenario import Scenario
from experiments.scenario.expectations import SLOPE, ExpectSection, Versus
from topologies.model import Fabric

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Verdict:
    """One expectation and what came out: ``measured`` is None where no run has the value.

    ``interval`` is the 95 % confidence interval over the repetitions, None for fewer than two.
    """

    text: str
    expected: tuple[float | None, float | None]
    measured: float | None
    interval: tuple[float, float] | None
    ok: bool
    source: str

    @property
    def sentence(self) -> str:
        """The verdict to read."""
        found = "nothing was measured" if self.measured is None else f"measured {self.measured:.4g}"
        if self.interval is not None:
            found += f" ({self.interval[0]:.4g} to {self.interval[1]:.4g})"
        return f"{'as expected' if self.ok else 'NOT as expected'}: {self.text}; {found}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)


def verdicts(scenario: Scenario, outcomes: Sequence[Outcome]) -> tuple[Verdict, ...]:
    """What became of every expectation that holds on the scenario's back end."""
    fabrics = scenario.build_fabrics()
    return tuple(
        _judged(expected, outcomes, fabrics)
        for expected in scenario.expect
        if expected.backend in (None, scenario.backend)
    )


def _judged(expected: ExpectSection, outcomes: Sequence[Outcome], fabrics: Mapping[str, Fabric]) -> Verdict:
    if expected.value == SLOPE:
        samples = _times_by_ratio(expected, outcomes, fabrics)
        measured, interval = _slope(samples)
    else:
        values = _values(expected, outcomes)
        measured = statistics.median(values) if values else None
        interval = _interval(values)
    low, high = expected.bounds
    ok = measured is not None and (low is None or measured >= low) and (high is None or measured <= high)
    return Verdict(expected.text, expected.bounds, measured, interval, ok, expected.source)


def _values(expected: ExpectSection, outcomes: Sequence[Outcome]) -> list[float]:
    """The value in every repetition; against the median of the other run where there is one."""
    mine = _of(expected.value, _chosen(outcomes, expected.fabric, expected.workload, expected.of_condition))
    if expected.versus is None:
        return mine
    versus: Versus = expected.versus
    others = _of(
        expected.value,
        _chosen(
            outcomes,
            versus.fabric or expected.fabric,
            versus.workload or expected.workload,
            versus.condition or expected.of_condition,
        ),
    )
    base = statistics.median(others) if others else 0.0
    return [value / base - 1 for value in mine] if base else []


def _chosen(outcomes: Sequence[Outcome], fabric: str | None, workload: str | None, condition: str) -> list[Outcome]:
    return [
        one
        for one in outcomes
        if fabric in (None, one.fabric) and workload in (None, one.collective) and one.condition == condition
    ]


def _of(value: str, outcomes: Sequence[Outcome]) -> list[float]:
    """A value of every outcome that has it."""
    if value == "complete":
        return [statistics.mean(one.status == "complete" for one in outcomes)] if outcomes else []
    found = (_one(value, outcome) for outcome in outcomes)
    return [number for number in found if number is not None]


def _one(value: str, outcome: Outcome) -> float | None:
    if value == "achieved":
        return outcome.achieved.median_share
    if value == "diagnosed":
        return None if outcome.diagnosed is None else float(outcome.diagnosed)
    if value == "collision_factor":
        return _ratio(outcome.duration_s, outcome.collision_free_s)
    if value == "prediction_error":
        ratio = _ratio(outcome.duration_s, outcome.predicted_s)
        return None if ratio is None else ratio - 1
    if value == "rerouted":
        return statistics.mean(outage.rerouted_after_s is not None for outage in outcome.outages)
    if value == "rerouted_after_s":
        return outcome.outages[0].rerouted_after_s if outcome.outages else None
    number = getattr(outcome, value)
    return None if number is None else float(number)


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


def _interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Bootstrap interval of the median; seeded, so that it is the same every time."""
    if len(values) < 2:
        return None
    rng = random.Random(len(values))
    medians = [statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES)]
    return _middle(medians)


def _times_by_ratio(
    expected: ExpectSection, outcomes: Sequence[Outcome], fabrics: Mapping[str, Fabric]
) -> dict[float, list[float]]:
    """Completion times by C_S/C_F of the fabric."""
    times: dict[float, list[float]] = {}
    for label in expected.fabrics or ():
        spec = fabrics[label].spec
        chosen = _chosen(outcomes, label, expected.workload, expected.condition or HEALTHY)
        found = _of("duration_s", chosen)
        if found:
            times.setdefault(spec.nic_rate_mbps / spec.nvlink_rate_mbps, []).extend(found)
    return times


def _slope(samples: Mapping[float, Sequence[float]]) -> tuple[float | None, tuple[float, float] | None]:
    """Slope over intercept of a line through the times, and its bootstrap interval over the repetitions.

    The intercept is the time with an infinitely fast NVLink, so this is the overhead for each unit of C_S/C_F.
    """
    if len(samples) < 2:
        return None, None
    measured = _fitted(samples)
    if min(len(times) for times in samples.values()) < 2:
        return measured, None
    rng = random.Random(len(samples))
    again = [
        _fitted({ratio: rng.choices(times, k=len(times)) for ratio, times in samples.items()}) for _ in range(RESAMPLES)
    ]
    return measured, _middle(again)


def _fitted(samples: Mapping[float, Sequence[float]]) -> float:
    points = [(ratio, time) for ratio, times in samples.items() for time in times]
    slope, intercept = np.polyfit([ratio for ratio, _ in points], [time for _, time in points], 1)
    return float(slope / intercept)


def _middle(numbers: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(numbers)
    cut = int((1 - CONFIDENCE) / 2 * len(ordered))
    return ordered[cut], ordered[-1 - cut]


def unexpected(found: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Those that are not as expected."""
    return tuple(verdict for verdict in found if not verdict.ok)
