"""Routes: for every switch and destination the port to use, from ``(fabric, failures, policy)`` alone.

Next hops lie on shortest paths (hop count over live links between switches), so the distance falls at every hop and
no route can loop. A path may pass the switches of third GPUs: those GPUs relay. Ties are settled as
:mod:`controller.forwarding` says.

The healthy next hops are known in closed form, without any search; the tests hold the two against each other. After a
failure only what it moved is searched, and only among the switches it touches and their stand-ins.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

from controller.alike import Alike
from controller.errors import RouteError
from controller.forwarding import FAR, SPINE_KINDS, forwarding
from controller.placement import Connection
from controller.policy import RoutingPolicy
from controller.spread import Choices, choices
from topologies.model import HOST_PORT, NO_FAILURES, Fabric, Failures, Gpu, LinkKind, Switch, SwitchKind

MANY_PORTS = 64
"""Above so many ports, all that lead to untouched domains (from a spine: to untouched leaves) are looked at as one."""


@dataclass(frozen=True)
class Hop:
    """One switch on a path, with the ports by which a packet enters and leaves."""

    switch_id: str
    in_port: int
    out_port: int


@dataclass(frozen=True)
class Path:
    """The way from one GPU to another. ``links`` has the host links at both ends too; ``relays`` forward for others."""

    src: Gpu
    dst: Gpu
    hops: tuple[Hop, ...]
    links: tuple[str, ...]
    relays: tuple[Gpu, ...]


class Routes:
    """All routes of ``fabric`` under ``failures``, searched per destination when first asked for, then kept.

    A GPU that is down (its host link is unusable) neither sends nor receives.
    """

    def __init__(self, fabric: Fabric, failures: Failures = NO_FAILURES, policy: RoutingPolicy | None = None) -> None:
        """Raise UnknownElementError for failures, PlacementError for a placement, of what the fabric does not have."""
        self.fabric = fabric
        self.failures = failures
        self.policy = policy or RoutingPolicy()
        if self.policy.placement is not None:
            self.policy.placement.check(fabric)
        self.forwarding = forwarding(fabric, self.policy)
        self.links_down = fabric.links_down(failures)
        self.alike = Alike(self.forwarding, self.links_down)
        self._moved: dict[Gpu, dict[int, int]] = {}
        self._ports: dict[tuple[int, Gpu], tuple[int, ...]] = {}

    def alive(self, gpu: Gpu) -> bool:
        """Whether the GPU can send and receive at all."""
        return f"{gpu.id}-{gpu.switch_id}" not in self.links_down

    def ports(self, switch_id: str, dst: Gpu) -> tuple[int, ...]:
        """All ports of a switch on shortest live paths to ``dst``, in order; none where there is no path."""
        key = (self.forwarding.order[switch_id], dst)
        known = self._ports.get(key)
        if known is None:
            known = self._ports[key] = self._find_ports(*key)
        return known

    def preferred_ports(self, switch_id: str, dst: Gpu) -> tuple[int, ...]:
        """The ports among :meth:`ports` that policy prefers; several only where a hash decides."""
        spread = self.spread.ports.get((switch_id, dst))
        if spread is not None:
            return (spread,)
        return self.forwarding.preferred(self.fabric.switch_by_id[switch_id], dst, self.ports(switch_id, dst))

    def next_port(self, switch_id: str, src: Gpu, dst: Gpu, channel: int | None = None) -> int | None:
        """The port by which a packet from ``src`` to ``dst`` leaves the switch; None where there is no path.

        ``channel`` is that of a connection; only declared connections are told apart by it.
        """
        if channel is not None:
            each = Connection(src, dst, channel)
            port = self.placed_port(switch_id, each) or self.spread.connections.get((switch_id, each))
            if port is not None:
                return port
        spread = self.spread.pairs.get((switch_id, src, dst))
        if spread is not None:
            return spread
        ports = self.preferred_ports(switch_id, dst)
        if len(ports) < 2:
            return ports[0] if ports else None
        switch = self.fabric.switch_by_id[switch_id]
        return self.forwarding.choose(switch, self.forwarding.hash_key(switch, src, dst), ports)

    def placed_port(self, switch_id: str, connection: Connection) -> int | None:
        """The port that the connection's own links name at a switch, if that lies on a shortest path; never 0."""
        placement = self.policy.placement
        links = placement.links_of.get(connection) if placement is not None else None
        if not links:
            return None
        link_by_port = self.fabric.link_by_port
        ports = self.ports(switch_id, connection.dst)
        return next((port for port in ports if link_by_port[switch_id, port].id in links), None)

    def path(self, src: Gpu, dst: Gpu, channel: int | None = None) -> Path | None:
        """The way from ``src`` to ``dst``, or None if there is none; raises RouteError if they are the same.

        ``channel`` names one connection of the pair (see :mod:`controller.placement`).
        """
        if src == dst:
            raise RouteError(f"{src.id} needs no path to itself: name two different GPUs")
        if not self.alive(src) or not self.alive(dst):
            return None
        fabric = self.fabric
        switch_id, in_port = src.switch_id, HOST_PORT
        hops: list[Hop] = []
        links = [fabric.link_by_port[switch_id, in_port].id]
        relays: list[Gpu] = []
        while True:
            out_port = self.next_port(switch_id, src, dst, channel)
            if out_port is None:
                return None
            hops.append(Hop(switch_id, in_port, out_port))
            link = fabric.link_by_port[switch_id, out_port]
            links.append(link.id)
            switch = fabric.switch_by_id[switch_id]
            gpu = Gpu(switch.domain, switch.rail)
            if switch.kind is SwitchKind.GPU and gpu not in (src, dst):
                relays.append(gpu)
            if link.kind is LinkKind.HOST:
                return Path(src, dst, tuple(hops), tuple(links), tuple(relays))
            switch_id = link.other(switch_id)
            in_port = link.port(switch_id)

    def partitioned(self) -> tuple[tuple[Gpu, Gpu], ...]:
        """All ordered pairs of GPUs without a path, those of dead GPUs included."""
        if not self.links_down:
            return ()
        part = self._parts
        order = self.forwarding.order
        place = {gpu: part[order[gpu.switch_id]] if self.alive(gpu) else -1 for gpu in self.fabric.gpus}
        if len(set(place.values())) == 1 and -1 not in place.values():
            return ()
        return tuple(
            (src, dst)
            for src in self.fabric.gpus
            for dst in self.fabric.gpus
            if src != dst and (place[src] == -1 or place[src] != place[dst])
        )

    @cached_property
    def _parts(self) -> list[int]:
        """By switch index: the number of the connected part that the switch is in."""
        part = [-1] * len(self.fabric.switches)
        for start in range(len(part)):
            if part[start] >= 0:
                continue
            part[start] = start
            edge = [start]
            while edge:
                for _, neighbour, link_id in self.forwarding.neighbours[edge.pop()]:
                    if part[neighbour] < 0 and link_id not in self.links_down:
                        part[neighbour] = start
                        edge.append(neighbour)
        return part

    def _distance(self, here: int, dst: Gpu) -> int:
        if self.links_down:
            moved = self._moved_for(self.alike.destination(dst))
            if moved and (distance := moved.get(self.alike.switch(here, dst))) is not None:
                return distance
        return self.forwarding.distance(here, dst)

    def _find_ports(self, here: int, dst: Gpu) -> tuple[int, ...]:
        if not self.alive(dst):
            return ()
        if here == self.forwarding.order[dst.switch_id]:
            return (HOST_PORT,)
        nearer = self._distance(here, dst) - 1
        if nearer >= FAR - 1:
            return ()
        neighbours, down = self.forwarding.neighbours[here], self.links_down
        if len(neighbours) <= MANY_PORTS:
            return tuple(
                port
                for port, there, link_id in neighbours
                if link_id not in down and self._distance(there, dst) == nearer
            )
        return self._find_ports_of_many(here, dst, nearer)

    def _find_ports_of_many(self, here: int, dst: Gpu, nearer: int) -> tuple[int, ...]:
        """The same for a switch with many ports: those to untouched domains (or leaves) lead on all, or none does."""
        plan, alike, switch = self.forwarding, self.alike, self.fabric.switches[here]
        if switch.kind in SPINE_KINDS:
            special = sorted({*alike.units, alike.unit(dst.domain)})
        else:
            special = sorted({*alike.domains, dst.domain})

        def leads_on(port: int) -> bool:
            link = self.fabric.link_by_port[switch.id, port]
            there = plan.order[link.other(switch.id)]
            return link.id not in self.links_down and self._distance(there, dst) == nearer

        found = [port for port in plan.uplinks(switch.id) if leads_on(port)]
        for numbers, ports in plan.ports_by_rail(switch.id):
            apart = [
                place
                for number in special
                for place in range(bisect_left(numbers, number), bisect_right(numbers, number))
            ]
            rest = list(ports)
            for place in reversed(apart):
                del rest[place]
            found += [ports[place] for place in apart if leads_on(ports[place])]
            if rest and leads_on(rest[0]):
                found += rest
        return tuple(sorted(found))

    def _moved_for(self, dst: Gpu) -> dict[int, int]:
        """The stand-ins that are farther from the stand-in ``dst`` than when nothing is broken, with their distances.

        FAR stands for no way at all. They are found outwards from the dead links: a switch has moved away if all its
        next hops are dead or have moved away themselves.
        """
        known = self._moved.get(dst)
        if known is not None:
            return known
        moved = self._moved[dst] = {}
        near, down, healthy = self._near, self.links_down, self.forwarding.distance
        suspects = []
        for a, b in self._dead_links:
            from_a, from_b = healthy(a, dst), healthy(b, dst)
            if from_a != from_b:  # the farther end may have lost its next hop
                suspects.append((from_a, a) if from_a > from_b else (from_b, b))
        heapify(suspects)
        seen: set[int] = set()
        while suspects:
            distance, here = heappop(suspects)
            if here in seen or distance == 0:
                continue
            seen.add(here)
            if not any(
                link_id not in down and there not in moved and healthy(there, dst) == distance - 1
                for there, link_id in near[here]
            ):
                moved[here] = FAR
                for there, _ in near[here]:
                    if healthy(there, dst) == distance + 1:
                        heappush(suspects, (distance + 1, there))
        # Their new distances, nearest first, from the switches around them that have not moved.
        reached = []
        for here in moved:
            around = [
                healthy(there, dst) for there, link_id in near[here] if link_id not in down and there not in moved
            ]
            if around:
                reached.append((min(around) + 1, here))
        heapify(reached)
        while reached:
            distance, here = heappop(reached)
            if distance < moved[here]:
                moved[here] = distance
                for there, link_id in near[here]:
                    if link_id not in down and moved.get(there, 0) > distance + 1:
                        heappush(reached, (distance + 1, there))
        return moved

    @cached_property
    def _near(self) -> dict[int, list[tuple[int, str]]]:
        return self.alike.kept()

    @cached_property
    def _dead_links(self) -> tuple[tuple[int, int], ...]:
        """Both ends (indexes) of every dead link between switches, in order."""
        order = self.forwarding.order
        links = (self.fabric.link_by_id[link_id] for link_id in self.links_down)
        return tuple(sorted((order[link.a], order[link.b]) for link in links if link.kind is not LinkKind.HOST))

    @cached_property
    def hits(self) -> dict[int, set[Gpu]]:
        """By index of a stand-in, the stand-in destinations to which its preferred ports may not be the healthy ones.

        Switches that no packet can enter are left out. Elsewhere a next hop can only change where a healthy one is
        dead, at switches that have moved away from the destination, and behind those.
        """
        fabric, plan = self.fabric, self.forwarding
        kept = [Gpu(domain, rail) for domain in self.alike.kept_domains for rail in range(fabric.spec.rails)]
        found: dict[int, set[Gpu]] = {}
        changed: dict[Gpu, None] = {}
        for here in sorted({end for ends in self._dead_links for end in ends}):
            switch = fabric.switches[here]
            dead = {port for port, _, link_id in plan.neighbours[here] if link_id in self.links_down}
            if self.isolated(switch):
                continue
            for each in kept:
                if not dead.isdisjoint(plan.healthy_ports(switch, each)):
                    dst = self.alike.destination(each)
                    found.setdefault(self.alike.switch(here, each), set()).add(dst)
                    changed[dst] = None
        for dst in changed:
            for here in self._moved_for(dst):
                found.setdefault(here, set()).add(dst)
                behind = plan.distance(here, dst) + 1
                for there, _ in self._near[here]:
                    if plan.distance(there, dst) == behind:
                        found.setdefault(there, set()).add(dst)
        return found

    @cached_property
    def spread(self) -> Choices:
        """Where orphaned pairs leave the preferred ports, so that the surviving rails carry equally much."""
        return choices(self) if self.links_down else Choices({}, {}, {})

    @cached_property
    def dead_gpus(self) -> tuple[Gpu, ...]:
        """GPUs that are down: no packet for them is to go anywhere."""
        host_links = (self.fabric.link_by_id[link_id] for link_id in self.links_down)
        return tuple(sorted(self.fabric.gpu_by_id[link.a] for link in host_links if link.kind is LinkKind.HOST))

    def isolated(self, switch: Switch) -> bool:
        """Whether no packet can enter the switch: all its links are down."""
        return all(link.id in self.links_down for link in self.fabric.links_of(switch.id))
