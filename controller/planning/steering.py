"""Steering: the plan of one run, kept up to date. Pure; a back end tells what fails and what it measures.

HASHED and STATIC plans stay as they are made, whatever happens. A DYNAMIC one is made anew when links fail or come
back, and its bytes move to the channels that turn out to be faster: a link shares its rate evenly among flows and not
among bytes, so only a measurement shows what a channel gets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from controller.errors import PlanningError
from controller.placement import Connection, Placement
from controller.planning.planner import followed, hashed, moved, planned, replanned
from controller.planning.traffic import Demand, Flow
from controller.policy import RoutingPolicy
from topologies.model import Fabric, Failures, Gpu
from workloads.schedule import Schedule

CHANNELS = 8
"""Connections that a pair of GPUs of different domains has if nothing else is said."""

GAIN = 0.7
"""Share of the way to the measured division of bytes that one step goes."""

EVEN_ENOUGH = 0.03
"""A demand is left alone whose channels end so close together: the share of the slowest's time that the mean lacks."""


class PlanMode(str, Enum):
    """HASHED: every channel by its own hash. STATIC: planned once. DYNAMIC: and kept up to date."""

    HASHED = "hashed"
    STATIC = "static"
    DYNAMIC = "dynamic"


@dataclass(frozen=True)
class Planning:
    """How the traffic of a run is to be planned: connections of every pair, and for STATIC a placement to use as is."""

    mode: PlanMode
    channels: int = CHANNELS
    placement: Placement | None = None

    def __post_init__(self) -> None:
        if self.channels < 1:
            raise PlanningError(f"channels is {self.channels}; a pair needs 1 connection or more")
        if self.placement is not None and self.mode is not PlanMode.STATIC:
            raise PlanningError(f"a placement is a static plan: it does not go with the plan '{self.mode.value}'")

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form that :meth:`from_dict` reads back."""
        placement = self.placement.to_dict() if self.placement is not None else None
        return {"mode": self.mode.value, "channels": self.channels, "placement": placement}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Planning:
        """Inverse of :meth:`to_dict`."""
        placement = Placement.from_dict(data["placement"]) if data["placement"] is not None else None
        return cls(PlanMode(data["mode"]), data["channels"], placement)


def demands_of(fabric: Fabric, schedule: Schedule, planning: Planning) -> tuple[Demand, ...]:
    """A demand for every pair of GPUs of different domains that the schedule has transfers for, with all its bytes.

    With a placement only the pairs that it names, with the channels it gives them. Raises PlanningError where these
    are not numbered from 0 on without a gap.
    """
    job_of: dict[tuple[int, int], str] = {}
    for transfer in schedule.transfers:
        job_of.setdefault((transfer.src, transfer.dst), transfer.tag.group)
    channels = None if planning.placement is None else _channels_of(planning.placement)
    demands = []
    for (src_rank, dst_rank), size_bytes in schedule.bytes_by_pair().items():
        src, dst = fabric.gpu_of_rank(src_rank), fabric.gpu_of_rank(dst_rank)
        count = planning.channels if channels is None else channels.get((src, dst), 0)
        if src.domain != dst.domain and count:
            demands.append(Demand(job_of[src_rank, dst_rank], src, dst, size_bytes, count))
    return tuple(demands)


def _channels_of(placement: Placement) -> dict[tuple[Gpu, Gpu], int]:
    numbers: dict[tuple[Gpu, Gpu], set[int]] = defaultdict(set)
    for each in placement.links_of:
        numbers[each.src, each.dst].add(each.channel)
    for (src, dst), found in numbers.items():
        if found != set(range(len(found))):
            raise PlanningError(
                f"the placement's channels from {src.id} to {dst.id} are {', '.join(map(str, sorted(found)))}; a run "
                "divides bytes among channels 0, 1, 2, ... without a gap"
            )
    return {pair: len(found) for pair, found in numbers.items()}


class Steering:
    """The plan in force. ``unused`` are links that are broken or out of service already."""

    def __init__(
        self,
        fabric: Fabric,
        demands: Iterable[Demand],
        policy: RoutingPolicy,
        planning: Planning,
        unused: frozenset[str] = frozenset(),
    ) -> None:
        """Make the first plan."""
        self.fabric, self.planning = fabric, planning
        self._policy = replace(policy, placement=None)
        self._demands = tuple(demands)
        here = Failures(links=unused)
        if planning.mode is PlanMode.HASHED:
            self._first = hashed(fabric, self._demands, self._policy, here)
        elif planning.placement is not None:
            self._first = followed(fabric, self._demands, planning.placement, self._policy, here)
        else:
            self._first = planned(fabric, self._demands, self._policy, here)
        self.plan = self._first
        self.links_down = self._unused = unused
        self._measured: dict[Connection, float] = {}
        self._at = {(demand.src, demand.dst): at for at, demand in enumerate(self._demands)}

    @property
    def placement(self) -> Placement:
        """What the controller is to be told."""
        return self.plan.placement

    def shares_of(self, src: Gpu, dst: Gpu) -> tuple[float, ...]:
        """The shares of the bytes from ``src`` to ``dst`` that its channels carry, in their order."""
        at = self._at[src, dst]
        demand = self._demands[at]
        # What a channel without a path had at first stays with it.
        sizes = {flow.connection: flow.size_bytes for plan in (self._first, self.plan) for flow in plan.flows[at]}
        return tuple(sizes.get(each, 0.0) / demand.size_bytes for each in demand.connections)

    @property
    def shares(self) -> dict[tuple[Gpu, Gpu], tuple[float, ...]]:
        """What the senders are to be told: the shares of all pairs."""
        return {(demand.src, demand.dst): self.shares_of(demand.src, demand.dst) for demand in self._demands}

    def links_changed(self, links_down: frozenset[str]) -> None:
        """Other links are down now: channels go where the routing takes them, those without any path wait."""
        self.links_down = links_down
        here = Failures(links=links_down)
        self.plan = followed(self.fabric, self._demands, self.placement, self._policy, here, self._bytes())
        self._measured.clear()

    def replan(self) -> int:
        """Make the plan anew for what is broken, if it is a DYNAMIC one; how many channels are to take another path."""
        if self.planning.mode is not PlanMode.DYNAMIC:
            return 0
        before = self.plan
        if self.links_down == self._unused:
            self.plan = self._first
        else:
            here = Failures(links=self.links_down)
            self.plan = replanned(before, self.fabric, self._policy, here, reweight=False)
        return len(moved(before, self.plan))

    def _bytes(self) -> dict[Connection, float]:
        """Bytes of every channel, of those without a path what they had at first."""
        return {**self._first.bytes_of, **self.plan.bytes_of}

    def measured(self, each: Connection, size_bytes: float, duration_s: float) -> bool:
        """A channel has carried so much in that time; whether the shares of its pair have changed for it.

        A pair is looked at when all its channels have been measured since the last look.
        """
        if self.planning.mode is not PlanMode.DYNAMIC or duration_s <= 0 or (each.src, each.dst) not in self._at:
            return False
        at = self._at[each.src, each.dst]
        self._measured[each] = size_bytes / duration_s
        flows = self.plan.flows[at]
        if any(flow.size_bytes > 0 and flow.connection not in self._measured for flow in flows):
            return False
        rates = {flow.connection: self._measured.pop(flow.connection, 0.0) for flow in flows}
        level = levelled(flows, rates)
        if level is None:
            return False
        self.plan = replace(self.plan, flows=(*self.plan.flows[:at], level, *self.plan.flows[at + 1 :]))
        return True


def levelled(flows: tuple[Flow, ...], rates: dict[Connection, float]) -> tuple[Flow, ...] | None:
    """The channels of one demand with bytes nearer to their measured ``rates``; None where they end together as it is.

    The sum stays. A channel that carries nothing, and so has no rate, goes on carrying nothing.
    """
    times = [flow.size_bytes / rates[flow.connection] for flow in flows if rates[flow.connection] > 0]
    if not times or max(times) <= 0 or 1 - sum(times) / len(times) / max(times) < EVEN_ENOUGH:
        return None
    total, whole = sum(flow.size_bytes for flow in flows), sum(rates.values())
    return tuple(
        replace(flow, size_bytes=(1 - GAIN) * flow.size_bytes + GAIN * total * rates[flow.connection] / whole)
        for flow in flows
    )
