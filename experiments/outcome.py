"""What a run means: completion time, bandwidths, achieved against nominal, and what a failure did. Pure.

Durations are emulated seconds unless the name says real; bandwidths are those of the real machine.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from topologies.builders import build
from topologies.model import Fabric
from workloads.bandwidth import BUS_FACTORS, bandwidth
from workloads.failures import FailureKind, LinkFailure
from workloads.records import EventKind, RunRecord, TransferStatus

HEALTHY = "healthy"
FAILURE = "failure"

NOT_MADE = "not made"
"""Status of a run that the back end could not make; the problem says why."""

JUDGED_FROM_S = 1.0
"""Shorter transfers than this (nominal, emulated) are not judged: start-up would dominate what is measured."""


EARLY_S = 0.5
"""A failure that the back end timed up to this much before its planned moment is still that failure."""


@dataclass(frozen=True)
class Achieved:
    """Achieved rate of transfers as a share of the nominal max-min rate; None where no transfer could be judged."""

    median_share: float | None
    worst_share: float | None
    judged: int
    too_short: int


@dataclass(frozen=True)
class LinkTraffic:
    """Bytes (emulated, frames, both directions) on a link around an outage; None where no sample covers that time.

    ``before_mbps`` and ``during_mbps`` are mean rates.
    """

    link_id: str
    before_bytes: float
    during_bytes: float | None
    after_bytes: float | None
    before_mbps: float | None
    during_mbps: float | None


@dataclass(frozen=True)
class Outage:
    """A failed link: when, what it carried around it, and the links that carried its traffic meanwhile.

    ``what`` is wrong with it, to read (``down``, ``swallowing packets``). ``rerouted_after_s`` is the time from the
    link's failure to new routes in force, None if they never were.
    """

    link_id: str
    down_s: float
    up_s: float | None
    rerouted_after_s: float | None
    traffic: LinkTraffic
    detour: tuple[LinkTraffic, ...]
    what: str = "down"


@dataclass(frozen=True)
class Outcome:
    """One collective on one fabric under one condition (``healthy`` or ``failure``).

    ``duration_s`` is the sum over phases of the slowest transfer's duration at its receiver, None unless all transfers
    are complete; ``predicted_s`` is the fluid model's, ``collision_free_s`` the same if no flows shared a link between
    leaf and spine (None on fabrics without spines and for runs with failures). ``slowdown`` is the duration over the
    healthy one of the same repetition minus 1, None for the healthy run itself; ``expected_slowdown`` is the same of
    the predictions. ``verdicts`` are what a diagnosis told, ``diagnosed`` whether it was right: the part that failed
    was told and no other, nothing in a healthy run; None where none was asked for. ``repetition`` counts from 1.
    ``status`` is that of the transfers, or ``not made``.
    """

    fabric: str
    collective: str
    operation: str
    condition: str
    backend: str
    algorithm: str
    size_bytes: int
    size_meaning: str
    ranks: int
    group_size: int
    status: str
    problems: tuple[str, ...]
    duration_s: float | None
    real_duration_s: float | None
    predicted_s: float | None
    collision_free_s: float | None
    algbw_gbps: float | None
    busbw_gbps: float | None
    busbw_formula: str
    achieved: Achieved
    slowdown: float | None
    expected_slowdown: float | None
    outages: tuple[Outage, ...]
    longest_gap_s: float | None
    faithful: bool
    notes: tuple[str, ...]
    repetition: int = 1
    verdicts: tuple[str, ...] = ()
    diagnosed: bool | None = None

    @property
    def was_made(self) -> bool:
        """Whether the back end made the run at all, well or not."""
        return self.status != NOT_MADE

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return asdict(self)


def completion_s(record: RunRecord) -> float | None:
    """Emulated completion time: over all phases, the sum of the slowest transfer's duration at its receiver.

    What the back end needs between phases (starting programs, the barrier itself) is left out. A schedule that is no
    sequence of phases takes from its first byte to its last; one with computing from the start of the run to the end
    of its last transfer or computation. None unless all transfers are complete.
    """
    if not record.complete:
        return None
    by_id = {transfer.transfer_id: transfer for transfer in record.transfers}
    if record.schedule.is_phased:
        return sum(
            max(by_id[transfer.id].duration_s or 0.0 for transfer in phase) for phase in record.schedule.phases()
        )
    ends = [transfer.end_s for transfer in record.transfers if transfer.end_s is not None]
    if record.schedule.has_computing:
        return max([*ends, record.last_computation_s or 0.0])
    return max(ends) - min(transfer.start_s for transfer in record.transfers if transfer.start_s is not None)


def achieved(record: RunRecord, nominal: RunRecord) -> Achieved:
    """Achieved over nominal mean rate of every complete transfer that nominally takes at least 1 s.

    Transfers that are not complete count as share 0, so that they can't make a run look better.
    """
    nominal_by_id = {transfer.transfer_id: transfer for transfer in nominal.transfers}
    shares: list[float] = []
    too_short = 0
    for transfer in record.transfers:
        expected = nominal_by_id[transfer.transfer_id]
        if expected.duration_s is None:
            continue
        if expected.duration_s < JUDGED_FROM_S:
            too_short += 1
        elif transfer.status is TransferStatus.COMPLETE and transfer.duration_s:
            # Rates, not durations: a back end may round sizes up to whole blocks.
            nominal_rate = expected.received_bytes / expected.duration_s
            shares.append(transfer.received_bytes / transfer.duration_s / nominal_rate)
        else:
            shares.append(0.0)
    if not shares:
        return Achieved(None, None, 0, too_short)
    return Achieved(statistics.median(shares), min(shares), len(shares), too_short)


def outages(record: RunRecord, detours: Mapping[str, Sequence[str]]) -> tuple[Outage, ...]:
    """What happened around every failed link, from the run's events and counters.

    ``detours`` names, for each failed link, the links that take its traffic over.
    """
    return tuple(_outage(record, failure, detours.get(failure.link_id, ())) for failure in record.failures)


def _outage(record: RunRecord, failure: LinkFailure, detour_ids: Sequence[str]) -> Outage:
    link_id, restore_s = failure.link_id, failure.restore_s
    is_down = failure.kind is FailureKind.DOWN
    begins, ends = (EventKind.LINK_DOWN, EventKind.LINK_UP) if is_down else (EventKind.IMPAIRED, EventKind.MENDED)

    def first(kind: EventKind, since_s: float) -> float | None:
        times = [event.t_s for event in record.events
                 if event.kind is kind and link_id in event.subject.split(",") and event.t_s >= since_s]  # fmt: skip
        return min(times, default=None)

    down_s = first(begins, max(0.0, failure.at_s - EARLY_S))
    down_s = failure.at_s if down_s is None else down_s
    up_s = first(ends, down_s)
    end_s = float(record.links.t_s[-1]) if len(record.links.t_s) else 0.0
    if up_s is None and restore_s is not None and restore_s <= end_s:
        up_s = restore_s
    rerouted_s = first(EventKind.REROUTED, down_s)
    if rerouted_s is not None and up_s is not None and rerouted_s >= up_s:
        rerouted_s = None

    def traffic(of_link: str) -> LinkTraffic:
        found = record.links.around_outage(of_link, down_s, up_s)
        outage_s = (end_s if up_s is None else min(up_s, end_s)) - down_s
        during_mbps = None
        if found.during is not None and outage_s > 0:
            during_mbps = found.during * 8 / 1e6 / outage_s
        before_mbps = found.before * 8 / 1e6 / down_s if down_s > 0 else None
        return LinkTraffic(of_link, found.before, found.during, found.after, before_mbps, during_mbps)

    detour = tuple(traffic(other) for other in detour_ids)
    rerouted_after_s = None if rerouted_s is None else rerouted_s - down_s
    return Outage(link_id, down_s, up_s, rerouted_after_s, traffic(link_id), detour, failure.text)


def analyse(
    label: str,
    fabric: Fabric,
    record: RunRecord,
    nominal: RunRecord,
    detours: Mapping[str, Sequence[str]],
    collision_free_s: float | None = None,
) -> Outcome:
    """The outcome of one run, without its slowdown (see :func:`with_slowdown`).

    ``nominal`` is the fluid model's run of the same schedule with the same failures, ``collision_free_s`` its
    completion time if no flows shared a link between leaf and spine.
    """
    schedule = record.schedule
    duration_s = completion_s(record)
    real_s = None if duration_s is None else record.scale.real_s(duration_s)
    of = schedule.collective, schedule.group_size, schedule.size_bytes
    has_bandwidth = schedule.collective in BUS_FACTORS  # an iteration has none
    rates = bandwidth(*of, real_s) if has_bandwidth and real_s else None
    formula = bandwidth(*of, 1.0).formula if has_bandwidth else ""
    return Outcome(
        fabric=label,
        collective=schedule.name,
        operation=schedule.collective,
        condition=FAILURE if record.failures else HEALTHY,
        backend=record.backend,
        algorithm=schedule.algorithm,
        size_bytes=schedule.size_bytes,
        size_meaning=schedule.size_meaning,
        ranks=len(fabric.gpus),
        group_size=schedule.group_size,
        status=_status(record),
        problems=_problems(record),
        duration_s=duration_s,
        real_duration_s=real_s,
        predicted_s=completion_s(nominal),
        collision_free_s=collision_free_s,
        algbw_gbps=rates.algbw_gbps if rates else None,
        busbw_gbps=rates.busbw_gbps if rates else None,
        busbw_formula=formula,
        achieved=achieved(record, nominal),
        slowdown=None,
        expected_slowdown=None,
        outages=outages(record, detours),
        longest_gap_s=record.longest_gap_s,
        faithful=record.faithful,
        notes=record.notes,
    )


def not_made(label: str, nominal: RunRecord, backend: str, reason: str) -> Outcome:
    """The outcome of a run that ``backend`` could not make, for ``reason``; ``nominal`` is what was expected of it."""
    empty = replace(nominal, backend=backend, transfers=(), events=(), longest_gap_s=None, notes=())
    outcome = analyse(label, build(nominal.fabric), empty, nominal, {})
    return replace(
        outcome, status=NOT_MADE, problems=(reason,), outages=(), achieved=Achieved(None, None, 0, 0), faithful=False
    )


def with_slowdown(outcome: Outcome, healthy: Outcome) -> Outcome:
    """``outcome`` with its slowdown against the healthy run of the same collective on the same fabric."""
    return replace(
        outcome,
        slowdown=_excess(outcome.duration_s, healthy.duration_s),
        expected_slowdown=_excess(outcome.predicted_s, healthy.predicted_s),
    )


def _excess(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base - 1


def _status(record: RunRecord) -> str:
    if record.complete:
        return TransferStatus.COMPLETE.value
    if any(transfer.status is TransferStatus.FAILED for transfer in record.transfers):
        return TransferStatus.FAILED.value
    return TransferStatus.INCOMPLETE.value


def _problems(record: RunRecord) -> tuple[str, ...]:
    """The reasons why transfers are not complete, the most frequent first, with their number."""
    reasons = Counter(
        transfer.reason or transfer.status.value
        for transfer in record.transfers
        if transfer.status is not TransferStatus.COMPLETE
    )
    missing = len(record.schedule.transfers) - len(record.transfers)
    if missing > 0:
        reasons["not reported by the back end"] += missing
    return tuple(f"{count} x {reason}" for reason, count in reasons.most_common(5))
