"""The upper level of a schedule: operations over families of equal groups, from which transfers are made when needed.

One operation stands for the same calls by hundreds of groups, many times in a row, so that a training iteration of
tens of thousands of GPUs is a small object. Totals are taken on this level; transfers are made one after the other.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from workloads.algorithms import BULK, Flows, flows, uneven_flows
from workloads.errors import ScheduleError
from workloads.families import AnyFamily
from workloads.schedule import Computation, Schedule, Tag, Transfer

MAX_TRANSFERS = 5_000_000
"""Transfers up to which a whole schedule is made; it takes 0.3 to 0.5 GB a million."""


@dataclass(frozen=True)
class Call:
    """What every group of a family does at the same time: compute for ``delay_s`` seconds, then one collective.

    ``collective`` empty: it only computes. ``size_bytes`` is in the sense of nccl-tests; an uneven all-to-all has
    ``splits`` in its place, bytes from each member to each. ``local`` is the number of consecutive members that share a
    domain: algorithms with a phase in the domain need it, and rings keep to their rails by it. ``posted``: a position
    that only receives first has its buffer ready, so that the first sends to it wait for their source alone.
    """

    family: AnyFamily
    collective: str = ""
    size_bytes: int = 0
    delay_s: float = 0.0
    algorithm: str | None = None
    local: int = 1
    splits: tuple[tuple[int, ...], ...] = ()
    posted: bool = False

    def flows(self, form: str) -> Flows | None:
        """The flows of one group; None if nothing moves. Raises CollectiveError for what can't be made."""
        if not self.collective or self.family.group_size < 2:
            return None
        if self.splits:
            return uneven_flows(self.splits, self.algorithm, self.local, form)
        return flows(self.collective, self.algorithm, self.family.group_size, self.size_bytes, self.local, form)


@dataclass(frozen=True)
class Operation:
    """Calls in a row, ``repeat`` times over.

    A rank makes its next call once it has left the one before, and its first one once it has left all operations in
    ``after`` that it took part in.
    """

    id: int
    label: str
    calls: tuple[Call, ...]
    after: tuple[int, ...] = ()
    repeat: int = 1


@dataclass(frozen=True)
class FamilyTotal:
    """What the families of one name move with one collective.

    ``calls`` is the number of calls of the family that makes most (a rank may be in several of a name, as in the two
    directions of a pipeline), ``size_bytes`` the largest sum of a family's sizes in the sense of nccl-tests,
    ``sent_bytes`` what all ranks send together.
    """

    family: str
    collective: str
    calls: int
    size_bytes: int
    sent_bytes: int


@dataclass(frozen=True)
class OperationSchedule:
    """Operations of ``ranks`` GPUs, listed after those that they wait for; checked when it is made.

    ``form`` is the form of all collectives, ``bulk`` or ``stepwise``. Raises ScheduleError for unknown or later
    operations in ``after``, ranks that do not exist, and empty operations.
    """

    name: str
    ranks: int
    operations: tuple[Operation, ...] = field(repr=False)
    form: str = BULK
    seed: int = 0

    def __post_init__(self) -> None:
        known: set[int] = set()
        for operation in self.operations:
            where = f"schedule '{self.name}', operation {operation.id} ({operation.label})"
            if operation.id in known:
                raise ScheduleError(f"{where}: this id is used twice; ids must be unique")
            for before in operation.after:
                if before not in known:
                    raise ScheduleError(f"{where}: waits for operation {before}, which is not listed before it")
            known.add(operation.id)
            if not operation.calls or operation.repeat < 1:
                raise ScheduleError(f"{where}: it makes no call; give it calls and repeat at least once")
            for call in operation.calls:
                low, high = call.family.bounds()
                if low < 0 or high >= self.ranks:
                    raise ScheduleError(
                        f"{where}: family '{call.family.name}' has ranks {low} to {high}; "
                        f"the ranks are 0 to {self.ranks - 1}"
                    )
                if not call.delay_s >= 0:
                    raise ScheduleError(f"{where}: delay_s is {call.delay_s}; it must be 0 or more")

    @cached_property
    def _multiplicity(self) -> Counter[Call]:
        """How often every call is made, computing aside."""
        found: Counter[Call] = Counter()
        for operation in self.operations:
            for call in operation.calls:
                found[call] += operation.repeat
        return found

    @property
    def collective(self) -> str:
        """The one collective of all calls, else :data:`ITERATION`."""
        found = {call.collective for call in self._multiplicity if call.collective}
        return found.pop() if len(found) == 1 else ITERATION

    @cached_property
    def transfer_count(self) -> int:
        """Number of transfers, without making any."""
        total = 0
        for call, times in self._multiplicity.items():
            made = call.flows(self.form)
            if made is not None:
                total += len(made.flows) * call.family.group_count * times
        return total

    @property
    def sent_bytes(self) -> int:
        """Real bytes of all transfers."""
        return sum(total.sent_bytes for total in self.totals())

    def totals(self) -> tuple[FamilyTotal, ...]:
        """What is moved, by name of the family and collective, in order of first appearance."""
        calls: dict[tuple[str, str], Counter[AnyFamily]] = {}
        sizes: dict[tuple[str, str], Counter[AnyFamily]] = {}
        sent: Counter[tuple[str, str]] = Counter()
        for call, times in self._multiplicity.items():
            made = call.flows(self.form)
            if made is None:
                continue
            key = call.family.name, call.collective
            size = max(map(sum, call.splits)) if call.splits else call.size_bytes
            calls.setdefault(key, Counter())[call.family] += times
            sizes.setdefault(key, Counter())[call.family] += times * size
            sent[key] += times * call.family.group_count * sum(flow.size_bytes for flow in made.flows)
        return tuple(FamilyTotal(*key, max(calls[key].values()), max(sizes[key].values()), sent[key]) for key in calls)

    def bytes_by_pair(self, names: Iterable[str] | None = None) -> dict[tuple[int, int], int]:
        """Real bytes per ordered pair of ranks, of the families called ``names`` (None: of all)."""
        wanted = None if names is None else set(names)
        edges: dict[AnyFamily, Counter[tuple[int, int]]] = {}
        for call, times in self._multiplicity.items():
            made = call.flows(self.form)
            if made is None or (wanted is not None and call.family.name not in wanted):
                continue
            of_group = edges.setdefault(call.family, Counter())
            for flow in made.flows:
                of_group[flow.src, flow.dst] += flow.size_bytes * times
        pairs: dict[tuple[int, int], int] = {}
        for family, of_group in edges.items():
            for members in family.groups():
                for (src, dst), size in of_group.items():
                    pair = members[src], members[dst]
                    pairs[pair] = pairs.get(pair, 0) + size
        return pairs

    def expand(self) -> Iterator[Transfer | Computation]:
        """All transfers and computations, operation by operation; what is waited for comes first.

        Only what later operations still wait for is kept in memory.
        """
        return _Expansion(self).run()

    def to_schedule(self) -> Schedule:
        """All transfers as one schedule; raises ScheduleError if they are none, or more than MAX_TRANSFERS."""
        if not 0 < self.transfer_count <= MAX_TRANSFERS:
            raise ScheduleError(
                f"'{self.name}' makes {self.transfer_count:,} transfers, but a whole schedule holds "
                f"1 to {MAX_TRANSFERS:,}; use fewer GPUs, micro-batches or layers, or the bulk form"
            )
        transfers: list[Transfer] = []
        computations: list[Computation] = []
        with no_collector():
            for item in self.expand():
                if isinstance(item, Transfer):
                    transfers.append(item)
                else:
                    computations.append(item)
            return Schedule(
                name=self.name,
                collective=self.collective,
                algorithm=f"operations, {self.form}",
                ranks=self.ranks,
                group_size=max(call.family.group_size for call in self._multiplicity),
                size_bytes=sum(total.size_bytes for total in self.totals()),
                size_meaning="sum over the calls of the busiest family of each name, each in the sense of nccl-tests",
                seed=self.seed,
                transfers=tuple(transfers),
                computations=tuple(computations),
            )


ITERATION = "iteration"
"""What a schedule of several collectives is called as a whole."""


@contextmanager
def no_collector() -> Iterator[None]:
    """No garbage collection: millions of new objects without a cycle would be searched for cycles again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


Ids = tuple[int, ...]


class _Expansion:
    def __init__(self, schedule: OperationSchedule) -> None:
        self._schedule = schedule
        self._next_id = 0
        # For each operation that is still waited for, what every rank of it did last.
        self._left: dict[int, dict[int, Ids]] = {}
        self._waiting = Counter(before for operation in schedule.operations for before in operation.after)

    def run(self) -> Iterator[Transfer | Computation]:
        for operation in self._schedule.operations:
            befores = [self._left[before] for before in operation.after]
            front = _Front(befores)
            for _ in range(operation.repeat):
                for call in operation.calls:
                    yield from self._call(call, front, operation.label)
            for before in operation.after:
                self._waiting[before] -= 1
                if not self._waiting[before]:
                    del self._left[before]
            if self._waiting[operation.id]:
                self._left[operation.id] = front.left

    def _call(self, call: Call, front: _Front, label: str) -> Iterator[Transfer | Computation]:
        made = call.flows(self._schedule.form)
        if made is None or not made.flows:
            if call.delay_s:
                for members in call.family.groups():
                    yield from self._compute(members, call.delay_s, front, label)
            return
        delay_s = call.delay_s
        several = call.family.group_count > 1
        for number, members in enumerate(call.family.groups()):
            if delay_s and not made.starts_at_once:
                yield from self._compute(members, delay_s, front, label)
            name = f"{call.family.name}[{number}]" if several else call.family.name
            yield from self._flows(call, made, members, front, delay_s if made.starts_at_once else 0.0, name)

    def _compute(self, members: Sequence[int], delay_s: float, front: _Front, label: str) -> Iterator[Computation]:
        for rank in members:
            yield Computation(self._next_id, rank, delay_s, front.of((rank,)), label)
            front.left[rank] = (self._next_id,)
            self._next_id += 1

    def _flows(
        self, call: Call, made: Flows, members: Sequence[int], front: _Front, delay_s: float, group: str
    ) -> Iterator[Transfer]:
        ids = range(self._next_id, self._next_id + len(made.flows))
        self._next_id = ids.stop
        numbers = list(ids)
        collective = call.collective
        tags: dict[tuple[str, int], Tag] = {}
        # Flows of a phase share what they wait for; looked up by identity, as long tuples are slow to compare.
        afters: dict[int, Ids] = {}
        entered: dict[int, Ids] = {}
        last_operation, last_phase = "", -1
        tag = Tag("", collective, group, 0)
        for number, flow in zip(numbers, made.flows, strict=True):
            if flow.phase != last_phase or flow.operation != last_operation:
                last_operation, last_phase = flow.operation, flow.phase
                tag = tags.setdefault((last_operation, last_phase), Tag(last_operation, collective, group, last_phase))
            after = flow.after
            if len(after) == 1:
                after = (numbers[after[0]],)
            elif after:
                if id(after) not in afters:
                    afters[id(after)] = tuple([numbers[before] for before in after])
                after = afters[id(after)]
            if flow.enters:
                if call.posted:
                    opened = front.of((members[flow.src],))
                elif id(flow.enters) in entered:
                    opened = entered[id(flow.enters)]
                else:
                    opened = entered[id(flow.enters)] = front.of([members[end] for end in flow.enters])
                after = (*opened, *after) if after else opened
                yield Transfer(number, members[flow.src], members[flow.dst], flow.size_bytes, after, tag, delay_s)
            else:
                yield Transfer(number, members[flow.src], members[flow.dst], flow.size_bytes, after, tag)
        shared: dict[int, Ids] = {}
        for rank, ends in zip(members, made.exits, strict=True):
            if id(ends) not in shared:
                shared[id(ends)] = tuple([numbers[end] for end in ends])
            if ends:
                front.left[rank] = shared[id(ends)]


class _Front:
    """What every rank of an operation did last: in the operation itself, else in those that it waits for."""

    def __init__(self, befores: Sequence[dict[int, Ids]]) -> None:
        self._befores = befores
        self.left: dict[int, Ids] = {}

    def of(self, ranks: Sequence[int]) -> Ids:
        """Ids that all of ``ranks`` must wait for."""
        found: dict[int, Ids] = {}
        for rank in ranks:
            own = self.left.get(rank)
            if own is not None:
                found[id(own)] = own
            else:
                for before in self._befores:
                    if rank in before:
                        found[id(before[rank])] = before[rank]
        if len(found) == 1:
            return next(iter(found.values()))
        return tuple(dict.fromkeys(one for ids in found.values() for one in ids))
