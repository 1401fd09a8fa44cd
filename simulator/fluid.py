"""The fluid model: every flow has its max-min fair rate at every instant, and nothing else takes time.

Between two events (a transfer ends, a link changes, routes change) all rates are constant, so the run is exact up to
rounding. Start-up, slow start, acknowledgements, queues and loss are not modelled.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.errors import SimulationError
from simulator.fair_share import max_min_rates
from simulator.paths import PairPaths, Router, directed_links, link_positions
from topologies.model import Fabric, Failures
from topologies.scale import Scale
from workloads.failures import FailureKind, LinkFailure, check_failures
from workloads.records import (
    Event,
    EventKind,
    LinkSeries,
    RunRecord,
    TransferRecord,
    TransferStatus,
)
from workloads.schedule import Computation, Schedule, Transfer

BACKEND = "simulator"

TCP_GOODPUT = 1448 / 1514
"""Payload share of a full Ethernet frame: MTU 1500, IPv4 and TCP with time stamps, 14 bytes of Ethernet header."""

REPAIR_DELAY_S = 0.1
"""Default time from a link's change to the new routes being in force, in emulated seconds."""

TIE = 1e-12
"""Transfers that would end within this share of the step to the next event end together with it."""

NOTES = (
    "Fluid model: max-min fair rates at every instant; TCP start-up, queues, loss and acknowledgements take no time.",
)

Progress = Callable[[float], None]


def simulate(
    fabric: Fabric,
    schedule: Schedule,
    router: Router,
    *,
    scale: Scale,
    failures: Sequence[LinkFailure] = (),
    repair_delay_s: float = REPAIR_DELAY_S,
    silent_repair_delay_s: float | None = None,
    start_delay_s: float = 0.0,
    goodput: float = TCP_GOODPUT,
    seed: int = 0,
    progress: Progress | None = None,
) -> RunRecord:
    """Run a schedule on a fabric; times, sizes and rates of the result are emulated ones of ``scale``.

    ``Scale(1, 1)`` gives those of the real machine. ``goodput`` is the payload share of a link's rate; link counters
    hold frames, payload / goodput. While a link is down, flows over it stand still until ``repair_delay_s`` later the
    new routes hold; after it is up again, the old routes come back with the same delay. A blackhole changes routes
    after ``silent_repair_delay_s`` (None: never, as nothing notices it), a degraded link never does; delay and loss
    change nothing here, which the record's notes say. ``start_delay_s`` passes
    between the end of what a transfer waits for (its own delay included) and its first byte: what a back end needs to
    start it. A transfer between GPUs that have no path fails; what waited for it goes on. ``progress`` is told the
    share done.
    Raises SimulationError, ScheduleError or UnknownElementError for parts that do not fit together.
    """
    check_failures(fabric, failures)
    if schedule.ranks != len(fabric.gpus):
        raise SimulationError(
            f"schedule '{schedule.name}' is for {schedule.ranks} ranks, but the fabric has {len(fabric.gpus)} GPUs"
        )
    if not 0 < goodput <= 1:
        raise SimulationError(f"goodput is {goodput}; it must be above 0 and at most 1")
    for name, delay_s in (("repair_delay_s", repair_delay_s), ("start_delay_s", start_delay_s)):
        if not delay_s >= 0:
            raise SimulationError(f"{name} is {delay_s}; it must be 0 or more")
    changes = _changes(failures, repair_delay_s, silent_repair_delay_s)
    run = _Run(fabric, schedule, router, scale, tuple(failures), changes, start_delay_s, goodput, seed)
    return run.run(progress)


@dataclass
class _Flow:
    """A transfer that has started and not ended."""

    transfer: Transfer
    size_bytes: int
    left_bytes: float
    start_s: float
    links: tuple[int, ...]


@dataclass(frozen=True)
class _Change:
    """A failure begins or ends (``up``), for the wires or (later) for the routes."""

    t_s: float
    failure: LinkFailure
    up: bool
    routes: bool


class _Run:
    def __init__(
        self,
        fabric: Fabric,
        schedule: Schedule,
        router: Router,
        scale: Scale,
        failures: tuple[LinkFailure, ...],
        changes: Sequence[_Change],
        start_delay_s: float,
        goodput: float,
        seed: int,
    ) -> None:
        self.fabric, self.schedule, self.router, self.scale = fabric, schedule, router, scale
        self.failures, self.goodput, self.seed = failures, goodput, seed
        self.start_delay_s = start_delay_s
        # What happens at a known time: transfers start, or the computations of these ids end. A heap; the number of
        # the entry keeps what falls on the same instant in order.
        self.timers: list[tuple[float, int, Sequence[Transfer], Sequence[int]]] = []
        self.timers_set = 0
        self.last_computation_s: float | None = None
        self.positions = link_positions(fabric)
        rates_mbps = np.array([scale.emulated_rate_mbps(link.rate_mbps) for link in fabric.links])
        self.wire = np.repeat(rates_mbps * 1e6 / 8, 2)  # bytes per second of frames, per directed link
        self.changes = deque(changes)
        self.broken: list[LinkFailure] = []
        self.routed_down: Counter[str] = Counter()  # how many failures have taken each link out of the routes
        self.paths: PairPaths = router(Failures())
        self.now_s = 0.0
        self.flows: list[_Flow] = []
        self.records: dict[int, TransferRecord] = {}
        self.events: list[Event] = []
        self.carried: NDArray[np.float64] = np.zeros(2 * len(fabric.links))
        self.samples: list[tuple[float, NDArray[np.float64]]] = [(0.0, self.carried.copy())]
        self._make_gates()

    def _make_gates(self) -> None:
        """A gate is one shared tuple of dependencies; it opens when all of them have ended."""
        self.gate_left: dict[int, int] = {}
        self.gate_members: dict[int, list[Transfer]] = {}
        self.gate_computations: dict[int, list[Computation]] = {}
        self.gates_of: dict[int, list[int]] = {}
        self.opening: deque[int] = deque()
        for transfer in self.schedule.transfers:
            self.gate_members[self._gate(transfer.after)].append(transfer)
        for computation in self.schedule.computations:
            self.gate_computations.setdefault(self._gate(computation.after), []).append(computation)
        self.is_phased = self.schedule.is_phased

    def _gate(self, after: tuple[int, ...]) -> int:
        gate = id(after)
        if gate not in self.gate_left:
            needed = set(after)
            self.gate_left[gate] = len(needed)
            self.gate_members[gate] = []
            for dependency in needed:
                self.gates_of.setdefault(dependency, []).append(gate)
        return gate

    def run(self, progress: Progress | None) -> RunRecord:
        """All events until nothing can move any more."""
        self._apply_changes()
        self.opening.extend(gate for gate, waiting_for in self.gate_left.items() if waiting_for == 0)
        self._open_gates()
        while self.flows or self.timers:
            rates = self._rates()
            moving = rates > 0
            left = np.array([flow.left_bytes for flow in self.flows])
            ends = np.full(len(self.flows), np.inf)
            np.divide(left, rates, out=ends, where=moving)
            step_s = float(ends.min(initial=np.inf))
            if self.changes:
                step_s = min(step_s, self.changes[0].t_s - self.now_s)
            if self.timers:
                step_s = min(step_s, max(0.0, self.timers[0][0] - self.now_s))
            if not np.isfinite(step_s):
                break
            self._advance(step_s, rates)
            ended = [flow for flow, end in zip(self.flows, ends, strict=True) if end <= step_s * (1 + TIE)]
            self._apply_changes()
            self._end(ended)
            self._open_gates()
            while self.timers and self.timers[0][0] <= self.now_s * (1 + TIE):
                self._ring(*heapq.heappop(self.timers)[2:])
                self._open_gates()
            self.samples.append((self.now_s, self.carried.copy()))
            if progress is not None:
                progress(len(self.records) / max(1, len(self.schedule.transfers)))
        self._give_up()
        return self._record()

    def _rates(self) -> NDArray[np.float64]:
        """Payload rate of every flow in bytes per second; 0 over a dead link."""
        dead = {link for failure in self.broken for link in self._dead_links(failure)}
        wire = self.wire
        degraded = [failure for failure in self.broken if failure.kind is FailureKind.DEGRADE]
        if degraded:
            wire = wire.copy()
            for failure in degraded:
                position = 2 * self.positions[failure.link_id]
                wire[position : position + 2] *= failure.rate_share
        rates = np.zeros(len(self.flows))
        alive = [index for index, flow in enumerate(self.flows) if dead.isdisjoint(flow.links)]
        rates[alive] = max_min_rates(wire * self.goodput, [self.flows[index].links for index in alive])
        return rates

    def _dead_links(self, failure: LinkFailure) -> tuple[int, ...]:
        """The directed links that carry nothing under a failure."""
        there, back = 2 * self.positions[failure.link_id], 2 * self.positions[failure.link_id] + 1
        if failure.kind is FailureKind.BLACKHOLE:
            return {"both": (there, back), "out": (there,), "in": (back,)}[failure.direction]
        return (there, back) if failure.kind is FailureKind.DOWN else ()

    def _advance(self, step_s: float, rates: NDArray[np.float64]) -> None:
        self.now_s += step_s
        for flow, rate in zip(self.flows, rates, strict=True):
            moved = min(float(rate) * step_s, flow.left_bytes)
            flow.left_bytes -= moved
            for link in flow.links:
                self.carried[link] += moved / self.goodput

    def _apply_changes(self) -> None:
        rerouted = []
        while self.changes and self.changes[0].t_s <= self.now_s * (1 + TIE):
            change = self.changes.popleft()
            failure = change.failure
            if change.routes:
                self.routed_down[failure.link_id] += -1 if change.up else 1
                rerouted.append(change)
                continue
            (self.broken.remove if change.up else self.broken.append)(failure)
            if failure.kind is FailureKind.DOWN:
                kind = EventKind.LINK_UP if change.up else EventKind.LINK_DOWN
                self.events.append(Event(change.t_s, kind, failure.link_id))
            else:
                kind = EventKind.MENDED if change.up else EventKind.IMPAIRED
                self.events.append(Event(change.t_s, kind, failure.link_id, failure.text))
        if not rerouted:
            return
        for change in rerouted:
            state_text = "up" if change.up else "down"
            self.events.append(Event(change.t_s, EventKind.REROUTED, change.failure.link_id, f"link {state_text}"))
        self.routed_down = +self.routed_down
        self.paths = self.router(Failures(links=frozenset(self.routed_down)))
        for flow in list(self.flows):
            links = self._links(flow.transfer)
            if links is None:
                self.flows.remove(flow)
                self._fail(flow.transfer, flow)
            else:
                flow.links = links

    def _end(self, ended: Sequence[_Flow]) -> None:
        for flow in ended:
            if flow.transfer.id in self.records:  # lost its path at this very instant
                continue
            self.flows.remove(flow)
            self.records[flow.transfer.id] = TransferRecord(
                flow.transfer.id, TransferStatus.COMPLETE, flow.start_s, self.now_s, flow.size_bytes, flow.size_bytes
            )
            self._pass_gates(flow.transfer.id)

    def _pass_gates(self, transfer_id: int) -> None:
        """A transfer has ended, well or not: one less to wait for."""
        for gate in self.gates_of.get(transfer_id, ()):
            self.gate_left[gate] -= 1
            if self.gate_left[gate] == 0:
                self.opening.append(gate)

    def _open_gates(self) -> None:
        """Start what has nothing left to wait for; a transfer that fails at once may open the next gate."""
        while self.opening:
            self._open(self.opening.popleft())

    def _open(self, gate: int) -> None:
        members = self.gate_members[gate]
        for computation in self.gate_computations.get(gate, ()):
            self._set_timer(self.scale.emulated_s(computation.duration_s), (), (computation.id,))
        if self.is_phased:
            phase = str(members[0].tag.phase)
            if members[0].after:
                self.events.append(Event(self.now_s, EventKind.PHASE_END, str(members[0].tag.phase - 1)))
            self.events.append(Event(self.now_s, EventKind.PHASE_START, phase, members[0].tag.operation))
        by_delay: dict[float, list[Transfer]] = {}
        for transfer in members:
            by_delay.setdefault(transfer.delay_s, []).append(transfer)
        for delay_s, together in by_delay.items():
            wait_s = self.scale.emulated_s(delay_s) + self.start_delay_s
            if wait_s:
                self._set_timer(wait_s, together, ())
            else:
                self._start(together)

    def _set_timer(self, wait_s: float, starting: Sequence[Transfer], ending: Sequence[int]) -> None:
        heapq.heappush(self.timers, (self.now_s + wait_s, self.timers_set, starting, ending))
        self.timers_set += 1

    def _ring(self, starting: Sequence[Transfer], ending: Sequence[int]) -> None:
        """What a timer was set for: transfers start, computations end."""
        for computation_id in ending:
            self.last_computation_s = self.now_s
            self._pass_gates(computation_id)
        self._start(starting)

    def _start(self, members: Sequence[Transfer]) -> None:
        for transfer in members:
            links = self._links(transfer)
            if links is None:
                self._fail(transfer, None)
            else:
                size_bytes = self.scale.emulated_bytes(transfer.size_bytes)
                self.flows.append(_Flow(transfer, size_bytes, float(size_bytes), self.now_s, links))

    def _links(self, transfer: Transfer) -> tuple[int, ...] | None:
        link_ids = self.paths(transfer.src, transfer.dst)
        if link_ids is None:
            return None
        return directed_links(self.fabric, self.positions, transfer.src, transfer.dst, link_ids)

    def _fail(self, transfer: Transfer, flow: _Flow | None) -> None:
        src, dst = self.fabric.gpu_of_rank(transfer.src).id, self.fabric.gpu_of_rank(transfer.dst).id
        reason = f"no path from {src} to {dst} while {', '.join(sorted(self.routed_down))} is down"
        size_bytes = self.scale.emulated_bytes(transfer.size_bytes)
        received = flow.size_bytes - flow.left_bytes if flow else 0.0
        start_s = flow.start_s if flow else None
        self.records[transfer.id] = TransferRecord(
            transfer.id, TransferStatus.FAILED, start_s, None, received, size_bytes, reason
        )
        self.events.append(Event(self.now_s, EventKind.TRANSFER_FAILED, str(transfer.id), reason))
        self._pass_gates(transfer.id)

    def _give_up(self) -> None:
        """Record what stands still for ever: flows over a link that is down and never routed around."""
        for flow in self.flows:
            dead = {failure for failure in self.broken if set(self._dead_links(failure)) & set(flow.links)}
            what = ", ".join(sorted({f"{failure.link_id} was {failure.text}" for failure in dead}))
            reason = f"stood still: {what} and no route led around it"
            received = flow.size_bytes - flow.left_bytes
            self.records[flow.transfer.id] = TransferRecord(
                flow.transfer.id, TransferStatus.INCOMPLETE, flow.start_s, None, received, flow.size_bytes, reason
            )
        for transfer in self.schedule.transfers:
            if transfer.id not in self.records:
                self.records[transfer.id] = TransferRecord(
                    transfer.id, TransferStatus.FAILED, None, None, 0.0,
                    self.scale.emulated_bytes(transfer.size_bytes), "waited for a transfer that stood still",
                )  # fmt: skip

    def _record(self) -> RunRecord:
        if self.is_phased and self.records and not self.flows:
            last = self.schedule.phases()[-1][0].tag.phase
            self.events.append(Event(self.now_s, EventKind.PHASE_END, str(last)))
        counters = np.stack([carried for _, carried in self.samples])
        series = LinkSeries(
            tuple(link.id for link in self.fabric.links),
            np.array([t_s for t_s, _ in self.samples]),
            counters[:, 0::2],
            counters[:, 1::2],
        )
        return RunRecord(
            backend=BACKEND,
            fabric=self.fabric.spec,
            scale=self.scale,
            schedule=self.schedule,
            failures=self.failures,
            seed=self.seed,
            transfers=tuple(self.records[transfer.id] for transfer in self.schedule.transfers),
            links=series,
            events=tuple(sorted(self.events, key=lambda event: event.t_s)),
            notes=(*NOTES, *_not_modelled(self.failures)),
            last_computation_s=self.last_computation_s,
        )


def _not_modelled(failures: Sequence[LinkFailure]) -> list[str]:
    kinds = {failure.kind for failure in failures} & {FailureKind.DELAY, FailureKind.LOSS}
    return [f"Not modelled: {kind.value} on links." for kind in sorted(kinds)]


def _changes(
    failures: Sequence[LinkFailure], repair_delay_s: float, silent_repair_delay_s: float | None
) -> list[_Change]:
    """All changes in order of time; at the same instant wires change before routes, and down before up."""
    noticed_after_s = {FailureKind.DOWN: repair_delay_s, FailureKind.BLACKHOLE: silent_repair_delay_s}
    changes = []
    for failure in failures:
        delay_s = noticed_after_s.get(failure.kind)
        for t_s, up in ((failure.at_s, False), (failure.restore_s, True)):
            if t_s is not None:
                changes.append(_Change(t_s, failure, up, routes=False))
                if delay_s is not None:
                    changes.append(_Change(t_s + delay_s, failure, up, routes=True))
    return sorted(changes, key=lambda change: (change.t_s, change.routes, change.up))
