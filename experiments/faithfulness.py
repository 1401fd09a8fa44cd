"""Whether a scale lets the emulator measure what a schedule means: transfers must outlast what a scale can't shrink.

Round trips and queues of the emulated fabric don't get shorter when the rates do. A transfer on the critical path must
last at least 20 unloaded round trips, and move at least 10 times what it can leave waiting in a queue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from emulator.shape import window_bytes
from experiments.plan import PlannedRun
from simulator.routes import controller_router
from topologies.model import NO_FAILURES, LinkKind
from workloads.records import RunRecord, TransferRecord
from workloads.schedule import Computation, Transfer

ROUND_TRIPS = 20
QUEUES = 10

SWITCH_PASS_S = 0.0006
"""Unloaded round-trip time for each switch on the way, there and back together: ping took 1.5 to 2 ms over three
switches and 2.7 ms over five, with 16 GPUs on the userspace datapath of a two-core machine (docs/scale.md)."""


@dataclass(frozen=True)
class Faithfulness:
    """The transfer on the critical path that fares worst. ``time`` is the time factor that would hold.

    ``round_trips`` is its predicted duration over its unloaded round-trip time, ``queues`` its bytes over what a flow
    can leave in a queue of its slowest link (its window: a queue has room for those of eight flows).
    """

    transfer_id: int
    duration_s: float
    round_trips: float
    queues: float
    time: float

    @property
    def holds(self) -> bool:
        """Whether the scale holds."""
        return self.round_trips >= ROUND_TRIPS and self.queues >= QUEUES

    @property
    def sentence(self) -> str:
        """What is wrong and what would hold; empty if all is well."""
        if self.holds:
            return ""
        return (
            f"transfer {self.transfer_id} is on the critical path, lasts {self.duration_s:.3g} s = "
            f"{self.round_trips:.3g} unloaded round trips (at least {ROUND_TRIPS} are needed) and moves "
            f"{self.queues:.3g} queues (at least {QUEUES}): scale.time {self.time:g} would hold"
        )


def critical_path(record: RunRecord) -> list[TransferRecord]:
    """The transfers that the end of a run waited for, the last one first: each waited for the one after it here."""
    made = {one.transfer_id: one for one in record.transfers}
    waits: dict[int, Transfer | Computation] = {**record.schedule.by_id}
    waits.update((one.id, one) for one in record.schedule.computations)
    ended = [one for one in record.transfers if one.end_s is not None]
    if not ended:
        return []
    path = [max(ended, key=lambda one: (one.end_s or 0.0, one.transfer_id))]
    while True:
        before = _transfers_before(waits[path[-1].transfer_id].after, waits)
        found = [made[one] for one in before if made[one].end_s is not None]
        if not found:
            return path
        path.append(max(found, key=lambda one: (one.end_s or 0.0, one.transfer_id)))


def _transfers_before(after: Sequence[int], waits: dict[int, Transfer | Computation]) -> set[int]:
    """The transfers among ``after``, and those that computations among them waited for."""
    found: set[int] = set()
    seen: set[int] = set()
    open_ids = list(after)
    while open_ids:
        one = open_ids.pop()
        if one in seen:
            continue
        seen.add(one)
        item = waits[one]
        if isinstance(item, Computation):
            open_ids.extend(item.after)
        else:
            found.add(one)
    return found


def faithfulness(run: PlannedRun) -> Faithfulness | None:
    """The worst transfer on the critical path of a healthy run; None if nothing is on it."""
    paths = controller_router(run.fabric, run.policy)(NO_FAILURES)
    transfers = run.schedule.by_id
    worst: Faithfulness | None = None
    for made in critical_path(run.predicted):
        transfer = transfers[made.transfer_id]
        links = [run.fabric.link(link_id) for link_id in paths(transfer.src, transfer.dst) or ()]
        rates = [run.scale.emulated_rate_mbps(link.rate_mbps) for link in links if link.kind is not LinkKind.HOST]
        if not rates or not made.duration_s:
            continue
        round_trips = made.duration_s / (SWITCH_PASS_S * (len(rates) + 1))
        queues = made.size_bytes / window_bytes(min(rates))
        short = max(ROUND_TRIPS / round_trips, QUEUES / queues)
        if worst is None or short > worst.time / run.scale.time:
            worst = Faithfulness(made.transfer_id, made.duration_s, round_trips, queues, run.scale.time * short)
    if worst is None or worst.holds:
        return worst
    return Faithfulness(worst.transfer_id, worst.duration_s, worst.round_trips, worst.queues, _rounded_up(worst.time))


def _rounded_up(number: float) -> float:
    """``number`` with two digits, not smaller."""
    step = 10.0 ** (math.floor(math.log10(number)) - 1)
    return math.ceil(number / step) * step
