"""Spread: over which surviving rail each orphaned pair goes, so that all of them carry equally much.

The load of a rail at a domain that has lost NICs is the number of ordered pairs that leave it (or enter it) there;
where connections are declared (a placement, with or without links), the number of those, each channel by itself.
Pairs keep to shortest paths; among those each orphan takes the rail with the least load at both of its ends. Where
orphans have too little choice to level the loads, pairs that have another shortest path are moved as well, one at a
time. The loads then differ by at most one pair wherever shortest paths allow it (``tests/controller/test_spread.py``
compares with an exact optimum).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from controller.forwarding import LEAF_KINDS, SPINE_KINDS
from controller.placement import Connection
from controller.selectors import HASH_DOMAINS
from topologies.model import HOST_PORT, NVLINK_PORT, FabricKind, Gpu, LinkKind, Switch, SwitchKind

if TYPE_CHECKING:
    from controller.routing import Routes

MAX_PAIRS = 1 << 15
"""Above so many pairs around the domains concerned the turns of :mod:`controller.forwarding` are good enough."""

LEAVING, ENTERING = 0, 1

Side = tuple[int, int]
"""A domain, and whether pairs leave or enter it."""


class Choices(NamedTuple):
    """What differs from the preferred ports, by switch id: for all packets to a destination, and for single pairs.

    And for single connections, what differs from the ports of their pairs.
    """

    ports: dict[tuple[str, Gpu], int]
    pairs: dict[tuple[str, Gpu, Gpu], int]
    connections: dict[tuple[str, Connection], int]


@dataclass(eq=False)
class _Pair:
    """An ordered pair, or a declared connection of it, of which at least one end is in a domain that has lost NICs."""

    src: Gpu
    dst: Gpu
    ways: dict[int, int]
    """By rail on which it could cross, the port of the source's NVSwitch; OWN_NIC where none is needed."""
    sides: list[Side]
    connection: Connection | None = None
    is_placed: bool = False
    """Whether the connection's own links settle its way here, so that it says nothing about its pair."""
    rail: int = -1


OWN_NIC = -1


class _Loads:
    """Pairs by side and rail, and which of them could go another way."""

    def __init__(self, sides: dict[Side, Counter[int]]) -> None:
        """``sides`` has the rails to be levelled, with 0 for each."""
        self.count = sides
        self.movable: dict[tuple[Side, int], list[_Pair]] = defaultdict(list)
        self._moves: Counter[int] = Counter()

    def put(self, pair: _Pair, rail: int) -> None:
        """Let a pair cross on ``rail``."""
        pair.rail = rail
        for side in pair.sides:
            if rail in self.count[side]:
                self.count[side][rail] += 1
                if len(pair.ways) > 1:
                    self.movable[side, rail].append(pair)

    def least(self, pair: _Pair, usual: int) -> int:
        """The rail for an orphan: with the least load at its ends, the usual one among equals."""
        return min(
            pair.ways, key=lambda rail: (sum(self.count[side][rail] for side in pair.sides), rail != usual, rail)
        )

    def level(self, side: Side) -> None:
        """Move pairs from the fullest rails to emptier ones, at other ends' cost only where that does not show."""
        count = self.count[side]
        while max(count.values()) - min(count.values()) > 1:
            chain = self._chain(side)
            if not chain:
                return
            for pair, rail in chain:
                for each in pair.sides:
                    if pair.rail in self.count[each]:
                        self.count[each][pair.rail] -= 1
                        self.movable[each, pair.rail].remove(pair)
                self.put(pair, rail)
                self._moves[pair.src.domain] += 1
                self._moves[pair.dst.domain] += 1

    def _chain(self, side: Side) -> list[tuple[_Pair, int]]:
        """Moves that take one pair off a fullest rail and leave one more on a rail with two less, if there are any."""
        count = self.count[side]
        fullest = max(count.values())
        came: dict[int, tuple[_Pair, int] | None] = {rail: None for rail in count if count[rail] == fullest}
        edge = deque(sorted(came))
        while edge:
            rail = edge.popleft()
            if count[rail] <= fullest - 2:
                chain = []
                while (step := came[rail]) is not None:
                    pair, before = step
                    chain.append((pair, rail))
                    rail = before
                return chain
            for pair in sorted(self.movable[side, rail], key=self._shift):
                for other in pair.ways:
                    if other in count and other not in came and self._bearable(pair, side, rail, other):
                        came[other] = (pair, rail)
                        edge.append(other)
        return []

    def _shift(self, pair: _Pair) -> tuple[int, Gpu, Gpu]:
        """What to move first: pairs of domains that have been left alone so far."""
        return self._moves[pair.src.domain] + self._moves[pair.dst.domain], pair.src, pair.dst

    def _bearable(self, pair: _Pair, side: Side, rail: int, other: int) -> bool:
        """Whether the loads at the pair's other end stay within what they are."""
        for each in pair.sides:
            count = self.count[each]
            if each == side or other not in count or rail not in count:
                continue
            if count[other] >= max(count.values()) or count[rail] <= min(count.values()):
                return False
        return True


def choices(routes: Routes) -> Choices:
    """The choices for the failures of ``routes``; none where no domain has lost a NIC, or above 64 domains."""
    lost = _lost_rails(routes)
    spec = routes.fabric.spec
    found = Choices({}, {}, {})
    if lost and spec.domains <= HASH_DOMAINS and len(lost) * spec.domains * spec.rails**2 <= MAX_PAIRS:
        if not (_only_nics(routes) and _choose_leaving(routes, lost, found, every=False)):
            _choose_leaving(routes, lost, found, every=True)
        if routes.fabric.kind is not FabricKind.RAIL_ONLY:
            _choose_entering(routes, lost, found)
    return found


def _lost_rails(routes: Routes) -> dict[int, set[int]]:
    """By domain, the rails on which it has lost all NIC links, if it has another one left."""
    fabric = routes.fabric
    lost: dict[int, set[int]] = defaultdict(set)
    for link_id in routes.links_down:
        link = fabric.link_by_id[link_id]
        if link.kind is LinkKind.NIC:
            nics = [each.id for each in fabric.links_of(link.a) if each.kind is LinkKind.NIC]
            if routes.links_down.issuperset(nics):
                switch = fabric.switch_by_id[link.a]
                lost[switch.domain].add(switch.rail)
    return {domain: rails for domain, rails in sorted(lost.items()) if len(rails) < fabric.spec.rails}


# Leaving: by the source's own NIC, or by that of the GPU which its NVSwitch chooses


def _only_nics(routes: Routes) -> bool:
    """Whether pairs are hurt by lost rails alone, so that all others are known to be where they always are."""
    links = (routes.fabric.link_by_id[link_id] for link_id in routes.links_down)
    return routes.fabric.spec.uplinks == 1 and all(link.kind is LinkKind.NIC for link in links)


def _choose_leaving(routes: Routes, lost: dict[int, set[int]], found: Choices, every: bool) -> bool:
    """Choose for orphans, and with ``every`` move other pairs too; False if it took that and was not allowed."""
    rail_only = routes.fabric.kind is FabricKind.RAIL_ONLY
    loads = _Loads(
        {
            (domain, direction): Counter({rail: 0 for rail in range(routes.fabric.spec.rails) if rail not in rails})
            for domain, rails in lost.items()
            for direction in ((LEAVING, ENTERING) if rail_only else (LEAVING,))
        }
    )
    pairs, orphans = [], []
    nothing: set[int] = set()
    declared = _declared(routes)
    for src, dst in _around(routes, lost):
        # On a rail-only fabric a pair enters by the rail by which it has left.
        counts = declared is None or (src, dst) in declared
        sides = [side for side in ((src.domain, LEAVING), (dst.domain, ENTERING)) if counts and side in loads.count]
        usual = _healthy_rail(routes, src, dst)
        entered = lost.get(dst.domain, nothing) if rail_only else nothing
        hurt = usual in entered or usual in lost.get(src.domain, nothing)
        for each in _of_pair(declared, src, dst):
            is_placed = each is not None and _is_placed(routes, each)
            if not (every or hurt or is_placed):
                for side in sides:
                    loads.count[side][usual] += 1
                continue
            ways = _ways(routes, src, dst, each)
            if not ways:
                continue
            pair = _Pair(src, dst, ways, sides, each, is_placed)
            pairs.append(pair)
            if usual in ways:
                loads.put(pair, usual)
            else:
                orphans.append(pair)
    for pair in sorted(orphans, key=lambda pair: len(pair.ways)):
        loads.put(pair, loads.least(pair, _rail_by_preference(routes, pair)))
    for side, count in loads.count.items():
        if not every and max(count.values()) - min(count.values()) > 1:
            return False
        loads.level(side)
    _tell(routes, pairs, found)
    return True


Declared = dict[tuple[Gpu, Gpu], list[Connection]]
"""The declared connections of every pair that has any, in order of their channels."""


def _declared(routes: Routes) -> Declared | None:
    """The declared connections; None where nothing is declared."""
    placement = routes.policy.placement
    if placement is None:
        return None
    found: Declared = defaultdict(list)
    for each in sorted(placement.links_of):
        found[each.src, each.dst].append(each)
    return dict(found)


def _of_pair(declared: Declared | None, src: Gpu, dst: Gpu) -> Sequence[Connection | None]:
    """What of a pair is spread one by one: its declared connections, or (None) all that it sends."""
    return (declared or {}).get((src, dst), (None,))


def _placed_ports(routes: Routes, each: Connection) -> tuple[int | None, int | None]:
    """The ports that a connection's own links name at its source's switch and at the NVSwitch there."""
    return routes.placed_port(each.src.switch_id, each), routes.placed_port(f"nv{each.src.domain}", each)


def _is_placed(routes: Routes, each: Connection) -> bool:
    return _placed_ports(routes, each) != (None, None)


def _around(routes: Routes, lost: dict[int, set[int]]) -> Iterator[tuple[Gpu, Gpu]]:
    """Ordered pairs of live GPUs of different domains of which at least one has lost NICs."""
    gpus = [gpu for gpu in routes.fabric.gpus if routes.alive(gpu)]
    concerned = [gpu for gpu in gpus if gpu.domain in lost]
    for gpu in concerned:
        for other in gpus:
            if other.domain != gpu.domain:
                yield gpu, other
                if other.domain not in lost:
                    yield other, gpu


def _healthy_rail(routes: Routes, src: Gpu, dst: Gpu) -> int:
    """The rail by which the pair leaves its source's domain when nothing is broken."""
    rail_only = routes.fabric.kind is FabricKind.RAIL_ONLY
    return dst.rail if rail_only and routes.forwarding.relays_at_source(src.rail, dst.rail) else src.rail


def _ways(routes: Routes, src: Gpu, dst: Gpu, each: Connection | None) -> dict[int, int]:
    """By rail, how a shortest path of the pair leaves on it; for a connection with links of its own, only on those."""
    ports = routes.ports(src.switch_id, dst)
    ways = {port - 1: port for port in routes.ports(f"nv{src.domain}", dst)} if NVLINK_PORT in ports else {}
    if any(port != NVLINK_PORT for port in ports):
        ways[src.rail] = OWN_NIC
    at_source, at_nvswitch = (None, None) if each is None else _placed_ports(routes, each)
    if at_source is not None:
        ways = {rail: way for rail, way in ways.items() if (way == OWN_NIC) == (at_source != NVLINK_PORT)}
    if at_nvswitch is not None:
        ways = {rail: way for rail, way in ways.items() if way in (OWN_NIC, at_nvswitch)}
    return ways


def _rail_by_preference(routes: Routes, pair: _Pair) -> int:
    (port,) = _preferred(routes, pair.src.switch_id, pair.dst)
    if port != NVLINK_PORT:
        return pair.src.rail
    return _preferred(routes, f"nv{pair.src.domain}", pair.dst)[0] - 1


def _preferred(routes: Routes, switch_id: str, dst: Gpu) -> tuple[int, ...]:
    switch = routes.fabric.switch_by_id[switch_id]
    return routes.forwarding.preferred(switch, dst, routes.ports(switch_id, dst))


def _tell(routes: Routes, pairs: list[_Pair], found: Choices) -> None:
    """Write down where pairs leave the preferred ports: by destination if all agree, else by pair.

    A pair goes as its first connection does; the others of it that go another way are written down by themselves.
    """
    asked: dict[tuple[str, Gpu], dict[Gpu, int]] = defaultdict(dict)
    first: dict[tuple[Gpu, Gpu], _Pair] = {}
    for pair in pairs:
        if not pair.is_placed:
            first.setdefault((pair.src, pair.dst), pair)
    for pair in first.values():
        switch_id, way = pair.src.switch_id, pair.ways[pair.rail]
        (usual,) = _preferred(routes, switch_id, pair.dst)
        if way != OWN_NIC:
            asked[f"nv{pair.src.domain}", pair.dst][pair.src] = way
            if usual != NVLINK_PORT:
                found.ports[switch_id, pair.dst] = NVLINK_PORT
        elif usual == NVLINK_PORT:
            found.ports[switch_id, pair.dst] = _own_nic(routes, pair)
    for (switch_id, dst), port_of in asked.items():
        ((most, _),) = Counter(port_of.values()).most_common(1)
        if (most,) != _preferred(routes, switch_id, dst):
            found.ports[switch_id, dst] = most
        found.pairs.update({(switch_id, src, dst): port for src, port in port_of.items() if port != most})
    for pair in pairs:
        of_pair = first.get((pair.src, pair.dst))
        if pair.connection is not None and (of_pair is None or of_pair.rail != pair.rail):
            way = pair.ways[pair.rail]
            at_source = _own_nic(routes, pair) if way == OWN_NIC else NVLINK_PORT
            found.connections[pair.src.switch_id, pair.connection] = at_source
            if way != OWN_NIC:
                found.connections[f"nv{pair.src.domain}", pair.connection] = way


def _own_nic(routes: Routes, pair: _Pair) -> int:
    nics = [port for port in routes.ports(pair.src.switch_id, pair.dst) if port != NVLINK_PORT]
    return nics[(pair.dst.domain + pair.src.domain) % len(nics)]


# Entering, where spines join the rails: by the leaf, or the GPU below a leaf, that a switch on the way chooses


def _choose_entering(routes: Routes, lost: dict[int, set[int]], found: Choices) -> None:
    declared = _declared(routes)
    for domain, rails in lost.items():
        load: Counter[int] = Counter()
        free: list[tuple[Gpu, Gpu, Connection | None, str, dict[int, list[int]]]] = []
        for dst in (Gpu(domain, rail) for rail in sorted(rails)):
            for src in routes.fabric.gpus:
                if src.domain == domain or not routes.alive(src) or not routes.alive(dst):
                    continue
                for each in _of_pair(declared, src, dst):
                    chooser, ways = _where_it_is_chosen(routes, src, dst, each, found)
                    if len(ways) == 1 and (declared is None or each is not None):
                        load.update(ways.keys())
                    elif len(ways) > 1:
                        free.append((src, dst, each, chooser, ways))
        for src, dst, each, chooser, ways in free:
            rail = min(ways, key=lambda rail: (load[rail], rail))
            load[rail] += declared is None or each is not None
            switch = routes.fabric.switch_by_id[chooser]
            key = routes.forwarding.hash_key(switch, src, dst)
            port = routes.forwarding.choose(switch, key, tuple(ways[rail]))
            if found.pairs.setdefault((chooser, src, dst), port) != port and each is not None:
                found.connections[chooser, each] = port


def _where_it_is_chosen(
    routes: Routes, src: Gpu, dst: Gpu, each: Connection | None, found: Choices
) -> tuple[str, dict[int, list[int]]]:
    """(switch, its ports by rail) where it is decided by which rail the pair, or a connection of it, enters.

    No ports if there is no path.
    """
    fabric, plan = routes.fabric, routes.forwarding
    switch = fabric.switch_by_id[src.switch_id]
    while True:
        placed = None if each is None else routes.placed_port(switch.id, each)
        ports = _preferred(routes, switch.id, dst) if placed is None else (placed,)
        ways = _rails_below(routes, switch, ports)
        if not ports or len(ways) > 1 or (ways and switch.kind in LEAF_KINDS):
            return switch.id, ways
        port = placed or (None if each is None else found.connections.get((switch.id, each)))
        port = port or found.pairs.get((switch.id, src, dst)) or found.ports.get((switch.id, dst))
        port = port or plan.choose(switch, plan.hash_key(switch, src, dst), ports)
        if switch.kind is SwitchKind.GPU and port == HOST_PORT:
            return switch.id, {}
        switch = fabric.switch_by_id[fabric.link_by_port[switch.id, port].other(switch.id)]


def _rails_below(routes: Routes, switch: Switch, ports: tuple[int, ...]) -> dict[int, list[int]]:
    """The ports of a leaf or spine that lead down, by rail."""
    ways: dict[int, list[int]] = defaultdict(list)
    if switch.kind in LEAF_KINDS or switch.kind in SPINE_KINDS:
        for port in ports:
            below = routes.fabric.switch_by_id[routes.fabric.link_by_port[switch.id, port].a]
            if below.id != switch.id and below.kind in (*LEAF_KINDS, SwitchKind.GPU) and below.rail >= 0:
                ways[below.rail].append(port)
    return ways
