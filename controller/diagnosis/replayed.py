"""The telemetry of a replayed schedule: what its ranks would tell, from what the engine reports of its transfers."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from controller.diagnosis.telemetry import Communicator, Message, RankOperation, Telemetry
from topologies.scale import Scale
from workloads.readiness import Readiness
from workloads.records import RunRecord, TransferRecord
from workloads.schedule import Computation, Schedule, Transfer
from workloads.telemetry import CollectiveCall, calls

REPORT_S = 0.2
"""How often the engines report."""

Part = tuple[str, int, int]
"""What one rank does in one operation: communicator, sequence number, rank."""


@dataclass(frozen=True)
class Ended:
    """A transfer that is over; times are None where it never started or never ended."""

    id: int
    start_s: float | None
    end_s: float | None
    received_bytes: float


@dataclass(frozen=True)
class Report:
    """What an engine tells at ``t_s``: transfers that are over, and what those on their way have brought, by id."""

    t_s: float
    ended: tuple[Ended, ...]
    active: Mapping[int, float]


class Teller:
    """Makes telemetry of the reports of one run of a schedule.

    A message is posted when all that its sender waits for is done, whether or not its receiver is ready, and starts (as
    far as is known before it ends) when its receiver is ready too. A rank enters an operation when its own computing
    before it is done or, without computing, when its first message is posted.
    """

    def __init__(self, schedule: Schedule, scale: Scale) -> None:
        self._schedule, self._scale = schedule, scale
        self._ranks: dict[str, tuple[int, ...]] = {}
        self._call_of: dict[int, tuple[str, int]] = {}
        self._calls: dict[tuple[str, int], CollectiveCall] = {}
        self._number(schedule)
        computer = {one.id: one.rank for one in schedule.computations}
        self._posting: Readiness[Transfer] = Readiness(
            (one, tuple(at for at in one.after if computer.get(at, one.src) == one.src)) for one in schedule.transfers
        )
        self._starting: Readiness[Transfer] = Readiness((one, one.after) for one in schedule.transfers)
        self._computing: Readiness[Computation] = Readiness((one, one.after) for one in schedule.computations)
        self._due: list[tuple[float, int]] = []
        self._enters_after: dict[int, list[Part]] = {}
        self._to_go: dict[Part, int] = {}
        for one in schedule.transfers:
            for part in self._parts(one):
                self._to_go[part] = self._to_go.get(part, 0) + 1
                own = [at for at in one.after if computer.get(at) == part[2]]
                if len(own) == 1:  # a rank that stops in the middle waits for a second one then
                    self._enters_after.setdefault(own[0], []).append(part)
        self._enters_by_computing = {part for parts in self._enters_after.values() for part in parts}
        self._posted_s: dict[int, float] = {}
        self._startable_s: dict[int, float] = {}
        self._entered: dict[Part, RankOperation] = {}
        self._news: dict[Part, RankOperation] = {}
        self._last_end_s: dict[Part, float] = {}

    def begin(self) -> list[Telemetry]:
        """The communicators, and what is posted and entered at once."""
        posted = [self._post(one, 0.0) for one in self._posting.at_once()]
        for transfer in self._starting.at_once():
            self._startable(transfer, 0.0)
        for computation in self._computing.at_once():
            self._compute(computation, 0.0)
        told = [self._message(one, None, None, 0.0, 0.0) for one in posted]
        return [*self.communicators(), *told, *self._take_news()]

    def communicators(self) -> list[Telemetry]:
        """The communicators of the schedule."""
        return [Communicator(name, ranks) for name, ranks in self._ranks.items()]

    def report(self, report: Report) -> list[Telemetry]:
        """What is new with a report."""
        posted = self._computed(report.t_s)
        for one in report.ended:
            if one.end_s is not None:
                posted += self._end(one.id, one.end_s)
        posted += self._computed(report.t_s)
        over = {one.id for one in report.ended}
        told: list[Telemetry] = [
            self._message(one.id, one.start_s, one.end_s, one.received_bytes, report.t_s) for one in report.ended
        ]
        told += [
            self._message(one, self._startable_s.get(one, report.t_s), None, received, report.t_s)
            for one, received in report.active.items()
            if one not in over
        ]
        told += [
            self._message(one, None, None, 0.0, report.t_s)
            for one in posted
            if one not in over and one not in report.active
        ]
        return told + self._take_news()

    def _number(self, schedule: Schedule) -> None:
        """Name the communicator of every call, and number its calls."""
        whole: dict[str, set[int]] = {}
        for one in schedule.transfers:
            whole.setdefault(one.tag.group, set()).update((one.src, one.dst))
        numbers: dict[str, int] = {}
        for call in calls(schedule):
            ranks = {rank for one in call.transfers for rank in (one.src, one.dst)}
            name = call.group
            if ranks != whole[name]:
                name += f":{','.join(map(str, sorted(ranks)))}"
            self._ranks[name] = tuple(sorted(ranks))
            numbers[name] = numbers.get(name, -1) + 1
            self._calls[name, numbers[name]] = call
            for one in call.transfers:
                self._call_of[one.id] = name, numbers[name]

    def _parts(self, transfer: Transfer) -> tuple[Part, Part]:
        name, sequence = self._call_of[transfer.id]
        return (name, sequence, transfer.src), (name, sequence, transfer.dst)

    def _post(self, transfer: Transfer, ready_s: float) -> int:
        posted_s = ready_s + self._scale.emulated_s(transfer.delay_s)
        self._posted_s[transfer.id] = posted_s
        for part in self._parts(transfer):
            if part not in self._enters_by_computing:
                self._enter(part, posted_s)
        return transfer.id

    def _startable(self, transfer: Transfer, ready_s: float) -> None:
        self._startable_s[transfer.id] = ready_s + self._scale.emulated_s(transfer.delay_s)

    def _compute(self, computation: Computation, ready_s: float) -> None:
        over_s = ready_s + self._scale.emulated_s(computation.duration_s)
        heapq.heappush(self._due, (over_s, computation.id))

    def _computed(self, now_s: float) -> list[int]:
        """End the computations that are over by now; ids of the messages that are posted by that."""
        posted = []
        while self._due and self._due[0][0] <= now_s:
            over_s, item = heapq.heappop(self._due)
            for part in self._enters_after.get(item, ()):
                self._enter(part, over_s)
            posted += self._end(item, over_s)
        return posted

    def _end(self, item: int, end_s: float) -> list[int]:
        """An item is over; ids of the messages that are posted by that."""
        self._startable_s.pop(item, None)
        for transfer, ready_s in self._starting.end(item, end_s):
            self._startable(transfer, ready_s)
        for computation, ready_s in self._computing.end(item, end_s):
            self._compute(computation, ready_s)
        posted = [self._post(transfer, ready_s) for transfer, ready_s in self._posting.end(item, end_s)]
        for part in self._parts(self._schedule.by_id[item]) if item in self._call_of else ():
            self._to_go[part] -= 1
            self._last_end_s[part] = max(end_s, self._last_end_s.get(part, end_s))
            if not self._to_go[part] and part in self._entered:
                self._news[part] = replace(self._entered[part], left_s=self._last_end_s.pop(part))
        return posted

    def _enter(self, part: Part, entered_s: float) -> None:
        if part in self._entered:
            return
        name, sequence, rank = part
        call = self._calls[name, sequence]
        size_bytes = self._scale.emulated_bytes(call.size_bytes)
        self._entered[part] = self._news[part] = RankOperation(
            name, sequence, rank, call.collective, call.algorithm, size_bytes, entered_s
        )

    def _message(
        self, transfer_id: int, start_s: float | None, end_s: float | None, received_bytes: float, t_s: float
    ) -> Message:
        transfer = self._schedule.by_id[transfer_id]
        name, sequence = self._call_of[transfer_id]
        size_bytes = self._scale.emulated_bytes(transfer.size_bytes)
        posted_s = self._posted_s.get(transfer_id, start_s)
        return Message(
            transfer_id, name, sequence, transfer.src, transfer.dst, 0, size_bytes, posted_s, start_s, end_s,
            received_bytes, t_s,
        )  # fmt: skip

    def _take_news(self) -> list[RankOperation]:
        news, self._news = self._news, {}
        return list(news.values())


def reports(record: RunRecord, until_s: float, every_s: float = REPORT_S) -> Iterator[Report]:
    """What the engine of a run told, or would have told, every ``every_s`` until ``until_s``.

    Of a transfer on its way the newest progress in the record holds; without any, it is taken to move evenly.
    """
    transfers = [one for one in record.transfers if one.start_s is not None]
    ending = sorted((one for one in transfers if one.end_s is not None), key=lambda one: one.end_s or 0.0)
    starting = sorted(transfers, key=lambda one: one.start_s or 0.0)
    progress = sorted(record.progress, key=lambda one: one.t_s)
    received: dict[int, float] = {}
    active: dict[int, TransferRecord] = {}
    ends = starts = tells = 0
    for tick in range(1, math.ceil(until_s / every_s) + 1):
        now_s = tick * every_s
        while starts < len(starting) and (starting[starts].start_s or 0.0) <= now_s:
            active[starting[starts].transfer_id] = starting[starts]
            starts += 1
        while tells < len(progress) and progress[tells].t_s <= now_s + _ROUNDING_S:
            received[progress[tells].transfer_id] = progress[tells].received_bytes
            tells += 1
        over = []
        while ends < len(ending) and (ending[ends].end_s or 0.0) <= now_s:
            one = ending[ends]
            over.append(Ended(one.transfer_id, one.start_s, one.end_s, one.received_bytes))
            active.pop(one.transfer_id, None)
            ends += 1
        yield Report(
            now_s, tuple(over), {key: received.get(key, _evenly(one, now_s)) for key, one in active.items()}
        )  # fmt: skip


_ROUNDING_S = 1e-6


def _evenly(one: TransferRecord, now_s: float) -> float:
    if one.end_s is None or one.start_s is None:
        return one.received_bytes
    return one.received_bytes * (now_s - one.start_s) / (one.end_s - one.start_s)
