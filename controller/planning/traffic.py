"""What is planned: the demands of jobs, and a plan, which gives each of their channels a path and its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from controller.errors import PlanningError
from controller.placement import CHANNEL_BASE_PORT, Connection, Placement
from controller.routing import Path
from topologies.model import Fabric, Gpu, LinkKind

Lane = tuple[str, str]
"""One direction of a link: (link id, id of the switch that sends on it)."""

Loads = Mapping[Lane, float]
"""Bytes by lane."""


@dataclass(frozen=True)
class Demand:
    """``size_bytes`` from ``src`` to ``dst`` in each round of ``job``, divided among ``channels`` connections.

    The channels are numbered from ``first_channel``. Raises PlanningError for values that mean nothing.
    """

    job: str
    src: Gpu
    dst: Gpu
    size_bytes: float
    channels: int = 8
    first_channel: int = 0

    def __post_init__(self) -> None:
        where = f"job '{self.job}', {self.src.id} to {self.dst.id}"
        if self.src == self.dst:
            raise PlanningError(f"{where}: a GPU does not send to itself; name two different ones")
        if not 0 < self.size_bytes < float("inf"):
            raise PlanningError(f"{where}: size_bytes is {self.size_bytes}; it must be a number above 0")
        if self.channels < 1 or self.first_channel < 0:
            raise PlanningError(f"{where}: it needs 1 channel or more, numbered from 0 or more")

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Its channels."""
        numbers = range(self.first_channel, self.first_channel + self.channels)
        return tuple(Connection(self.src, self.dst, number) for number in numbers)


@dataclass(frozen=True)
class Flow:
    """One channel of a demand as planned: the lanes it crosses, host links left out, and its bytes in each round."""

    connection: Connection
    lanes: tuple[Lane, ...]
    size_bytes: float


@dataclass(frozen=True)
class Plan:
    """The flows of every demand, in the order of the demands; ``lost`` are the connections without a path."""

    demands: tuple[Demand, ...]
    flows: tuple[tuple[Flow, ...], ...]
    placement: Placement = field(repr=False)
    lost: tuple[Connection, ...] = ()

    @cached_property
    def loads(self) -> dict[Lane, float]:
        """Bytes of one round of all jobs on every lane that is used."""
        found: dict[Lane, float] = {}
        for flows in self.flows:
            add_load(found, flows)
        return found

    @property
    def bytes_of(self) -> dict[Connection, float]:
        """Bytes of every channel in each round: what the senders have to be told."""
        return {flow.connection: flow.size_bytes for flows in self.flows for flow in flows}

    def busiest_s(self, fabric: Fabric, background: Loads | None = None) -> float:
        """Seconds that the busiest lane needs for one round of all jobs at its full rate, ``background`` included."""
        loads = dict(self.loads)
        for lane, size_bytes in (background or {}).items():
            loads[lane] = loads.get(lane, 0.0) + size_bytes
        return max((size * 8e-6 / fabric.link(lane[0]).rate_mbps for lane, size in loads.items()), default=0.0)


def add_load(loads: dict[Lane, float], flows: Iterable[Flow], sign: int = 1) -> None:
    """Add the bytes of flows to ``loads``, or take them away with ``sign`` -1."""
    for flow in flows:
        for lane in flow.lanes:
            loads[lane] = loads.get(lane, 0.0) + sign * flow.size_bytes


def divided(size_bytes: int, shares: Sequence[float]) -> list[int]:
    """``size_bytes`` in whole parts in proportion to ``shares``, of which one must be above 0; the sum is exact."""
    whole = sum(shares)
    exact = [size_bytes * share / whole for share in shares]
    parts = [int(part) for part in exact]
    nearest = sorted(range(len(parts)), key=lambda at: parts[at] - exact[at])
    for at in nearest[: size_bytes - sum(parts)]:
        parts[at] += 1
    return parts


def lanes_of(fabric: Fabric, path: Path) -> tuple[Lane, ...]:
    """The lanes of a path, host links left out: they are the GPU's own memory."""
    links = ((fabric.link_by_port[hop.switch_id, hop.out_port], hop.switch_id) for hop in path.hops)
    return tuple((link.id, switch_id) for link, switch_id in links if link.kind is not LinkKind.HOST)


def check_demands(fabric: Fabric, demands: Iterable[Demand], base_port: int = CHANNEL_BASE_PORT) -> None:
    """Raise PlanningError for a channel that two demands claim, PlacementError for one that ``fabric`` can't have."""
    claimed: dict[Connection, str] = {}
    for demand in demands:
        for each in demand.connections:
            if each in claimed:
                raise PlanningError(
                    f"jobs '{claimed[each]}' and '{demand.job}' both use channel {each.channel} from {each.src.id} to "
                    f"{each.dst.id}; give one of them another first_channel"
                )
            claimed[each] = demand.job
    Placement.of(dict.fromkeys(claimed, ()), base_port).check(fabric)
