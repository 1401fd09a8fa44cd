"""Keeps a plan in force on a live fabric during one run: probes paths, places connections, tells the senders.

The run plans, not the controller: only the run knows its demands and what its channels were measured to carry. The
controller is told placements through its northbound interface, the agent the shares of bytes.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from controller.placement import Connection, Placement
from controller.planning.probing import condemned, placement_of, probes_for
from controller.planning.steering import PlanMode, Planning, Steering, demands_of
from controller.planning.traffic import Demand
from emulator.agent_replay import AgentReplay, Measured, Shares
from emulator.errors import ControllerError, ReplayError
from emulator.northbound_client import put
from emulator.path_probe import answered
from topologies.model import Failures
from workloads.records import Event, EventKind
from workloads.schedule import Schedule

if TYPE_CHECKING:
    from emulator.emulation import Emulation

PLACE_TIMEOUT_S = 20.0
LOOK_S = 0.02
"""How often the controller's events are looked at for new routes."""


class Director:
    """The plan of one run on a live fabric. What it does is in :attr:`events` and, in words, :attr:`notes`."""

    def __init__(self, emulation: Emulation, schedule: Schedule, planning: Planning) -> None:
        """Probe the paths, make the plan and place its connections.

        A HASHED plan is not probed, as a network that hashes knows no better. Raises ReplayError for a fabric whose
        controller is not Railbed's, ControllerError if it does not answer.
        """
        if emulation.choice.foreign:
            raise ReplayError("traffic is planned with Railbed's own controller only: leave out --controller")
        self._emulation, self._fabric = emulation, emulation.fabric
        self.notes: list[str] = []
        self.events: list[Event] = []
        demands = demands_of(self._fabric, schedule, planning)
        self._drained: frozenset[str] = frozenset()
        if planning.mode is not PlanMode.HASHED:
            self._probe(demands)
        unused = frozenset(emulation.links.links_unused())
        self._steering = Steering(self._fabric, demands, emulation.policy, planning, unused)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._replay: AgentReplay | None = None
        self._start_s = 0.0
        self._seen = len(emulation.controller.events)
        self._place(self._steering.placement)
        self._thread = threading.Thread(target=self._watch, name="director", daemon=True)

    def _probe(self, demands: tuple[Demand, ...]) -> None:
        """Take links out of service for this run that do not carry anything although their ports are up.

        So nothing else goes over them either, such as the acknowledgements of planned connections.
        """
        links, policy = self._emulation.links, self._emulation.policy
        probes = probes_for(self._fabric, demands, policy, Failures(links=frozenset(links.links_unused())))
        if not probes:
            return
        self._place(placement_of(probes))
        broken = condemned(probes, answered(self._emulation.devices.namespaces, probes))
        found = f"broken and not used: {', '.join(sorted(broken))}" if broken else "all work"
        self.notes.append(f"{len(probes)} paths probed: {found}")
        for link_id in sorted(broken):
            links.drain(link_id)
        self._drained = broken

    def _place(self, placement: Placement | None) -> None:
        """Have the controller place connections anew (None: as at the start), and wait until that is in force."""
        controller = self._emulation.controller
        since = len(controller.events)
        put("/placement", placement.to_dict() if placement is not None else None)
        controller.wait_for(
            lambda event: event["event"] == "placed", PLACE_TIMEOUT_S, "the placement is not in force", since
        )

    @property
    def shares(self) -> Shares:
        """By pair of ranks, the shares of the bytes that its channels are to carry now."""
        rank = self._fabric.rank
        return {(rank(src), rank(dst)): shares for (src, dst), shares in self._steering.shares.items()}

    def begin(self, replay: AgentReplay, start_s: float) -> None:
        """The run starts at the monotonic ``start_s``: watch the controller from now on."""
        self._replay, self._start_s = replay, start_s
        self._thread.start()

    def measured(self, parts: Measured) -> None:
        """Channels were measured: shift bytes to the faster ones, unless a new plan is just being made."""
        if self._replay is None or not self._lock.acquire(blocking=False):
            return
        try:
            changed: dict[tuple[int, int], tuple[float, ...]] = {}
            for src_rank, dst_rank, channel, size_bytes, duration_s in parts:
                src, dst = self._fabric.gpu_of_rank(src_rank), self._fabric.gpu_of_rank(dst_rank)
                if self._steering.measured(Connection(src, dst, channel), size_bytes, duration_s):
                    changed[src_rank, dst_rank] = self._steering.shares_of(src, dst)
            if changed:
                self._replay.set_shares(changed)
        finally:
            self._lock.release()

    def _watch(self) -> None:
        """Follow every change of routes with a new plan, until the run is over."""
        while not self._over.wait(LOOK_S):
            events = self._emulation.controller.events
            now, self._seen = events[self._seen :], len(events)
            repaired = [event for event in now if event["event"] == "repaired"]
            if repaired:
                try:
                    self._follow(frozenset(repaired[-1]["links_down"]))
                except ControllerError as error:
                    self.events.append(Event(self._now_s(), EventKind.NOTE, "plan", f"not planned anew: {error}"))

    def _follow(self, links_down: frozenset[str]) -> None:
        with self._lock:
            began_s = time.monotonic()
            self._steering.links_changed(links_down)
            if self._steering.planning.mode is not PlanMode.DYNAMIC:
                return
            count = self._steering.replan()
            planned_s = time.monotonic()
            self._place(self._steering.placement)
            assert self._replay is not None
            self._replay.set_shares(self.shares)
            detail = f"planned in {planned_s - began_s:.2f} s, placed in {time.monotonic() - planned_s:.2f} s"
            self.events.append(Event(self._now_s(), EventKind.REPLANNED, f"{count} connections", detail))

    def _now_s(self) -> float:
        return time.monotonic() - self._start_s

    def finish(self) -> None:
        """The run is over: connections go as before it."""
        self._over.set()
        if self._replay is not None:
            self._thread.join()
        self._place(None)
        for link_id in sorted(self._drained):
            self._emulation.links.drain(link_id, on=False)
