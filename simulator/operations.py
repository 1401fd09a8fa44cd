"""A training iteration at any size: operations over families of groups, simulated class by class.

The same fluid model as :mod:`simulator.fluid`, on classes of equal groups (:mod:`simulator.templates`): what 32,768
GPUs do in 64 million transfers is a few ten thousand events of a few classes. The result is that of the transfers.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulator.errors import SimulationError
from simulator.filling import TIE, join, run, settle
from simulator.fluid import TCP_GOODPUT, check_parts
from simulator.network import CLOCK, FLOWS, Network, network
from simulator.paths import Router
from simulator.templates import Templates, plain, templates_of
from topologies.model import NO_FAILURES, Fabric, Failures
from topologies.scale import Scale
from workloads.algorithms import BULK
from workloads.operations import Call, OperationSchedule

Ints = NDArray[np.int64]
Progress = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class OperationsRecord:
    """How an operation schedule went. Times are emulated seconds from its start, bytes are emulated ones.

    ``end_s`` is by operation, in order of the schedule. ``carried_bytes`` is what each directed link carried, whole
    frames: entry ``2*j`` is link j of the fabric from its end a to b, ``2*j + 1`` the other way. ``flow_classes`` is
    the number of different flows that were solved, for ``transfers`` of the schedule.
    """

    completion_s: float
    end_s: tuple[float, ...]
    carried_bytes: NDArray[np.float64]
    flow_classes: int
    transfers: int


def simulate_operations(
    fabric: Fabric,
    schedule: OperationSchedule,
    router: Router,
    *,
    scale: Scale,
    failures: Failures = NO_FAILURES,
    start_delay_s: float = 0.0,
    goodput: float = TCP_GOODPUT,
    progress: Progress | None = None,
) -> OperationsRecord:
    """Run the operations in the bulk form of their collectives on a fabric, broken from the start by ``failures``.

    The other parameters are those of :func:`simulator.fluid.simulate`, and so is the result: that of the schedule's
    transfers. Raises SimulationError for parts that do not fit together, pairs without a path, and the stepwise form.
    """
    check_parts(fabric, schedule.name, schedule.ranks, goodput, {"start_delay_s": start_delay_s})
    if schedule.form != BULK:
        raise SimulationError(
            f"schedule '{schedule.name}' has the form '{schedule.form}'; operations are simulated in the form "
            f"'{BULK}', other forms as a whole schedule of transfers"
        )
    found = templates_of(fabric, schedule, router(failures), failures)
    made = _Run(fabric, schedule, found, scale, start_delay_s, goodput)
    made.run(progress)
    return made.record()


@dataclass
class _Node:
    """One call of one class of groups (or of ranks, where nothing moves): what it waits for, and what it does."""

    operation: int
    delay_s: float
    flows: tuple[Call, int] | None
    waiting: int = 0
    behind: list[int] = field(default_factory=list)
    phase: int = 0
    moving: int = 0
    copy: int = 0


class _Run:
    def __init__(
        self,
        fabric: Fabric,
        schedule: OperationSchedule,
        templates: Templates,
        scale: Scale,
        start_delay_s: float,
        goodput: float,
    ) -> None:
        self.schedule, self.templates, self.scale = schedule, templates, scale
        self.start_delay_s, self.goodput = start_delay_s, goodput
        wire = np.repeat([scale.emulated_rate_mbps(link.rate_mbps) * 1e6 / 8 for link in fabric.links], 2)
        self.room = wire[templates.member] * goodput
        sizes = {size: scale.emulated_bytes(size) for size in set(templates.size_bytes.tolist())}
        self.size = np.array([sizes[size] for size in templates.size_bytes.tolist()], dtype=np.float64)
        self.flows = len(self.size)
        self.nodes: list[_Node] = []
        self.end_s = [0.0] * len(schedule.operations)
        self.timers: list[tuple[float, int]] = []
        self.ready: deque[int] = deque()
        self.done = 0
        self.free: dict[tuple[Call, int], list[int]] = {}
        self.copies = 2
        self.net = self._network(None)
        self._make_nodes()

    def _network(self, old: Network | None) -> Network:
        """Every class of flows ``copies`` times, as calls of several operations may be under way together."""
        found, copies = self.templates, self.copies
        counts = np.tile(np.diff(found.first), copies)
        first = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        net = network(self.room, first, np.tile(found.link, copies).astype(np.int32), np.tile(found.weight, copies),
                      np.tile(self.size, copies))  # fmt: skip
        self.node_of = np.full(copies * self.flows, -1, dtype=np.int64)
        self.waited = np.ones(copies * self.flows, dtype=np.uint8)
        self.ended = np.zeros(copies * self.flows + 1, dtype=np.int32)
        self.ends = np.zeros(copies * self.flows + 1)
        if old is not None:
            settle(old)
            net.carried[:] = old.carried
            net.state[CLOCK] = old.state[CLOCK]
            net.used_since[:] = old.state[CLOCK]
        return net

    # -- what waits for what ------------------------------------------------------------------------------------------

    def _make_nodes(self) -> None:
        """A node for every call, repeated or not, of every class; as :meth:`OperationSchedule.expand` orders them."""
        left: dict[int, dict[int, int]] = {}
        for place, operation in enumerate(self.schedule.operations):
            befores = [left[before] for before in operation.after]
            own: dict[int, int] = {}
            steps = [(call, plain(call)) for call in operation.calls]
            for _ in range(operation.repeat):
                for call, moved in steps:
                    for unit, ranks in self.templates.units[call.family].items():
                        key = (moved, unit)
                        if key in self.templates.phases:
                            entering = self.templates.entering[key]
                            self._add_node(_Node(place, call.delay_s, key), entering, ranks, own, befores)
                        elif call.delay_s:
                            for rank in ranks:
                                self._add_node(_Node(place, call.delay_s, None), (rank,), (rank,), own, befores)
            left[operation.id] = own

    def _add_node(
        self,
        node: _Node,
        entering: tuple[int, ...],
        ranks: tuple[int, ...],
        own: dict[int, int],
        befores: list[dict[int, int]],
    ) -> None:
        """A node that waits for what ``entering`` did last; from now on it is what ``ranks`` did last."""
        number = len(self.nodes)
        needed: set[int] = set()
        for rank in entering:
            if rank in own:
                needed.add(own[rank])
            else:
                needed.update(before[rank] for before in befores if rank in before)
        own.update(dict.fromkeys(ranks, number))
        node.waiting = len(needed)
        for one in needed:
            self.nodes[one].behind.append(number)
        self.nodes.append(node)
        if not needed:
            self.ready.append(number)

    # -- the run ------------------------------------------------------------------------------------------------------

    def run(self, progress: Progress | None) -> None:
        """All events, until every node is through."""
        now_s = 0.0
        while True:
            while self.ready:
                self._enter(self.ready.popleft(), now_s)
            until = self.timers[0][0] if self.timers else np.inf
            count = run(self.net, until, 0.0, 0.0, self.waited, self.ended, self.ends, 1)
            if not count and until == np.inf:
                break
            now_s = float(self.net.state[CLOCK])
            for flow in self.ended[:count].tolist():
                number = int(self.node_of[flow])
                self.nodes[number].moving -= 1
                if not self.nodes[number].moving:
                    self._phase_over(number, now_s)
            while self.timers and self.timers[0][0] <= now_s * (1 + TIE):
                self._go_on(heapq.heappop(self.timers)[1], now_s, 0.0)
            if progress is not None:
                progress(self.done / len(self.nodes))

    def _enter(self, number: int, now_s: float) -> None:
        """A class of groups has come to a call: it computes first, then moves bytes."""
        node = self.nodes[number]
        wait_s = self.scale.emulated_s(node.delay_s) + (self.start_delay_s if node.flows else 0.0)
        self._go_on(number, now_s, wait_s)

    def _go_on(self, number: int, now_s: float, wait_s: float) -> None:
        """Do a node's next phase, or end it, ``wait_s`` from now."""
        if wait_s:
            heapq.heappush(self.timers, (now_s + wait_s, number))
            return
        node = self.nodes[number]
        if node.flows is not None and node.phase < len(self.templates.phases[node.flows]):
            self._start(number, node, self.templates.phases[node.flows][node.phase])
            return
        if node.flows is not None:
            self.free[node.flows].append(node.copy)
        self.done += 1
        self.end_s[node.operation] = max(self.end_s[node.operation], now_s)
        for one in node.behind:
            self.nodes[one].waiting -= 1
            if not self.nodes[one].waiting:
                self.ready.append(one)

    def _phase_over(self, number: int, now_s: float) -> None:
        node = self.nodes[number]
        assert node.flows is not None
        node.phase += 1
        is_last = node.phase == len(self.templates.phases[node.flows])
        self._go_on(number, now_s, 0.0 if is_last else self.start_delay_s)

    def _start(self, number: int, node: _Node, classes: Ints) -> None:
        assert node.flows is not None
        if node.phase == 0:
            free = self.free.setdefault(node.flows, list(range(self.copies - 1, -1, -1)))
            if not free:
                self._grow()
                free = self.free[node.flows]
            node.copy = free.pop()
        flows = classes + node.copy * self.flows
        node.moving = len(flows)
        self.node_of[flows] = number
        self.net.left[flows] = self.size[classes]
        join(self.net, flows.astype(np.int32))

    def _grow(self) -> None:
        """Twice the copies; what moves goes on moving."""
        old, node_of = self.net, self.node_of
        active = old.active[: int(old.state[FLOWS])].copy()
        now_s = old.state[CLOCK]
        left = old.left[active] - np.maximum(old.rate[active], 0.0) * (now_s - old.since[active])
        for free in self.free.values():
            free[:0] = range(2 * self.copies - 1, self.copies - 1, -1)
        self.copies *= 2
        self.net = self._network(old)
        self.node_of[active] = node_of[active]
        self.net.left[active] = left
        join(self.net, active)

    def record(self) -> OperationsRecord:
        """The result, after the run."""
        settle(self.net)
        return OperationsRecord(
            completion_s=max(self.end_s),
            end_s=tuple(self.end_s),
            carried_bytes=self.net.carried[self.templates.link_class] / self.goodput,
            flow_classes=self.flows,
            transfers=sum(
                self.templates.counts.get(plain(call), 0) * operation.repeat
                for operation in self.schedule.operations
                for call in operation.calls
            ),
        )
