"""The fluid model: every flow has its max-min fair rate at every instant, and nothing else takes time.

Between two events (a transfer ends, a link changes, routes change) all rates are constant, so the run is exact up to
rounding. Start-up, slow start, acknowledgements, queues and loss are not modelled.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.changes import Change, changes_of, dead_ends, not_modelled
from simulator.classes import partition, paths_of_classes
from simulator.errors import SimulationError
from simulator.filling import TIE, join, leave, run, settle
from simulator.folding import first_members
from simulator.gates import Gates
from simulator.network import CLOCK, Network, network
from simulator.outcome import Counters, Flows, Reports, transfer_records
from simulator.paths import NO_LINK, PairPaths, Router, link_positions, pair_links
from simulator.work import is_phased, work_of
from topologies.model import Fabric, Failures
from topologies.scale import Scale
from workloads.failures import FailureKind, LinkFailure, check_failures
from workloads.operations import no_collector
from workloads.records import (
    Event,
    EventKind,
    RunRecord,
)
from workloads.schedule import Schedule

BACKEND = "simulator"

TCP_GOODPUT = 1448 / 1514
"""Payload share of a full Ethernet frame: MTU 1500, IPv4 and TCP with time stamps, 14 bytes of Ethernet header."""

REPAIR_DELAY_S = 0.1
"""Default time from a link's change to the new routes being in force, in emulated seconds."""

NOTES = (
    "Fluid model: max-min fair rates at every instant; TCP start-up, queues, loss and acknowledgements take no time.",
)

EACH_EVENT = 20_000
"""Items up to which link counters are sampled at every event; beyond, every BATCH ends."""

BATCH = 64

Told = Callable[[float], None]
"""Told the share that is done."""


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
    latency_s: float = 0.0,
    goodput: float = TCP_GOODPUT,
    seed: int = 0,
    fold: bool = True,
    merge: float = 0.0,
    report_s: float | None = None,
    progress: Told | None = None,
) -> RunRecord:
    """Run a schedule on a fabric; times, sizes and rates of the result are emulated ones of ``scale``.

    ``Scale(1, 1)`` gives those of the real machine. ``goodput`` is the payload share of a link's rate; link counters
    hold frames, payload / goodput. While a link is down, flows over it stand still until ``repair_delay_s`` later the
    new routes hold; after it is up again, the old routes come back with the same delay. A blackhole changes routes
    after ``silent_repair_delay_s`` (None: never, as nothing notices it), a degraded link never does; delay and loss
    change nothing here, which the record's notes say. ``start_delay_s`` passes
    between the end of what a transfer waits for (its own delay included) and its first byte: what a back end needs to
    start it. ``latency_s`` passes between a transfer's last byte leaving and its end at the receiver. A transfer that
    loses its path fails; what waited for it goes on.

    With ``fold`` equal transfers are solved once; the result is the same. With ``merge``, flows that end within this
    share of the time since the last start, after the first that ends, keep their own end times, but what they leave is
    given to the others only at the last of these. With ``report_s`` the record's ``progress`` tells every so many
    seconds what the transfers on their way have brought. ``progress`` is told the share done.
    Raises SimulationError, ScheduleError or UnknownElementError for parts that do not fit together.
    """
    check_failures(fabric, failures)
    delays_s = {"repair_delay_s": repair_delay_s, "start_delay_s": start_delay_s, "latency_s": latency_s}
    check_parts(fabric, schedule.name, schedule.ranks, goodput, delays_s)
    if not 0 <= merge < 1:
        raise SimulationError(f"merge is {merge}; it must be a share, 0 or more and below 1")
    if report_s is not None and not report_s > 0:
        raise SimulationError(f"report_s is {report_s}; it must be above 0")
    times = Times(start_delay_s, latency_s, merge, report_s)
    changes = changes_of(failures, repair_delay_s, silent_repair_delay_s)
    with no_collector():
        whole = _Run(fabric, schedule, router, scale, tuple(failures), changes, times, goodput, seed, fold)
        return whole.run(progress)


def check_parts(fabric: Fabric, name: str, ranks: int, goodput: float, delays_s: Mapping[str, float]) -> None:
    """Raise SimulationError unless the schedule called ``name``, ``goodput`` and the delays by name fit ``fabric``."""
    if ranks != len(fabric.gpus):
        raise SimulationError(f"schedule '{name}' is for {ranks} ranks, but the fabric has {len(fabric.gpus)} GPUs")
    _check_links(fabric)
    if not 0 < goodput <= 1:
        raise SimulationError(f"goodput is {goodput}; it must be above 0 and at most 1")
    for delay, delay_s in delays_s.items():
        if not delay_s >= 0:
            raise SimulationError(f"{delay} is {delay_s}; it must be 0 or more")


def _check_links(fabric: Fabric) -> None:
    """Raise SimulationError for a link without capacity."""
    for link in fabric.links:
        if not (link.rate_mbps > 0 and math.isfinite(link.rate_mbps)):
            raise SimulationError(
                f"link {link.id} has a rate of {link.rate_mbps:g} Mbit/s; it must be above 0 (to break a link, fail it)"
            )


@dataclass(frozen=True)
class Times:
    """Delays in emulated seconds, the share of the time within which ends are merged, and the time between reports."""

    start_delay_s: float
    latency_s: float
    merge: float
    report_s: float | None


class _Run:
    """One run. Its items are classes of transfers and computations; without folding, each its own class."""

    def __init__(
        self,
        fabric: Fabric,
        schedule: Schedule,
        router: Router,
        scale: Scale,
        failures: tuple[LinkFailure, ...],
        changes: Sequence[Change],
        times: Times,
        goodput: float,
        seed: int,
        fold: bool,
    ) -> None:
        self.fabric, self.schedule, self.router, self.scale = fabric, schedule, router, scale
        self.failures, self.times, self.goodput, self.seed = failures, times, goodput, seed
        self.positions = link_positions(fabric)
        rates_mbps = np.array([scale.emulated_rate_mbps(link.rate_mbps) for link in fabric.links])
        wire = np.repeat(rates_mbps * 1e6 / 8, 2)  # bytes per second of frames, per directed link
        self.changes = deque(changes)
        self.work = work_of(schedule, scale)
        self.broken: list[LinkFailure] = []
        self.dead: set[int] = set()  # classes of links that carry nothing
        self.lost_routes: Counter[str] = Counter()  # how many failures have taken each link out of the routes
        self.routed_down: frozenset[str] = frozenset()
        self._rows: dict[frozenset[str], NDArray[np.int32]] = {}
        self._check_paths()
        self.part = partition(self.work, fabric, changes, self._paths, fold)
        self.member = first_members(self.part.items)
        self.link_member = first_members(self.part.links)
        self.room = wire[self.link_member] * goodput
        self.gates = Gates(self.part, self.work, self.member)
        self.is_phased = is_phased(self.work)
        # What happens at a known time: items start, or items end. A heap; the number of the entry keeps what falls on
        # the same instant in order.
        self.timers: list[tuple[float, int, Sequence[int], Sequence[int]]] = []
        self.timers_set = 0
        self.last_computation_s: float | None = None
        self.flows = int((self.member < self.work.transfers).sum())
        self.size = self.work.size_bytes[self.member[: self.flows]]
        self.start = np.full(self.flows, np.nan)
        self.end = np.full(self.flows, np.nan)
        self.left = self.size.astype(np.float64)
        self.complete = np.zeros(self.flows, dtype=bool)
        self.incomplete: set[int] = set()
        self.reasons: dict[int, str] = {}
        self.running = np.zeros(self.flows, dtype=bool)  # started and not ended: moving or standing still
        self.still: set[int] = set()
        self.done = 0
        self.now_s = 0.0
        self.last_start_s = 0.0
        self.events: list[Event] = []
        self.reports = Reports(times.report_s)
        self.net = self._network(None)
        self.counters = Counters(self.net, failures)

    # -- before the run -----------------------------------------------------------------------------------------------

    def _paths(self, routed_down: frozenset[str]) -> NDArray[np.int32]:
        """Directed links of all transfers while the routes know these links to be down."""
        if routed_down not in self._rows:
            paths: PairPaths = self.router(Failures(links=routed_down))
            self._rows[routed_down] = pair_links(self.fabric, self.positions, paths, self.work.src, self.work.dst)
        return self._rows[routed_down]

    def _check_paths(self) -> None:
        missing = np.flatnonzero(self._paths(frozenset())[:, 0] == NO_LINK)
        if len(missing):
            src, dst = (self.fabric.gpu_of_rank(int(one[missing[0]])).id for one in (self.work.src, self.work.dst))
            raise SimulationError(f"'{self.schedule.name}' sends from {src} to {dst}, but no path leads there")

    def _network(self, old: Network | None) -> Network:
        """The flows over their present paths; nothing moves yet. Bytes that links have carried are kept."""
        rows = self._paths(self.routed_down)
        self.pathless = rows[self.member[: self.flows], 0] == NO_LINK
        net = network(self.room, *paths_of_classes(rows, self.part, self.member[: self.flows]), self.left)
        if old is not None:
            net.carried[:] = old.carried
            net.room[:] = old.room
            net.state[CLOCK] = old.state[CLOCK]
            net.used_since[:] = self.now_s
        self.waited = self.gates.is_waited_for[: self.flows].astype(np.uint8)
        if self.times.latency_s:
            self.waited[:] = 1
        self.ended, self.ends = np.zeros(self.flows + 1, dtype=np.int32), np.zeros(self.flows + 1)
        return net

    # -- the run ------------------------------------------------------------------------------------------------------

    def run(self, progress: Told | None) -> RunRecord:
        """All events until nothing can move any more."""
        most = 1 if len(self.member) <= EACH_EVENT else BATCH
        self._apply_changes()
        self._open_gates()
        while self.running.any() or self.timers:
            until = min(self.changes[0].t_s if self.changes else np.inf, self.timers[0][0] if self.timers else np.inf)
            if self.running.sum() > len(self.still):
                until = min(until, self.reports.due_s)
            merge, started = self.times.merge, self.last_start_s
            count = run(self.net, until, merge, started, self.waited, self.ended, self.ends, most)
            if not count and until == np.inf:
                break
            self.now_s = float(self.net.state[CLOCK])
            ended, ends = self.ended[:count].astype(np.int64), self.ends[:count].copy()
            self.running[ended] = False
            self._apply_changes()
            self._end(ended, ends)
            self._open_gates()
            while self.timers and self.timers[0][0] <= self.now_s * (1 + TIE):
                self._ring(*heapq.heappop(self.timers)[2:])
                self._open_gates()
            self.counters.sample(self.net, self.now_s)
            if self.now_s * (1 + TIE) >= self.reports.due_s:
                self.reports.take(self.net, self.now_s, self.size, np.flatnonzero(self.running).tolist())
            if progress is not None:
                progress(self.done / max(1, self.flows))
        self._give_up()
        return self._record()

    def _class_of_end(self, failure: LinkFailure, end: int) -> int:
        return int(self.part.links[2 * self.positions[failure.link_id] + end])

    def _move(self, flows: Sequence[int]) -> None:
        """Let flows that have started move, or stand still where their path is cut."""
        moving = flows
        if self.dead:
            first, link = self.net.first, self.net.link
            moving = [flow for flow in flows if self.dead.isdisjoint(link[first[flow] : first[flow + 1]].tolist())]
            self.still.update(set(flows) - set(moving))
        if moving:
            join(self.net, np.array(moving, dtype=np.int32))

    def _stop(self, flow: int) -> None:
        if flow in self.still:
            self.still.discard(flow)
        elif self.net.place[flow] >= 0:
            leave(self.net, flow)

    def _apply_changes(self) -> None:
        due = []
        while self.changes and self.changes[0].t_s <= self.now_s * (1 + TIE):
            due.append(self.changes.popleft())
        if not due:
            return
        unfinished = np.flatnonzero(self.running).tolist()
        for flow in unfinished:
            self._stop(flow)
        settle(self.net)
        for change in due:
            if change.routes:
                self.lost_routes[change.failure.link_id] += -1 if change.up else 1
            else:
                self._change_wire(change)
        self.dead = {self._class_of_end(failure, end) for failure in self.broken for end in dead_ends(failure)}
        rerouted = [change for change in due if change.routes]
        for change in rerouted:
            state_text = "up" if change.up else "down"
            self.events.append(Event(change.t_s, EventKind.REROUTED, change.failure.link_id, f"link {state_text}"))
        self.left = self.net.left.copy()
        if rerouted:
            self.routed_down = frozenset(+self.lost_routes)
            self.net = self._network(self.net)
        self._move([flow for flow in unfinished if not self.pathless[flow]])
        for flow in unfinished:
            if self.pathless[flow]:
                self._fail(flow)

    def _change_wire(self, change: Change) -> None:
        failure = change.failure
        (self.broken.remove if change.up else self.broken.append)(failure)
        if failure.kind is FailureKind.DOWN:
            kind = EventKind.LINK_UP if change.up else EventKind.LINK_DOWN
            self.events.append(Event(change.t_s, kind, failure.link_id))
            return
        kind = EventKind.MENDED if change.up else EventKind.IMPAIRED
        self.events.append(Event(change.t_s, kind, failure.link_id, failure.text))
        if failure.kind is FailureKind.DEGRADE:
            self.net.room[:] = self.room
            for broken in self.broken:
                if broken.kind is FailureKind.DEGRADE:
                    for end in (0, 1):
                        self.net.room[self._class_of_end(broken, end)] *= broken.rate_share

    def _end(self, flows: NDArray[np.int64], ends: NDArray[np.float64]) -> None:
        """The last bytes of flows have left."""
        if not self.times.latency_s:
            self._arrive(flows, ends)
            return
        for end_s in np.unique(ends).tolist():
            self._set_timer(end_s + self.times.latency_s, (), flows[ends == end_s].tolist())

    def _arrive(self, flows: NDArray[np.int64], ends: NDArray[np.float64] | float) -> None:
        self.end[flows] = ends
        self.complete[flows] = True
        self.done += len(flows)
        self.gates.passed(flows)

    def _open_gates(self) -> None:
        """Start what has nothing left to wait for; a transfer that fails at once may open the next gate."""
        while self.gates.opening:
            self._open(self.gates.opening.popleft())

    def _open(self, gate: int) -> None:
        members = self.gates.items[gate]
        flows = members[members < self.flows]
        for item in members[members >= self.flows].tolist():
            duration_s = float(self.work.duration_s[self.member[item] - self.work.transfers])
            self._set_timer(self.now_s + duration_s, (), (item,))
        if self.is_phased and len(flows):
            transfer = self.schedule.transfers[int(self.member[flows[0]])]
            if transfer.after:
                self.events.append(Event(self.now_s, EventKind.PHASE_END, str(transfer.tag.phase - 1)))
            self.events.append(
                Event(self.now_s, EventKind.PHASE_START, str(transfer.tag.phase), transfer.tag.operation)
            )
        delays = self.work.delay_s[self.member[flows]]
        for delay_s in np.unique(delays).tolist():
            together = flows[delays == delay_s].tolist()
            wait_s = delay_s + self.times.start_delay_s
            if wait_s:
                self._set_timer(self.now_s + wait_s, together, ())
            else:
                self._start(together)

    def _set_timer(self, t_s: float, starting: Sequence[int], ending: Sequence[int]) -> None:
        heapq.heappush(self.timers, (t_s, self.timers_set, starting, ending))
        self.timers_set += 1

    def _ring(self, starting: Sequence[int], ending: Sequence[int]) -> None:
        """What a timer was set for: transfers start, computations end, last bytes arrive."""
        items = np.array(ending, dtype=np.int64)
        flows, computations = items[items < self.flows], items[items >= self.flows]
        self._arrive(flows, self.now_s)
        if len(computations):
            self.last_computation_s = self.now_s
            self.gates.passed(computations)
        if starting:
            self._start(starting)

    def _start(self, flows: Sequence[int]) -> None:
        self.last_start_s = self.now_s
        lost = [flow for flow in flows if self.pathless[flow]] if self.routed_down else []
        able = [flow for flow in flows if not self.pathless[flow]] if lost else flows
        self.start[able] = self.now_s
        self.running[able] = True
        self._move(able)
        for flow in lost:
            self._fail(flow)

    def _fail(self, flow: int) -> None:
        self.running[flow] = False
        self.done += 1
        for at in self._members(flow):
            transfer = self.schedule.transfers[at]
            src, dst = self.fabric.gpu_of_rank(transfer.src).id, self.fabric.gpu_of_rank(transfer.dst).id
            reason = f"no path from {src} to {dst} while {', '.join(sorted(self.routed_down))} is down"
            self.reasons[at] = reason
            self.events.append(Event(self.now_s, EventKind.TRANSFER_FAILED, str(transfer.id), reason))
        self.gates.passed(np.array([flow]))

    def _members(self, item: int) -> list[int]:
        return [int(at) for at in np.flatnonzero(self.part.items == item)]

    # -- after the run ------------------------------------------------------------------------------------------------

    def _give_up(self) -> None:
        """Say of what stands still for ever why: it crosses a link that is down and was never routed around."""
        rows = self._paths(self.routed_down)
        for flow in np.flatnonzero(self.running).tolist():
            self._stop(flow)
            self.incomplete.add(flow)
            for at in self._members(flow):
                crossed = set(rows[at].tolist())
                cut = {
                    f"{failure.link_id} was {failure.text}"
                    for failure in self.broken
                    for end in dead_ends(failure)
                    if 2 * self.positions[failure.link_id] + end in crossed
                }
                self.reasons[at] = f"stood still: {', '.join(sorted(cut))} and no route led around it"

    def _record(self) -> RunRecord:
        if self.is_phased and self.flows and not self.running.any():
            last = max(transfer.tag.phase for transfer in self.schedule.transfers)
            self.events.append(Event(self.now_s, EventKind.PHASE_END, str(last)))
        flows = Flows(self.part.items, self.work.size_bytes, self.start, self.end, self.complete, self.net.left,
                      self.incomplete, self.reasons)  # fmt: skip
        return RunRecord(
            backend=BACKEND,
            fabric=self.fabric.spec,
            scale=self.scale,
            schedule=self.schedule,
            failures=self.failures,
            seed=self.seed,
            transfers=transfer_records(self.schedule.transfers, flows),
            links=self.counters.series(self.fabric, self.part.links, self.goodput),
            events=tuple(sorted(self.events, key=lambda event: event.t_s)),
            notes=(*NOTES, *not_modelled(self.failures)),
            last_computation_s=self.last_computation_s,
            progress=self.reports.progress(self.schedule.transfers, self.part.items),
        )
