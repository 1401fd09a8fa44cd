"""The part of routing that no failure changes: healthy next hops in closed form, preferences, and what is hashed.

Ties between equally short ways are settled by these rules:

- GPU switch: NVLink first inside the own domain; else NVLink first for source-side relay, NIC first for
  destination-side relay and on fabrics with spines; balanced relay takes NVLink where the rails' numbers are both even
  or both odd. Of two NIC uplinks the domains' parity decides.
- NVSwitch: the GPU on the destination's rail; where that is no choice (after a failure), the surviving rails in turn.
- Rail switch, and leaf of a rail's own Clos: where any domain could turn the traffic to another rail (a GPU without
  NVLink), the domains in turn.
- Leaf: spines before a GPU that would relay; among several uplinks, and among parallel links at a spine, a seeded hash.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from controller.path_hash import absorbed, chosen, first_two, mixed
from controller.policy import Relay, RoutingPolicy
from controller.selectors import HASH_DOMAINS, Selector, coarse_class, domain_of, exact, hash_class
from topologies.model import (
    HOST_PORT,
    NVLINK_PORT,
    Fabric,
    FabricKind,
    Gpu,
    Link,
    LinkKind,
    Switch,
    SwitchKind,
)

LEAF_KINDS = frozenset({SwitchKind.LEAF, SwitchKind.RAIL_LEAF})
SPINE_KINDS = frozenset({SwitchKind.SPINE, SwitchKind.RAIL_SPINE})

_TIER_SALT = {SwitchKind.LEAF: 1, SwitchKind.RAIL_LEAF: 1, SwitchKind.SPINE: 2, SwitchKind.RAIL_SPINE: 2}

FAR = 1 << 30
"""A distance that no path has."""

_Place = tuple[SwitchKind, bool, bool, bool]
"""How a switch lies to a destination: its kind; whether it has the same domain, the same rail, the same leaves."""


HealthyShares = dict[int, tuple[list["Selector | None"], list[int]]]
"""By healthy port, the source classes that use it, and the port that each of them uses where that one is dead."""


class HashKey(NamedTuple):
    """What the path hash of a switch looks at. ``src`` None: the source is not told apart."""

    src: Selector | None
    dst: Selector


class Forwarding:
    """The declared fabric, indexed for routing under one policy."""

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
        self._above: dict[int, list[tuple[int, str]]] = {}
        self._leaf_ports: dict[str, dict[str, tuple[int, ...]]] = {}
        self._leaf_of: dict[tuple[int, Gpu], str] = {}
        self._shares: dict[tuple[str, Selector], HealthyShares] = {}
        self._hash_state: dict[tuple[str, Selector | None], int] = {}
        self._by_rail: dict[str, list[tuple[list[int], list[int]]]] = {}
        self._ways: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}
        self.leaf_at: dict[tuple[int, int, int], int] = {}
        """Index of the leaf or rail switch of a plane, rail and unit."""
        self._native_sources: dict[str, frozenset[Selector]] = {}
        self._distances: dict[_Place, int] = {}
        self._beside: dict[str, dict[int, list[int]]] = {}
        self._coarse_classes = tuple(sorted({coarse_class(gpu) for gpu in fabric.gpus}))
        for link in fabric.links:
            if link.kind is not LinkKind.HOST:
                self._add(link)
        for neighbours in self.neighbours:
            neighbours.sort()
        for index, switch in enumerate(fabric.switches):
            if switch.kind in LEAF_KINDS or switch.kind is SwitchKind.RAIL:
                self.leaf_at[switch.plane, switch.rail, switch.unit] = index

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
            self._above.setdefault(a, []).append((b, link.id))
            ports = self._leaf_ports.setdefault(link.b, {})
            ports[link.a] = (*ports.get(link.a, ()), link.b_port)

    def uplinks(self, switch_id: str) -> tuple[int, ...]:
        """Ports of a leaf that lead to spines."""
        return self._uplinks.get(switch_id, ())

    def spines_above(self, index: int) -> list[tuple[int, str]]:
        """(index of a spine, link id) for every uplink of the leaf with this index."""
        return self._above.get(index, [])

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

    def ports_by_rail(self, switch_id: str) -> list[tuple[list[int], list[int]]]:
        """For every rail below a leaf or rail switch its domains there in order, below a spine its units of leaves.

        With them the port of each; a unit that parallel links join to the spine is there once for every link.
        """
        known = self._by_rail.get(switch_id)
        if known is None:
            by_rail: dict[int, tuple[list[int], list[int]]] = {}
            below = [(gpu.rail, gpu.domain, port) for gpu, port in self.gpus_below(switch_id).items()]
            for leaf_id, leaf_ports in self._leaf_ports.get(switch_id, {}).items():
                leaf = self.fabric.switch_by_id[leaf_id]
                below += [(leaf.rail, leaf.unit, port) for port in leaf_ports]
            for rail, number, port in sorted(below):
                numbers, ports = by_rail.setdefault(rail, ([], []))
                numbers.append(number)
                ports.append(port)
            known = self._by_rail[switch_id] = list(by_rail.values())
        return known

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

    def relays_at_source(self, rail: int, dst_rail: int) -> bool:
        """Whether a GPU on ``rail`` prefers a relay in its own domain for destinations on ``dst_rail``."""
        if self.relay is Relay.BALANCED:
            return (rail + dst_rail) % 2 == 0
        return self.relay is Relay.SOURCE

    def _healthy_port_of_gpu(self, switch: Switch, dst: Gpu) -> int:
        if dst.domain == switch.domain:
            return HOST_PORT if dst.rail == switch.rail else NVLINK_PORT
        if dst.rail != switch.rail and self.relays_at_source(switch.rail, dst.rail):
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
            return (ports[self._turn(switch, dst, ports) % len(ports)],)
        uplinks = self._uplinks.get(switch.id, ())
        if kind is SwitchKind.RAIL or (kind is SwitchKind.RAIL_LEAF and not set(uplinks) & set(ports)):
            turn = (dst.rail - switch.rail - 1) % self.fabric.spec.rails + dst.domain
            return (ports[turn % len(ports)],)
        if kind in LEAF_KINDS:
            return tuple(port for port in ports if port in uplinks) or ports
        return ports

    def _turn(self, switch: Switch, dst: Gpu, ports: tuple[int, ...]) -> int:
        """Counts through all destinations on rails that cannot be used directly: domain by domain, rail by rail.

        So the surviving rails get equal numbers of them. Above 64 domains, domains modulo 64 are counted.
        """
        round_ = min(self.fabric.spec.domains, HASH_DOMAINS)
        lost_before = sum(self._nvlink_port[switch.domain, rail] not in ports for rail in range(dst.rail))
        return lost_before * (round_ - 1) + (dst.domain - switch.domain - 1) % round_

    def _preferred_of_gpu(self, switch: Switch, dst: Gpu, ports: tuple[int, ...]) -> int:
        nvlink_first = dst.domain == switch.domain or self.relays_at_source(switch.rail, dst.rail)
        nics = [port for port in ports if port != NVLINK_PORT]
        if NVLINK_PORT in ports and (nvlink_first or not nics):
            return NVLINK_PORT
        return nics[(dst.domain + switch.domain) % len(nics)]

    def hash_key(self, switch: Switch, src: Gpu, dst: Gpu) -> HashKey:
        """What the hash of a leaf or spine tells apart for this pair.

        A leaf tells apart the sources that enter there, pair by pair (domains modulo 64 above 64 domains); all others
        (relayed after a failure) go by destination. A spine that chooses among parallel links puts sources into 4 x 4
        classes; where it has none and chooses among detours after a failure, it goes by destination. Inside a rail of
        source-side relay the destination's rail is known, so its domain is enough.
        """
        if switch.kind in SPINE_KINDS:
            parallel = len(self.healthy_ports(switch, dst)) > 1
            return HashKey(coarse_class(src) if parallel else None, self.dst_selector(switch, dst))
        source = hash_class(src, self.fabric.spec.domains)
        native = source in self.native_sources(switch.id)
        return HashKey(source if native else None, self.dst_selector(switch, dst))

    def dst_selector(self, switch: Switch, dst: Gpu) -> Selector:
        """The destinations that the hash of this switch does not tell apart from ``dst``."""
        in_rail = switch.kind in (SwitchKind.RAIL_LEAF, SwitchKind.RAIL_SPINE)
        whole_domain = in_rail and self.relay is Relay.SOURCE
        if switch.kind in SPINE_KINDS and not self.one_leaf_per_rail:
            return domain_of(dst) if whole_domain else exact(dst)
        return hash_class(dst, self.fabric.spec.domains, whole_domain)

    @property
    def one_leaf_per_rail(self) -> bool:
        """Whether a rail-optimized fabric has all NICs of a rail on one leaf, so that spines can match on the rail."""
        spec = self.fabric.spec
        return spec.kind is FabricKind.RAIL_OPTIMIZED and (spec.domains_per_leaf or 0) >= spec.domains

    def native_sources(self, switch_id: str) -> frozenset[Selector]:
        """Classes of the sources whose traffic enters at this leaf when nothing is broken."""
        known = self._native_sources.get(switch_id)
        if known is None:
            known = self._native_sources[switch_id] = self._find_native_sources(switch_id)
        return known

    def _find_native_sources(self, switch_id: str) -> frozenset[Selector]:
        domains = self.fabric.spec.domains
        below = self.gpus_below(switch_id)
        if self.fabric.switch_by_id[switch_id].kind is SwitchKind.RAIL_LEAF and self.relay is not Relay.DESTINATION:
            own = {gpu.domain for gpu in below}
            return frozenset(hash_class(gpu, domains) for gpu in self.fabric.gpus if gpu.domain in own)
        return frozenset(hash_class(gpu, domains) for gpu in below)

    def source_classes(self, switch_id: str) -> tuple[Selector | None, ...]:
        """All source classes of a leaf or spine, None (all other sources) last; every packet is in exactly one."""
        if self.fabric.switch_by_id[switch_id].kind in SPINE_KINDS:
            return self._coarse_classes
        return (*sorted(self.native_sources(switch_id)), None)

    def choose(self, switch: Switch, key: HashKey, ports: tuple[int, ...]) -> int:
        """The port among ``ports`` that the hash gives to ``key``."""
        if len(ports) == 1:
            return ports[0]
        return chosen(self._word(switch, key), self._all_ways(switch, ports), ports)

    def _word(self, switch: Switch, key: HashKey) -> int:
        """The path hash of ``key`` at a switch."""
        src, dst = key
        state = self._hash_state.get((switch.id, src))
        if state is None:
            source = 0 if src is None else src.domain_bits << 9 | src.rail_bits << 1 | 1
            # The tier's salt keeps a spine from repeating the leaf's choice (polarisation).
            words = (_TIER_SALT.get(switch.kind, 0), switch.dpid, source)
            state = self._hash_state[switch.id, src] = absorbed(mixed(self.policy.seed & (1 << 64) - 1), words)
        return absorbed(state, (dst.domain_bits << 8 | dst.rail_bits,))

    def _all_ways(self, switch: Switch, ports: tuple[int, ...]) -> tuple[int, ...]:
        """The ports among which the hash chooses when nothing is broken, if ``ports`` are some of those."""
        known = self._ways.get((switch.id, ports))
        if known is None:
            if switch.kind in LEAF_KINDS:
                ways = self._uplinks.get(switch.id, ())
            else:
                ways = tuple(self.ports_beside(switch.id, ports[0]))
            known = self._ways[switch.id, ports] = ways if set(ports) <= set(ways) else ports
        return known

    def healthy_shares(self, switch: Switch, dst: Selector, ports: tuple[int, ...]) -> HealthyShares:
        """Which source classes of a switch use which of the healthy ``ports``; remembered for all repairs."""
        known = self._shares.get((switch.id, dst))
        if known is None:
            known = self._shares[switch.id, dst] = {}
            sources = self.source_classes(switch.id)
            words = [self._word(switch, HashKey(src, dst)) for src in sources]
            for src, (port, second) in zip(sources, first_two(words, ports), strict=True):
                classes, seconds = known.setdefault(port, ([], []))
                classes.append(src)
                seconds.append(second)
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
