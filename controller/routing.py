"""Routes: for every switch and destination the port to use, from ``(fabric, failures, policy)`` alone.

Next hops lie on shortest paths (hop count over live links between switches), so the distance falls at every hop and
no route can loop. A path may pass the switches of third GPUs: those GPUs relay. Ties are settled by these rules:

- GPU switch: NVLink first inside the own domain; else NVLink first for source-side relay, NIC first for
  destination-side relay and on fabrics with spines. Of two NIC uplinks the domains' parity decides.
- NVSwitch: the GPU on the destination's rail; where that is no choice (after a failure), the surviving rails in turn.
- Rail switch: where any domain could turn the traffic to another rail (a GPU without NVLink), the domains in turn.
- Leaf: spines before a GPU that would relay; among several uplinks, and among parallel links at a spine, the highest
  of seeded hashes (rendezvous hashing), so that a failure moves only the pairs that used the dead link.

The healthy next hops are also known in closed form, without any search; the tests hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heappush

from controller.errors import RouteError
from controller.policy import Relay, RoutingPolicy
from controller.selectors import Selector, coarse_class, domain_of, exact, hash_class
from topologies.model import (
    HOST_PORT,
    NO_FAILURES,
    NVLINK_PORT,
    Fabric,
    Failures,
    Gpu,
    Link,
    LinkKind,
    Switch,
    SwitchKind,
)

LEAF_KINDS = frozenset({SwitchKind.LEAF, SwitchKind.RAIL_LEAF})
SPINE_KINDS = frozenset({SwitchKind.SPINE, SwitchKind.RAIL_SPINE})

_WORD = (1 << 64) - 1
_TIER_SALT = {SwitchKind.LEAF: 1, SwitchKind.RAIL_LEAF: 1, SwitchKind.SPINE: 2, SwitchKind.RAIL_SPINE: 2}


FAR = 1 << 30
"""A distance that no path has."""

_Place = tuple[SwitchKind, bool, bool, bool]
"""How a switch lies to a destination: its kind; whether it has the same domain, the same rail, the same leaves."""


@dataclass(frozen=True)
class HashKey:
    """What the path hash of a switch looks at. ``src`` None: the source is not told apart."""

    src: Selector | None
    dst: Selector


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


def _mixed(word: int) -> int:
    """The finaliser of SplitMix64: a bijection of 64-bit words in which every input bit moves every output bit."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def _absorbed(state: int, words: Iterable[int]) -> int:
    for word in words:
        state = _mixed((state + 0x9E3779B97F4A7C15 + word) & _WORD)
    return state


class Forwarding:
    """The part of routing that no failure changes: closed-form healthy next hops, preferences and the path hash."""

    def __init__(self, fabric: Fabric, policy: RoutingPolicy) -> None:
        """Index the fabric once; prefer :func:`forwarding`, which keeps the result."""
        self.fabric = fabric
        self.policy = policy
        self.relay = policy.relay_on(fabric)
        self.order = {switch.id: index for index, switch in enumerate(fabric.switches)}
        self.neighbours: list[list[tuple[int, int, str]]] = [[] for _ in fabric.switches]
        """By switch index: (port, index of the neighbour switch, link id), in port order."""
        self._nic_ports: dict[str, list[int]] = {}
        self._nvlink_port: dict[tuple[int, int], int] = {}
        self._down_port: dict[str, dict[Gpu, int]] = {}
        self._domain_port: dict[str, dict[int, int]] = {}
        self._uplinks: dict[str, tuple[int, ...]] = {}
        self._leaf_ports: dict[str, dict[str, tuple[int, ...]]] = {}
        self._leaf_of: dict[tuple[int, Gpu], str] = {}
        self._healthy_choice: dict[tuple[str, HashKey], int] = {}
        self._native_sources: dict[str, frozenset[Selector]] = {}
        self._distances: dict[_Place, int] = {}
        self._beside: dict[str, dict[int, list[int]]] = {}
        self._coarse_classes = tuple(sorted({coarse_class(gpu) for gpu in fabric.gpus}))
        for link in fabric.links:
            if link.kind is not LinkKind.HOST:
                self._add(link)
        for neighbours in self.neighbours:
            neighbours.sort()

    def _add(self, link: Link) -> None:
        fabric = self.fabric
        a, b = self.order[link.a], self.order[link.b]
        self.neighbours[a].append((link.a_port, b, link.id))
        self.neighbours[b].append((link.b_port, a, link.id))
        lower = fabric.switch_by_id[link.a]
        if link.kind is LinkKind.NVLINK:
            self._nvlink_port[lower.domain, lower.rail] = link.b_port
        elif link.kind is LinkKind.NIC:
            gpu = Gpu(lower.domain, lower.rail)
            self._nic_ports.setdefault(link.a, []).append(link.a_port)
            self._down_port.setdefault(link.b, {})[gpu] = link.b_port
            self._domain_port.setdefault(link.b, {})[gpu.domain] = link.b_port
            self._leaf_of[fabric.switch_by_id[link.b].plane, gpu] = link.b
        else:
            self._uplinks[link.a] = (*self._uplinks.get(link.a, ()), link.a_port)
            ports = self._leaf_ports.setdefault(link.b, {})
            ports[link.a] = (*ports.get(link.a, ()), link.b_port)

    def uplinks(self, switch_id: str) -> tuple[int, ...]:
        """Ports of a leaf that lead to spines."""
        return self._uplinks.get(switch_id, ())

    def nic_ports(self, switch_id: str) -> list[int]:
        """NIC ports of a GPU switch: none on the ideal fabric, two for dual-homed NICs."""
        return self._nic_ports.get(switch_id, [])

    def ports_beside(self, switch_id: str, port: int) -> list[int]:
        """All ports that lead to the same switch as ``port``, itself included, in order."""
        known = self._beside.get(switch_id)
        if known is None:
            by_neighbour: dict[int, list[int]] = {}
            for own, neighbour, _ in self.neighbours[self.order[switch_id]]:
                by_neighbour.setdefault(neighbour, []).append(own)
            known = self._beside[switch_id] = {own: ports for ports in by_neighbour.values() for own in ports}
        return known[port]

    def ports_to_other_rails(self, switch_id: str, port: int) -> list[int]:
        """Of a spine: ports to the leaves that have the same domains as the leaf at ``port``, next rail first."""
        neighbours = self.neighbours[self.order[switch_id]]
        switches = self.fabric.switches
        leaf = next(switches[neighbour] for own, neighbour, _ in neighbours if own == port)
        rails = self.fabric.spec.rails
        found = [
            ((switches[neighbour].rail - leaf.rail) % rails, own)
            for own, neighbour, _ in neighbours
            if switches[neighbour].unit == leaf.unit and switches[neighbour].id != leaf.id
        ]
        return [own for _, own in sorted(found)]

    def gpus_below(self, switch_id: str) -> dict[Gpu, int]:
        """GPUs whose NIC ends at this leaf or rail switch, with the port of each."""
        return self._down_port.get(switch_id, {})

    def domains_below(self, switch_id: str) -> dict[int, int]:
        """Domains joined to this rail switch or rail leaf, with the port of each."""
        return self._domain_port.get(switch_id, {})

    def healthy_ports(self, switch: Switch, dst: Gpu) -> tuple[int, ...]:
        """Ports towards ``dst`` when nothing is broken, after preferences; more than one only where a hash decides."""
        kind = switch.kind
        if kind is SwitchKind.GPU:
            return (self._healthy_port_of_gpu(switch, dst),)
        if kind is SwitchKind.NVSWITCH:
            return (self._nvlink_port[switch.domain, dst.rail],)
        if kind is SwitchKind.RAIL:
            return (self._domain_port[switch.id][dst.domain],)
        if kind is SwitchKind.RAIL_LEAF:
            port = self._domain_port[switch.id].get(dst.domain)
            return self._uplinks[switch.id] if port is None else (port,)
        if kind is SwitchKind.LEAF:
            port = self._down_port[switch.id].get(dst)
            return self._uplinks[switch.id] if port is None else (port,)
        on_plane = dst if kind is SwitchKind.SPINE else Gpu(dst.domain, switch.rail)
        return self._leaf_ports[switch.id][self._leaf_of[switch.plane, on_plane]]

    def _healthy_port_of_gpu(self, switch: Switch, dst: Gpu) -> int:
        if dst.domain == switch.domain:
            return HOST_PORT if dst.rail == switch.rail else NVLINK_PORT
        if self.relay is Relay.SOURCE and dst.rail != switch.rail:
            return NVLINK_PORT
        nics = self._nic_ports[switch.id]
        return nics[(dst.domain + switch.domain) % len(nics)]

    def preferred(self, switch: Switch, dst: Gpu, ports: tuple[int, ...]) -> tuple[int, ...]:
        """The ports that policy prefers among equally short ones; more than one only where a hash decides.

        Taking away a port that was not preferred never changes the answer for healthy candidates. That is what lets a
        repair leave alone every destination whose healthy next hops are all alive.
        """
        if len(ports) < 2:
            return ports
        kind = switch.kind
        if kind is SwitchKind.GPU:
            return (self._preferred_of_gpu(switch, dst, ports),)
        if kind is SwitchKind.NVSWITCH:
            direct = self._nvlink_port[switch.domain, dst.rail]
            if direct in ports:
                return (direct,)
            # All destinations on rails that cannot be used directly are counted through, so that the surviving rails
            # get equal numbers of them: domain by domain (from the own one on), rail by rail.
            domains = self.fabric.spec.domains
            lost_before = sum(self._nvlink_port[switch.domain, rail] not in ports for rail in range(dst.rail))
            turn = lost_before * (domains - 1) + (dst.domain - switch.domain - 1) % domains
            return (ports[turn % len(ports)],)
        if kind is SwitchKind.RAIL:
            turn = (dst.rail - switch.rail - 1) % self.fabric.spec.rails + dst.domain
            return (ports[turn % len(ports)],)
        if kind in LEAF_KINDS:
            uplinks = set(self._uplinks.get(switch.id, ()))
            return tuple(port for port in ports if port in uplinks) or ports
        return ports

    def _preferred_of_gpu(self, switch: Switch, dst: Gpu, ports: tuple[int, ...]) -> int:
        nvlink_first = dst.domain == switch.domain or self.relay is Relay.SOURCE
        nics = [port for port in ports if port != NVLINK_PORT]
        if NVLINK_PORT in ports and (nvlink_first or not nics):
            return NVLINK_PORT
        return nics[(dst.domain + switch.domain) % len(nics)]

    def hash_key(self, switch: Switch, src: Gpu, dst: Gpu) -> HashKey:
        """What the hash of a leaf or spine tells apart for this pair.

        A leaf tells apart the sources that enter there, pair by pair (domains modulo 64 above 64 domains); all others
        (relayed after a failure) go by destination. A spine, which chooses among parallel links only, puts sources
        into 4 x 4 classes. Inside a rail of source-side relay the destination's rail is known, so its domain is enough.
        """
        if switch.kind in SPINE_KINDS:
            return HashKey(coarse_class(src), self.dst_selector(switch, dst))
        source = hash_class(src, self.fabric.spec.domains)
        native = source in self.native_sources(switch.id)
        return HashKey(source if native else None, self.dst_selector(switch, dst))

    def dst_selector(self, switch: Switch, dst: Gpu) -> Selector:
        """The destinations that the hash of this switch does not tell apart from ``dst``."""
        in_rail = switch.kind in (SwitchKind.RAIL_LEAF, SwitchKind.RAIL_SPINE)
        whole_domain = in_rail and self.relay is Relay.SOURCE
        if switch.kind in SPINE_KINDS:
            return domain_of(dst) if whole_domain else exact(dst)
        return hash_class(dst, self.fabric.spec.domains, whole_domain)

    def native_sources(self, switch_id: str) -> frozenset[Selector]:
        """Classes of the sources whose traffic enters at this leaf when nothing is broken."""
        known = self._native_sources.get(switch_id)
        if known is None:
            known = self._native_sources[switch_id] = self._find_native_sources(switch_id)
        return known

    def _find_native_sources(self, switch_id: str) -> frozenset[Selector]:
        domains = self.fabric.spec.domains
        below = self.gpus_below(switch_id)
        if self.fabric.switch_by_id[switch_id].kind is SwitchKind.RAIL_LEAF and self.relay is Relay.SOURCE:
            own = {gpu.domain for gpu in below}
            return frozenset(hash_class(gpu, domains) for gpu in self.fabric.gpus if gpu.domain in own)
        return frozenset(hash_class(gpu, domains) for gpu in below)

    def source_classes(self, switch_id: str) -> tuple[Selector | None, ...]:
        """All source classes of a leaf or spine, None (all other sources) last; every packet is in exactly one."""
        if self.fabric.switch_by_id[switch_id].kind in SPINE_KINDS:
            return self._coarse_classes
        return (*sorted(self.native_sources(switch_id)), None)

    def choose(self, switch: Switch, key: HashKey, ports: tuple[int, ...]) -> int:
        """The port among ``ports`` that rendezvous hashing gives to ``key``: the one with the highest hash."""
        if len(ports) == 1:
            return ports[0]
        # The tier's salt keeps a spine from repeating the leaf's choice (polarisation).
        words = (_TIER_SALT.get(switch.kind, 0), switch.dpid, *(key.src or (-1,)), *key.dst)
        state = _absorbed(_mixed(self.policy.seed & _WORD), words)
        return max(ports, key=lambda port: _mixed((state + port * 0x9E3779B97F4A7C15) & _WORD))

    def healthy_choice(self, switch: Switch, key: HashKey, ports: tuple[int, ...]) -> int:
        """:meth:`choose` among the healthy ``ports``, remembered, since every repair asks again."""
        known = self._healthy_choice.get((switch.id, key))
        if known is None:
            known = self._healthy_choice[switch.id, key] = self.choose(switch, key, ports)
        return known

    def distance(self, index: int, dst: Gpu) -> int:
        """Links from a switch (by index) to the switch of ``dst`` when nothing is broken; FAR if nothing joins them.

        It depends only on how the two lie to each other, so one search is good for every switch and destination.
        """
        place = self._place(index, dst)
        if place not in self._distances:
            for other, distance in enumerate(self._searched(dst)):
                self._distances.setdefault(self._place(other, dst), distance)
        return self._distances[place]

    def _place(self, index: int, dst: Gpu) -> _Place:
        switch = self.fabric.switches[index]
        per_leaf = self.fabric.spec.domains_per_leaf or 1
        unit = switch.unit if switch.domain < 0 else switch.domain // per_leaf
        return (
            switch.kind,
            switch.domain == dst.domain,
            switch.rail == dst.rail,
            switch.kind not in SPINE_KINDS and unit == dst.domain // per_leaf,
        )

    def _searched(self, dst: Gpu) -> list[int]:
        """Breadth-first search from ``dst``: the distance of every switch, by index."""
        distance = [FAR] * len(self.neighbours)
        start = self.order[dst.switch_id]
        distance[start] = 0
        edge = [start]
        while edge:
            following = []
            for here in edge:
                for _, there, _ in self.neighbours[here]:
                    if distance[there] == FAR:
                        distance[there] = distance[here] + 1
                        following.append(there)
            edge = following
        return distance


@lru_cache(maxsize=4)
def forwarding(fabric: Fabric, policy: RoutingPolicy) -> Forwarding:
    """The :class:`Forwarding` of a fabric and policy; kept for the last few, since every failure needs it anew."""
    return Forwarding(fabric, policy)


class Routes:
    """All routes of ``fabric`` under ``failures``, searched per destination when first asked for, then kept.

    A GPU that is down (its host link is unusable) neither sends nor receives.
    """

    def __init__(self, fabric: Fabric, failures: Failures = NO_FAILURES, policy: RoutingPolicy | None = None) -> None:
        """Raise UnknownElementError for failures of links or nodes that the fabric does not have."""
        self.fabric = fabric
        self.failures = failures
        self.policy = policy or RoutingPolicy()
        self.forwarding = forwarding(fabric, self.policy)
        self.links_down = fabric.links_down(failures)
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
        return self.forwarding.preferred(self.fabric.switch_by_id[switch_id], dst, self.ports(switch_id, dst))

    def next_port(self, switch_id: str, src: Gpu, dst: Gpu) -> int | None:
        """The port by which a packet from ``src`` to ``dst`` leaves the switch; None where there is no path."""
        ports = self.preferred_ports(switch_id, dst)
        if len(ports) < 2:
            return ports[0] if ports else None
        switch = self.fabric.switch_by_id[switch_id]
        return self.forwarding.choose(switch, self.forwarding.hash_key(switch, src, dst), ports)

    def path(self, src: Gpu, dst: Gpu) -> Path | None:
        """The way from ``src`` to ``dst``, or None if there is none; raises RouteError if they are the same."""
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
            out_port = self.next_port(switch_id, src, dst)
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
        moved = self._moved_for(dst).get(here)
        return self.forwarding.distance(here, dst) if moved is None else moved

    def _find_ports(self, here: int, dst: Gpu) -> tuple[int, ...]:
        if not self.alive(dst):
            return ()
        if here == self.forwarding.order[dst.switch_id]:
            return (HOST_PORT,)
        nearer = self._distance(here, dst) - 1
        if nearer >= FAR - 1:
            return ()
        return tuple(
            port
            for port, there, link_id in self.forwarding.neighbours[here]
            if link_id not in self.links_down and self._distance(there, dst) == nearer
        )

    def _moved_for(self, dst: Gpu) -> dict[int, int]:
        """The switches that are farther from ``dst`` than when nothing is broken, with their distances (or FAR).

        Those are found outwards from the dead links: a switch has moved away if all its next hops are dead or have
        moved away themselves. Only they and their neighbours are looked at, whatever the size of the fabric.
        """
        known = self._moved.get(dst)
        if known is not None:
            return known
        moved = self._moved[dst] = {}
        neighbours, down, healthy = self.forwarding.neighbours, self.links_down, self.forwarding.distance
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
                for _, there, link_id in neighbours[here]
            ):
                moved[here] = FAR
                for _, there, _ in neighbours[here]:
                    if healthy(there, dst) == distance + 1:
                        heappush(suspects, (distance + 1, there))
        # Their new distances, nearest first, from the switches around them that have not moved.
        reached = []
        for here in moved:
            around = [
                healthy(there, dst)
                for _, there, link_id in neighbours[here]
                if link_id not in down and there not in moved
            ]
            if around:
                reached.append((min(around) + 1, here))
        heapify(reached)
        while reached:
            distance, here = heappop(reached)
            if distance < moved[here]:
                moved[here] = distance
                for _, there, link_id in neighbours[here]:
                    if link_id not in down and moved.get(there, 0) > distance + 1:
                        heappush(reached, (distance + 1, there))
        return moved

    @cached_property
    def _dead_links(self) -> tuple[tuple[int, int], ...]:
        """Both ends (indexes) of every dead link between switches, in order."""
        order = self.forwarding.order
        links = (self.fabric.link_by_id[link_id] for link_id in self.links_down)
        return tuple(sorted((order[link.a], order[link.b]) for link in links if link.kind is not LinkKind.HOST))

    def changes(self) -> dict[str, list[Gpu]]:
        """By switch, the destinations to which its preferred ports may differ from the healthy ones.

        Switches that no packet can enter are left out. Elsewhere a next hop can only change where a healthy one is
        dead, at switches that have moved away from the destination, and behind those.
        """
        fabric, plan = self.fabric, self.forwarding
        found: dict[int, set[Gpu]] = {}
        changed: set[Gpu] = set()
        for here in sorted({end for ends in self._dead_links for end in ends}):
            switch = fabric.switches[here]
            dead = {port for port, _, link_id in plan.neighbours[here] if link_id in self.links_down}
            if self.isolated(switch):
                continue
            hit = {dst for dst in fabric.gpus if not dead.isdisjoint(plan.healthy_ports(switch, dst))}
            found[here] = hit
            changed |= hit
        for dst in changed:
            for here in self._moved_for(dst):
                found.setdefault(here, set()).add(dst)
                behind = plan.distance(here, dst) + 1
                for _, there, _ in plan.neighbours[here]:
                    if plan.distance(there, dst) == behind:
                        found.setdefault(there, set()).add(dst)
        dead_gpus = {gpu for gpu in fabric.gpus if not self.alive(gpu)} if self.links_down else set()
        if dead_gpus:
            for here in range(len(fabric.switches)):
                found.setdefault(here, set()).update(dead_gpus)
        return {
            switch.id: sorted(found[here])
            for here, switch in enumerate(fabric.switches)
            if found.get(here) and not self.isolated(switch)
        }

    def isolated(self, switch: Switch) -> bool:
        """Whether no packet can enter the switch: all its links are down."""
        return all(link.id in self.links_down for link in self.fabric.links_of(switch.id))
