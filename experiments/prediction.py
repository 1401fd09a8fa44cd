"""Prediction against measurement: the same schedule on the fluid model and on live hosts, case by case. Pure."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from controller.policy import RoutingPolicy
from experiments.figures.prediction import Point
from experiments.outcome import completion_s
from experiments.units import size_text
from simulator.fluid import simulate
from simulator.paths import Router, busiest_link
from simulator.routes import controller_router
from topologies.builders import build, preset_spec
from topologies.errors import RailbedError
from topologies.model import NO_FAILURES, Fabric, FabricKind, LinkKind
from topologies.scale import Scale, default_scale
from workloads.algorithms import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    DIRECT,
    GATHER,
    HIERARCHICAL,
    RAIL_FIRST,
    REDUCE,
    REDUCE_SCATTER,
    RING,
    SCATTER,
    TREE,
    TWO_PHASE,
)
from workloads.collectives import collective_on
from workloads.failures import LinkFailure
from workloads.records import RunRecord
from workloads.schedule import Schedule

FORMAT, VERSION = "railbed-prediction", 1
PRESET, DOMAINS, RAILS = "dgx-h100", 4, 4
KINDS = (FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED, FabricKind.SPINE_LEAF)
SEED = 1
FAILS_AT = 0.3
"""A failure comes at this share of the predicted healthy time, and stays."""

WITHIN = 0.10
"""A prediction is good if the measurement is within this share of it."""

HEALTHY, NIC, SWITCH, NVLINK, SPINE = "healthy", "NIC link", "switch of a rail", "NVLink", "leaf-spine link"
CONDITIONS = (HEALTHY, NIC, SWITCH, NVLINK, SPINE)

_MIB = 1 << 20
_COLLECTIVES = (
    (ALL_REDUCE, RING, "all", 100 * _MIB),
    (ALL_REDUCE, RING, "rails", 120 * _MIB),
    (ALL_REDUCE, TREE, "all", 100 * _MIB),
    (ALL_REDUCE, HIERARCHICAL, "all", 360 * _MIB),
    (ALL_REDUCE, DIRECT, "all", 120 * _MIB),
    (ALL_GATHER, RING, "all", 200 * _MIB),
    (ALL_GATHER, DIRECT, "all", 240 * _MIB),
    (REDUCE_SCATTER, RING, "all", 200 * _MIB),
    (REDUCE_SCATTER, DIRECT, "all", 240 * _MIB),
    (BROADCAST, RING, "all", 200 * _MIB),
    (REDUCE, RING, "all", 200 * _MIB),
    (ALL_TO_ALL, DIRECT, "all", 600 * _MIB),
    (ALL_TO_ALL, TWO_PHASE, "all", 240 * _MIB),
    (ALL_TO_ALL, RAIL_FIRST, "all", 240 * _MIB),
    (GATHER, DIRECT, "all", 160 * _MIB),
    (SCATTER, DIRECT, "all", 160 * _MIB),
)
"""Collective, algorithm, groups and size: every algorithm of every collective, each for some seconds."""

_WITH_FAILURES = ((ALL_REDUCE, RING, "rails"), (ALL_TO_ALL, DIRECT, "all"), (ALL_TO_ALL, TWO_PHASE, "all"))


@dataclass(frozen=True)
class Case:
    """One collective of ``size_bytes`` on one fabric of 16 GPUs, under one condition."""

    kind: FabricKind
    collective: str
    algorithm: str
    group: str
    size_bytes: int
    condition: str = HEALTHY

    @property
    def text(self) -> str:
        """What runs, to read."""
        where = " per rail" if self.group == "rails" else ""
        return f"{self.collective}{where}, {self.algorithm}, {size_text(self.size_bytes)}"


@dataclass(frozen=True)
class Prepared:
    """A case ready to run on either back end."""

    case: Case
    fabric: Fabric
    scale: Scale
    schedule: Schedule
    failures: tuple[LinkFailure, ...]
    router: Router


@dataclass(frozen=True)
class Step:
    """All phases of one name (``reduce-scatter on the rail``): their predicted and emulated seconds together."""

    operation: str
    predicted_s: float
    measured_s: float


@dataclass(frozen=True)
class Comparison:
    """Predicted and emulated completion time of a case, in emulated seconds; None unless every transfer was made.

    ``steps`` say in which phases a difference came about.
    """

    case: Case
    engine: str
    predicted_s: float
    measured_s: float | None
    faithful: bool
    steps: tuple[Step, ...] = ()
    failed: tuple[str, ...] = ()
    reason: str = ""
    runs: int = 1

    @property
    def difference(self) -> float | None:
        """Measured over predicted, minus 1."""
        return None if self.measured_s is None else self.measured_s / self.predicted_s - 1

    @property
    def good(self) -> bool:
        """Whether the measurement is there and within :data:`WITHIN`."""
        return self.difference is not None and abs(self.difference) <= WITHIN


def cases(kinds: Iterable[FabricKind] = KINDS, conditions: Iterable[str] = CONDITIONS) -> list[Case]:
    """All cases: everything healthy, some collectives with every failure that the fabric can have and they notice.

    A spine-leaf fabric by server has no switch of a rail; a failure of a link that a collective doesn't use is left
    out.
    """
    wanted = set(conditions)
    found = []
    for kind in kinds:
        healthy = [Case(kind, *entry) for entry in _COLLECTIVES]
        found += healthy if HEALTHY in wanted else []
        for condition in CONDITIONS[1:]:
            for case in healthy:
                if condition in wanted and (case.collective, case.algorithm, case.group) in _WITH_FAILURES:
                    failing = replace(case, condition=condition)
                    if _links(failing, *made(failing)):
                        found.append(failing)
    return found


def made(case: Case) -> tuple[Fabric, Schedule, Router]:
    """Fabric, schedule and routes of a case."""
    fabric = build(preset_spec(PRESET, case.kind, DOMAINS, RAILS))
    schedule = collective_on(
        fabric, case.collective, case.group, case.size_bytes, algorithm=case.algorithm, name=case.text, seed=SEED
    )
    return fabric, schedule, controller_router(fabric, RoutingPolicy(seed=SEED))


def _links(case: Case, fabric: Fabric, schedule: Schedule, router: Router) -> list[str]:
    """The links that fail: of GPU d1r1, of the switch of rail 1, or the busiest one between leaf and spine."""
    if case.condition == NIC:
        return [link.id for link in fabric.links_of("s1r1") if link.kind is LinkKind.NIC]
    if case.condition == NVLINK:
        return [link.id for link in fabric.links_of("s1r1") if link.kind is LinkKind.NVLINK]
    if case.condition == SWITCH:
        switch = {FabricKind.RAIL_ONLY: "rail1", FabricKind.RAIL_OPTIMIZED: "leaf1"}.get(case.kind)
        return [] if switch is None else sorted(link.id for link in fabric.links_of(switch))
    try:
        return [busiest_link(fabric, schedule, router(NO_FAILURES), LinkKind.FABRIC)]
    except RailbedError:
        return []  # no link between leaf and spine, or none in use


def prepare(case: Case, start_s: float) -> Prepared:
    """Fabric, schedule and failures of a case; ``start_s`` is what the back end needs to start a transfer."""
    fabric, schedule, router = made(case)
    scale = default_scale(fabric)
    healthy = Prepared(case, fabric, scale, schedule, (), router)
    if case.condition == HEALTHY:
        return healthy
    ends = [transfer.end_s or 0.0 for transfer in _simulated(healthy, start_s).transfers]
    failures = tuple(LinkFailure(link_id, FAILS_AT * max(ends)) for link_id in _links(case, fabric, schedule, router))
    return replace(healthy, failures=failures)


def _simulated(prepared: Prepared, start_s: float) -> RunRecord:
    return simulate(
        prepared.fabric, prepared.schedule, prepared.router, scale=prepared.scale, failures=prepared.failures,
        start_delay_s=start_s, seed=SEED,
    )  # fmt: skip


def predicted(prepared: Prepared, start_s: float) -> RunRecord:
    """The fluid model's run; raises RailbedError if a failure leaves a transfer without a path."""
    found = _simulated(prepared, start_s)
    if not found.complete:
        raise RailbedError(f"{prepared.case.text}: the {prepared.case.condition} leaves transfers without a path")
    return found


def compared(prepared: Prepared, engine: str, expected: RunRecord, record: RunRecord) -> Comparison:
    """The prediction beside what was measured."""
    reasons = sorted({made.reason for made in record.transfers if made.reason})
    failed = tuple(sorted({failure.link_id for failure in prepared.failures}))
    measured = _seconds_by_operation(record) if record.complete else {}
    steps = tuple(
        Step(operation, seconds, measured[operation])
        for operation, seconds in _seconds_by_operation(expected).items()
        if operation in measured
    )
    expected_s = completion_s(expected)
    assert expected_s is not None, "predicted() gives complete runs only"
    return Comparison(
        prepared.case,
        engine,
        expected_s,
        completion_s(record),
        record.faithful,
        steps,
        failed,
        "; ".join(reasons)[:200],
    )


def _seconds_by_operation(record: RunRecord) -> dict[str, float]:
    by_id = {made.transfer_id: made for made in record.transfers}
    seconds: dict[str, float] = {}
    for phase in record.schedule.phases():
        operation = phase[0].tag.operation
        slowest_s = max(by_id[transfer.id].duration_s or 0.0 for transfer in phase)
        seconds[operation] = seconds.get(operation, 0.0) + slowest_s
    return seconds


def to_json(comparisons: Sequence[Comparison]) -> str:
    """All comparisons as one JSON text that :func:`from_json` reads back, a line for each."""
    lines = [
        json.dumps({**asdict(one), "case": {**asdict(one.case), "kind": one.case.kind.value}}) for one in comparisons
    ]
    return f'{{"format": "{FORMAT}", "version": {VERSION}, "comparisons": [\n' + ",\n".join(lines) + "\n]}\n"


def from_json(text: str) -> list[Comparison]:
    """Inverse of :func:`to_json`."""
    found = []
    for entry in json.loads(text)["comparisons"]:
        case: dict[str, Any] = {**entry["case"], "kind": FabricKind(entry["case"]["kind"])}
        steps = tuple(Step(**step) for step in entry["steps"])
        found.append(Comparison(**{**entry, "case": Case(**case), "failed": tuple(entry["failed"]), "steps": steps}))
    return found


def medians(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """One comparison for each case and engine: the run with the median time, and the number of runs.

    A run that was not made in full counts as the longest; of an even number the slower of the middle ones is taken.
    """
    by_case: dict[tuple[Case, str], list[Comparison]] = {}
    for one in comparisons:
        by_case.setdefault((one.case, one.engine), []).append(one)
    found = []
    for runs in by_case.values():
        ordered = sorted(runs, key=lambda one: float("inf") if one.measured_s is None else one.measured_s)
        found.append(replace(ordered[len(ordered) // 2], runs=len(ordered)))
    return found


def in_words(comparisons: Sequence[Comparison]) -> str:
    """How many predictions hold, and by how much they miss."""
    differences = [one.difference for one in comparisons if one.difference is not None]
    if not differences:
        return "Nothing was measured."
    low, high = min(differences), max(differences)
    return (
        f"{sum(one.good for one in comparisons)} of {len(comparisons)} measurements are within {WITHIN:.0%} of the "
        f"prediction; the differences go from {low:+.1%} to {high:+.1%}, their median is "
        f"{statistics.median(differences):+.1%}."
    )


def points(comparisons: Sequence[Comparison]) -> list[Point]:
    """The comparisons as points of the figure, a fabric and engine as one colour."""
    several = len({one.engine for one in comparisons}) > 1
    return [
        Point(
            f"{one.case.kind.value}, {one.engine}" if several else one.case.kind.value,
            one.case.collective, one.case.condition, one.predicted_s, one.measured_s, one.reason,
        )
        for one in comparisons
    ]  # fmt: skip


def markdown(comparisons: Sequence[Comparison]) -> str:
    """One table for each fabric and engine, in the order of the cases."""
    parts = []
    for kind, engine in dict.fromkeys((one.case.kind, one.engine) for one in comparisons):
        own = [one for one in comparisons if (one.case.kind, one.engine) == (kind, engine)]
        lines = [
            f"### {kind.value}, {engine}\n\n{in_words(own)}\n",
            "| collective, algorithm, size | fails | predicted (s) | emulated (s) | difference |",
            "| --- | --- | --- | --- | --- |",
        ]
        for one in own:
            fails = "-" if one.case.condition == HEALTHY else f"{one.case.condition} ({_short(one.failed)})"
            measured = "failed" if one.measured_s is None else f"{one.measured_s:.2f}"
            difference = one.reason if one.difference is None else f"{one.difference:+.1%}"
            mark = "" if one.good else " **over**"
            mark += "" if one.faithful else " *overloaded*"
            lines.append(f"| {one.case.text} | {fails} | {one.predicted_s:.2f} | {measured} | {difference}{mark} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _short(links: Sequence[str]) -> str:
    return links[0] if len(links) == 1 else f"{len(links)} links"
