"""Runs whose traffic is planned: every pair of a plan has several connections, each with its own path and bytes.

As the resident agent does it live: a transfer is divided among the connections of its pair by the shares that are in
force when it starts; a connection sends one part after the other; the transfer has ended when its last part has. All
other transfers go by themselves on the paths of their pairs. Rates are max-min fair at every instant, as in
:mod:`simulator.fluid`, but nothing is folded, so this is for fabrics that can be emulated too.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controller.placement import Connection
from controller.planning.steering import PlanMode, Planning, Steering, demands_of
from controller.planning.traffic import divided
from controller.policy import RoutingPolicy
from simulator.changes import Change, changes_of, dead_ends, not_modelled
from simulator.filling import TIE, join, leave, run, settle
from simulator.fluid import BACKEND, NOTES, REPAIR_DELAY_S, TCP_GOODPUT, check_parts
from simulator.network import CLOCK, Network, network
from simulator.outcome import Counters
from simulator.paths import PairPaths, directed_links, link_positions
from simulator.routes import controller_router
from topologies.model import Fabric, Failures
from topologies.scale import Scale
from workloads.failures import FailureKind, LinkFailure, check_failures
from workloads.frontier import Frontier, in_dependency_order
from workloads.records import Event, EventKind, RunRecord, TransferRecord, TransferStatus
from workloads.schedule import Computation, Schedule, Transfer

REPLAN_DELAY_S = 0.1
"""From new routes in force to a new plan in force, in emulated seconds (docs/planning.md: measured)."""


def simulate_steered(
    fabric: Fabric,
    schedule: Schedule,
    policy: RoutingPolicy,
    planning: Planning,
    *,
    scale: Scale,
    failures: Sequence[LinkFailure] = (),
    repair_delay_s: float = REPAIR_DELAY_S,
    silent_repair_delay_s: float | None = None,
    replan_delay_s: float = REPLAN_DELAY_S,
    goodput: float = TCP_GOODPUT,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> RunRecord:
    """Run a schedule on a fabric with planned traffic; see :func:`simulator.fluid.simulate` for what is alike.

    A DYNAMIC plan is in force ``replan_delay_s`` after the routes that follow a failure are, and its shares follow what
    the connections are measured to carry. Raises SimulationError, ScheduleError, PlanningError or UnknownElementError
    for parts that do not fit together.
    """
    check_failures(fabric, failures)
    delays_s = {"repair_delay_s": repair_delay_s, "replan_delay_s": replan_delay_s}
    check_parts(fabric, schedule.name, schedule.ranks, goodput, delays_s)
    changes = changes_of(failures, repair_delay_s, silent_repair_delay_s)
    steering = Steering(fabric, demands_of(fabric, schedule, planning), policy, planning)
    made = _Run(fabric, schedule, policy, steering, scale, changes, replan_delay_s, goodput)
    made.run(progress)
    return RunRecord(
        backend=BACKEND,
        fabric=fabric.spec,
        scale=scale,
        schedule=schedule,
        failures=tuple(failures),
        seed=seed,
        transfers=made.records(),
        links=made.counters.series(fabric, np.arange(2 * len(fabric.links)), goodput),
        events=tuple(sorted(made.events, key=lambda event: event.t_s)),
        notes=(*NOTES, *not_modelled(failures)),
        last_computation_s=made.last_computation_s,
    )


@dataclass
class _Flow:
    """One connection, or one transfer that no plan knows: its path, and the parts that it has still to send."""

    src: int
    dst: int
    connection: Connection | None
    links: tuple[int, ...] | None = None
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    since_s: float = 0.0


@dataclass
class _Made:
    """One transfer as it goes: parts that have not ended."""

    transfer: Transfer
    size_bytes: int
    parts: int
    start_s: float
    end_s: float | None = None


class _Run:
    def __init__(
        self,
        fabric: Fabric,
        schedule: Schedule,
        policy: RoutingPolicy,
        steering: Steering,
        scale: Scale,
        changes: Sequence[Change],
        replan_delay_s: float,
        goodput: float,
    ) -> None:
        self.fabric, self.schedule, self.steering, self.scale = fabric, schedule, steering, scale
        self.changes, self.replan_delay_s = deque(changes), replan_delay_s
        self.router = controller_router(fabric, policy)
        self.positions = link_positions(fabric)
        rates = np.array([scale.emulated_rate_mbps(link.rate_mbps) for link in fabric.links])
        self.wire = np.repeat(rates * 1e6 / 8 * goodput, 2)
        self.broken: list[LinkFailure] = []
        self.lost_routes: Counter[str] = Counter()
        self.events: list[Event] = []
        self.last_computation_s: float | None = None
        self.now_s = 0.0
        self._timers: list[tuple[float, int, Transfer | Computation | None]] = []
        self._entries = itertools.count()  # keeps what falls on the same instant in order
        self._made: dict[int, _Made] = {}
        self._frontier: Frontier[Transfer | Computation] = Frontier()
        self._flows = [
            _Flow(fabric.rank(each.src), fabric.rank(each.dst), each)
            for demand in steering.plan.demands
            for each in demand.connections
        ]
        self._channels: dict[tuple[int, int], list[int]] = {}
        for at, flow in enumerate(self._flows):
            self._channels.setdefault((flow.src, flow.dst), []).append(at)
        self._alone: dict[int, int] = {}
        for transfer in schedule.transfers:
            if (transfer.src, transfer.dst) not in self._channels:
                self._alone[transfer.id] = len(self._flows)
                self._flows.append(_Flow(transfer.src, transfer.dst, None))
        self._lay_paths()
        self.net = self._network(np.zeros(len(self._flows)))
        self.counters = Counters(self.net, [change.failure for change in changes])

    # Paths

    def _lay_paths(self) -> None:
        """Give every flow the path that it has now."""
        plan = self.steering.plan
        lanes = {flow.connection: flow.lanes for flows in plan.flows for flow in flows}
        pairs: PairPaths = self.router(Failures(links=self.steering.links_down))
        for flow in self._flows:
            if flow.connection is None:
                link_ids = pairs(flow.src, flow.dst)
                flow.links = None
                if link_ids is not None:
                    flow.links = directed_links(self.fabric, self.positions, flow.src, flow.dst, link_ids)
            else:
                known = lanes.get(flow.connection)
                flow.links = None if known is None else tuple(
                    2 * self.positions[link_id] + (self.fabric.link(link_id).b == sender) for link_id, sender in known
                )  # fmt: skip

    def _network(self, left: NDArray[np.float64]) -> Network:
        """All flows over their present paths; nothing moves yet."""
        paths = [flow.links or () for flow in self._flows]
        first = np.cumsum([0, *map(len, paths)], dtype=np.int64)
        links = np.array([link for path in paths for link in path], dtype=np.int32)
        room = self.wire.copy()
        for failure in self.broken:
            if failure.kind is FailureKind.DEGRADE:
                at = 2 * self.positions[failure.link_id]
                room[at : at + 2] *= failure.rate_share
        return network(room, first, links, np.ones(len(links)), left)

    def _relay(self) -> None:
        """Lay all paths anew, and let move what can: bytes that have gone are gone."""
        for at in range(len(self._flows)):
            if self.net.place[at] >= 0:
                leave(self.net, at)
        settle(self.net)
        old = self.net
        self._lay_paths()
        self.net = self._network(old.left.copy())
        self.net.carried[:] = old.carried
        self.net.state[CLOCK] = self.now_s
        self.net.used_since[:] = self.now_s
        for at, flow in enumerate(self._flows):
            if flow.waiting:
                self._move(at)

    def _move(self, at: int) -> None:
        """Let the first part of a flow move; it stands still where its path is dead, or where it has none."""
        links = self._flows[at].links
        if links is not None and self._dead.isdisjoint(links):
            join(self.net, np.array([at], dtype=np.int32))

    @property
    def _dead(self) -> set[int]:
        return {2 * self.positions[one.link_id] + end for one in self.broken for end in dead_ends(one)}

    # Events

    def run(self, progress: Callable[[float], None] | None) -> None:
        """Everything, until nothing can move any more."""
        for item in in_dependency_order(self.schedule):
            self._frontier.add(item, 0.0)
        size = len(self._flows)
        waited, ended, ends = np.ones(size, np.uint8), np.zeros(size + 1, np.int32), np.zeros(size + 1)
        self._start_ready()
        while len(self._frontier):
            until = min(self.changes[0].t_s if self.changes else np.inf, self._timers[0][0] if self._timers else np.inf)
            count = run(self.net, until, 0.0, 0.0, waited, ended, ends, 1)
            if not count and until == np.inf:
                break  # what is left stands still for ever
            self.now_s = float(self.net.state[CLOCK])
            for at in ended[:count].tolist():
                self._end_part(at)
            self._apply_changes()
            while self._timers and self._timers[0][0] <= self.now_s * (1 + TIE):
                self._ring(heapq.heappop(self._timers)[2])
            self._start_ready()
            self.counters.sample(self.net, self.now_s)
            if progress is not None:
                progress(1 - len(self._frontier) / (len(self.schedule.transfers) + len(self.schedule.computations)))

    def _start_ready(self) -> None:
        for ready in self._frontier.take_ready():
            item = ready.item
            pause_s = item.duration_s if isinstance(item, Computation) else item.delay_s
            due_s = ready.since_s + self.scale.emulated_s(pause_s)
            if isinstance(item, Transfer) and due_s <= self.now_s:
                self._start(item)
            else:
                heapq.heappush(self._timers, (due_s, next(self._entries), item))

    def _ring(self, item: Transfer | Computation | None) -> None:
        """Something is due: a transfer, the end of a computation, or (None) a new plan."""
        if item is None:
            count = self.steering.replan()
            self.events.append(Event(self.now_s, EventKind.REPLANNED, f"{count} connections", "links changed"))
            self._relay()
        elif isinstance(item, Transfer):
            self._start(item)
        else:
            self.last_computation_s = self.now_s
            self._frontier.end(item.id, self.now_s)

    def _start(self, transfer: Transfer) -> None:
        size_bytes = self.scale.emulated_bytes(transfer.size_bytes)
        channels = self._channels.get((transfer.src, transfer.dst))
        if channels is None:
            parts = {self._alone[transfer.id]: size_bytes}
        else:
            shares = self.steering.shares_of(
                self.fabric.gpu_of_rank(transfer.src), self.fabric.gpu_of_rank(transfer.dst)
            )
            parts = {at: part for at, part in zip(channels, divided(size_bytes, shares), strict=True) if part}
        self._made[transfer.id] = _Made(transfer, size_bytes, len(parts), self.now_s)
        for at, part in parts.items():
            flow = self._flows[at]
            flow.waiting.append((transfer.id, part))
            if len(flow.waiting) == 1:
                self._begin_part(at)

    def _begin_part(self, at: int) -> None:
        self._flows[at].since_s = self.now_s
        self.net.left[at] = self._flows[at].waiting[0][1]
        self._move(at)

    def _end_part(self, at: int) -> None:
        flow = self._flows[at]
        transfer_id, part = flow.waiting.popleft()
        if flow.connection is not None:
            self.steering.measured(flow.connection, part, self.now_s - flow.since_s)
        if flow.waiting:
            self._begin_part(at)
        made = self._made[transfer_id]
        made.parts -= 1
        if not made.parts:
            made.end_s = self.now_s
            self._frontier.end(transfer_id, self.now_s)

    def _apply_changes(self) -> None:
        changed = False
        while self.changes and self.changes[0].t_s <= self.now_s * (1 + TIE):
            changed = True
            change = self.changes.popleft()
            if change.routes:
                self._reroute(change)
            else:
                self._change_wire(change)
        if changed:
            self._relay()

    def _reroute(self, change: Change) -> None:
        self.lost_routes[change.failure.link_id] += -1 if change.up else 1
        self.steering.links_changed(frozenset(+self.lost_routes))
        state_text = "up" if change.up else "down"
        self.events.append(Event(change.t_s, EventKind.REROUTED, change.failure.link_id, f"link {state_text}"))
        if self.steering.planning.mode is PlanMode.DYNAMIC:
            heapq.heappush(self._timers, (change.t_s + self.replan_delay_s, next(self._entries), None))

    def _change_wire(self, change: Change) -> None:
        failure = change.failure
        (self.broken.remove if change.up else self.broken.append)(failure)
        down = failure.kind is FailureKind.DOWN
        begins, ends = (EventKind.LINK_DOWN, EventKind.LINK_UP) if down else (EventKind.IMPAIRED, EventKind.MENDED)
        detail = "" if down else failure.text
        self.events.append(Event(change.t_s, ends if change.up else begins, failure.link_id, detail))

    # Afterwards

    def records(self) -> tuple[TransferRecord, ...]:
        """The record of every transfer, in order."""
        left: Counter[int] = Counter()
        for at, flow in enumerate(self._flows):
            for number, (transfer_id, part) in enumerate(flow.waiting):
                left[transfer_id] += float(self.net.left[at]) if number == 0 else part  # type: ignore[assignment]
        return tuple(self._record(transfer, left) for transfer in self.schedule.transfers)

    def _record(self, transfer: Transfer, left: Counter[int]) -> TransferRecord:
        made = self._made.get(transfer.id)
        if made is None:
            size_bytes = self.scale.emulated_bytes(transfer.size_bytes)
            reason = "waited for a transfer that stood still"
            return TransferRecord(transfer.id, TransferStatus.FAILED, None, None, 0.0, size_bytes, reason)
        size_bytes = made.size_bytes
        if made.end_s is not None:
            return TransferRecord(
                transfer.id, TransferStatus.COMPLETE, made.start_s, made.end_s, size_bytes, size_bytes
            )
        down = ", ".join(sorted(self.steering.links_down | {one.link_id for one in self.broken}))
        return TransferRecord(
            transfer.id, TransferStatus.INCOMPLETE, made.start_s, None, size_bytes - left[transfer.id], size_bytes,
            f"stood still: no path that works while {down} is broken",
        )  # fmt: skip
