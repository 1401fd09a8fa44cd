"""What may start next: items of a schedule, fed in as they are made, handed out as what they wait for ends. Pure.

Only items that have not ended are kept, so that a schedule may be longer than memory: it is enough that everything is
fed after what it waits for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from graphlib import TopologicalSorter
from typing import Generic, Protocol, TypeVar

from workloads.schedule import Computation, Schedule, Transfer


class OnFailure(str, Enum):
    """What becomes of a schedule when a transfer fails.

    CONTINUE: what waits for it, directly or not, is not started; all the rest goes on. STOP: nothing more is started.
    """

    CONTINUE = "continue"
    STOP = "stop"


class Item(Protocol):
    """Something with an id that waits for others: a Transfer, a Computation, or a back end's own form of them."""

    @property
    def id(self) -> int:
        """Unique in the schedule."""

    @property
    def after(self) -> tuple[int, ...]:
        """Ids of what it waits for."""


AnItem = TypeVar("AnItem", bound=Item)


@dataclass(frozen=True, slots=True)
class Ready(Generic[AnItem]):
    """An item that has nothing left to wait for since ``since_s``."""

    item: AnItem
    since_s: float


@dataclass(frozen=True, slots=True)
class Skipped(Generic[AnItem]):
    """An item that will not start, because the transfer with the id ``failed_id`` failed."""

    item: AnItem
    failed_id: int


@dataclass(slots=True)
class _Gate(Generic[AnItem]):
    """One shared tuple of dependencies, and the items behind it; opens when all of them have ended."""

    after: tuple[int, ...]
    left: int
    since_s: float
    failed_id: int | None = None
    members: list[AnItem] = field(default_factory=list)


class Frontier(Generic[AnItem]):
    """The items of a schedule that have not ended yet. Times are any clock's; they are only compared."""

    def __init__(self, on_failure: OnFailure = OnFailure.CONTINUE) -> None:
        self._on_failure = on_failure
        self._pending: dict[int, list[_Gate[AnItem]]] = {}
        self._gates: dict[int, _Gate[AnItem]] = {}
        self._failed: dict[int, int] = {}
        self._stopped_by: int | None = None
        self._ready: deque[Ready[AnItem]] = deque()
        self._skipped: deque[Skipped[AnItem]] = deque()

    def __len__(self) -> int:
        """Items fed in that have not ended."""
        return len(self._pending)

    def add(self, item: AnItem, now_s: float) -> None:
        """Feed an item in, after all that it waits for; what waits for nothing is ready since ``now_s``."""
        self._pending[item.id] = []
        # A barrier shares one long tuple among all items of a phase: it is looked at once.
        gate = self._gates.get(id(item.after))
        if gate is None:
            gate = self._gate(item.after, now_s)
        gate.members.append(item)
        if not gate.left:
            self._open(gate)

    def _gate(self, after: tuple[int, ...], now_s: float) -> _Gate[AnItem]:
        waits_for = [before for before in dict.fromkeys(after) if before in self._pending]
        gate: _Gate[AnItem] = _Gate(after, len(waits_for), now_s if not waits_for else float("-inf"))
        if self._failed:
            gate.failed_id = next((self._failed[before] for before in after if before in self._failed), None)
        for before in waits_for:
            self._pending[before].append(gate)
        if waits_for:
            self._gates[id(after)] = gate  # the gate holds the tuple, so its identity stays taken
        return gate

    def end(self, item_id: int, end_s: float) -> None:
        """An item has ended well at ``end_s``."""
        self._end(item_id, end_s, None)

    def fail(self, item_id: int, end_s: float) -> None:
        """An item was given up at ``end_s``."""
        if self._on_failure is OnFailure.STOP and self._stopped_by is None:
            self._stopped_by = item_id
        self._end(item_id, end_s, item_id)

    def _end(self, item_id: int, end_s: float, failed_id: int | None) -> None:
        """Count an item as ended at all gates that wait for it; skipped items end at once, and so on."""
        ending = deque([(item_id, failed_id)])
        while ending:
            one, failed_id = ending.popleft()
            if failed_id is not None:
                self._failed[one] = failed_id
            for gate in self._pending.pop(one):
                gate.left -= 1
                gate.since_s = max(gate.since_s, end_s)
                if failed_id is not None and gate.failed_id is None:
                    gate.failed_id = failed_id
                if not gate.left:
                    del self._gates[id(gate.after)]
                    ending.extend(self._open(gate, end_now=False))

    def _open(self, gate: _Gate[AnItem], end_now: bool = True) -> list[tuple[int, int]]:
        """Hand the members of a gate out; (id, failed id) of those that are skipped and so have ended too."""
        failed_id = self._stopped_by if gate.failed_id is None else gate.failed_id
        members, gate.members = gate.members, []
        if failed_id is None:
            self._ready.extend(Ready(item, gate.since_s) for item in members)
            return []
        self._skipped.extend(Skipped(item, failed_id) for item in members)
        if end_now:
            for item in members:
                self._end(item.id, gate.since_s, failed_id)
        return [(item.id, failed_id) for item in members]

    def take_ready(self) -> Iterator[Ready[AnItem]]:
        """Items that may start, in the order in which they became ready; each is given once."""
        while self._ready:
            ready = self._ready.popleft()
            if not self.skip_if_stopped(ready.item, ready.since_s):
                yield ready

    def skip_if_stopped(self, item: AnItem, now_s: float) -> bool:
        """Whether an item that was ready must not start any more, because the schedule was stopped meanwhile."""
        if self._stopped_by is None:
            return False
        self._skipped.append(Skipped(item, self._stopped_by))
        self._end(item.id, now_s, self._stopped_by)
        return True

    def take_skipped(self) -> Iterator[Skipped[AnItem]]:
        """Items that will not start; each is given once."""
        while self._skipped:
            yield self._skipped.popleft()


def in_dependency_order(schedule: Schedule) -> Iterator[Transfer | Computation]:
    """Everything in a schedule, after what it waits for: by id where that is such an order, as it is for our own."""
    items: list[Transfer | Computation] = [*schedule.transfers, *schedule.computations]
    if schedule.computations:
        items.sort(key=lambda item: item.id)
    if _in_order(items):
        return iter(items)
    by_id = {item.id: item for item in items}
    order = TopologicalSorter({item.id: item.after for item in items}).static_order()
    return (by_id[item_id] for item_id in order)


def _in_order(items: Iterable[Transfer | Computation]) -> bool:
    passed: set[int] = set()
    seen: set[int] = set()
    for item in items:
        if id(item.after) not in seen:
            if not passed.issuperset(item.after):
                return False
            seen.add(id(item.after))
        passed.add(item.id)
    return True
