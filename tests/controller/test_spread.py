"""Loads per rail after NICs have failed, against the exact optimum over all shortest paths."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import networkx as nx
import pytest

from controller.placement import Connection, Placement
from controller.policy import Relay, RoutingPolicy
from controller.routing import Routes
from controller.spread import ENTERING, LEAVING
from tests.controller.fabrics import built
from topologies.model import Fabric, FabricKind, FabricSpec, Failures, Gpu, LinkKind, SwitchKind

Side = tuple[int, int]
K = FabricKind


Pairs = set[tuple[Gpu, Gpu]]


def nics_of(routes: Routes, domain: int) -> tuple[dict[str, int], dict[int, Counter[int]]]:
    """The rail of each NIC link of ``domain``; and by direction, a count of 0 for the rail of each that is up."""
    fabric = routes.fabric
    rail_of = {
        link.id: fabric.switch_by_id[link.a].rail
        for link in fabric.links
        if link.kind is LinkKind.NIC and fabric.switch_by_id[link.a].domain == domain
    }
    alive = {rail for link_id, rail in rail_of.items() if link_id not in routes.links_down}
    return rail_of, {direction: Counter(dict.fromkeys(alive, 0)) for direction in (LEAVING, ENTERING)}


def loads(routes: Routes, domain: int, declared: Pairs | None = None) -> dict[int, Counter[int]]:
    """By direction: ordered pairs that leave or enter ``domain``, by the rail of the NIC that they use there.

    With ``declared`` only those pairs count.
    """
    fabric = routes.fabric
    rail_of, found = nics_of(routes, domain)
    own = [gpu for gpu in fabric.gpus if gpu.domain == domain]
    for gpu in own:
        for other in fabric.gpus:
            if other.domain == domain:
                continue
            for direction, pair in ((LEAVING, (gpu, other)), (ENTERING, (other, gpu))):
                if declared is not None and pair not in declared:
                    continue
                path = routes.path(*pair)
                assert path is not None
                found[direction].update(rail_of[link_id] for link_id in path.links if link_id in rail_of)
    return found


def rails_on_shortest_paths(routes: Routes, src: Gpu, dst: Gpu, domain: int) -> set[int]:
    """The rails by which any shortest path of the pair crosses the border of ``domain``."""
    fabric = routes.fabric
    found: set[int] = set()
    seen = set()
    todo = [src.switch_id]
    while todo:
        switch_id = todo.pop()
        for port in routes.ports(switch_id, dst):
            link = fabric.link_by_port[switch_id, port]
            there = link.other(switch_id)
            if link.kind is LinkKind.NIC and fabric.switch_by_id[link.a].domain == domain:
                found.add(fabric.switch_by_id[link.a].rail)
            if there in fabric.switch_by_id and there not in seen:
                seen.add(there)
                todo.append(there)
    return found


def optimum(routes: Routes, domain: int, direction: int, declared: Pairs | None = None) -> int:
    """The least difference between the rails' loads that any choice of shortest paths gives at one side."""
    fabric = routes.fabric
    alike: Counter[frozenset[int]] = Counter()
    for gpu in routes.fabric.gpus:
        for other in routes.fabric.gpus:
            if gpu.domain == domain != other.domain:
                src, dst = (gpu, other) if direction == LEAVING else (other, gpu)
                if declared is None or (src, dst) in declared:
                    alike[frozenset(rails_on_shortest_paths(routes, src, dst, domain))] += 1
    lost = {
        fabric.switch_by_id[link.a].rail for link in map(fabric.link, routes.links_down)
        if link.kind is LinkKind.NIC and fabric.switch_by_id[link.a].domain == domain
    }  # fmt: skip
    rails = sorted(set(range(fabric.spec.rails)) - lost)
    pairs = sum(alike.values())
    for difference in range(pairs):
        for least in range(pairs // len(rails) - difference, pairs // len(rails) + 1):
            if least >= 0 and _fits(alike, rails, least, least + difference):
                return difference
    raise AssertionError("no choice at all")


def _fits(alike: Counter[frozenset[int]], rails: list[int], least: int, most: int) -> bool:
    """Whether every rail can have ``least`` to ``most`` pairs: two flows, since the bounds form an interval."""
    for bound in (least, most):
        graph: nx.DiGraph = nx.DiGraph()
        for ways, count in alike.items():
            graph.add_edge("pairs", ways, capacity=count)
            for rail in ways:
                graph.add_edge(ways, rail)
        for rail in rails:
            graph.add_edge(rail, "end", capacity=bound)
        wanted = least * len(rails) if bound == least else sum(alike.values())
        if nx.maximum_flow_value(graph, "pairs", "end") < wanted:
            return False
    return True


def check(fabric: Fabric, policy: RoutingPolicy, links: frozenset[str]) -> None:
    routes = Routes(fabric, Failures(links=links), policy)
    domains = {fabric.switch_by_id[fabric.link(link_id).a].domain for link_id in links}
    for domain in domains:
        for direction, load in loads(routes, domain).items():
            difference = max(load.values()) - min(load.values())
            if difference > 1:
                assert difference <= optimum(routes, domain, direction), (links, domain, direction, load)


def nics(fabric: Fabric) -> list[str]:
    return [link.id for link in fabric.links if link.kind is LinkKind.NIC]


@pytest.mark.parametrize("relay", [Relay.SOURCE, Relay.DESTINATION, Relay.BALANCED])
@pytest.mark.parametrize(("domains", "rails"), [(3, 3), (4, 4), (3, 5), (5, 3)])
def test_any_two_dead_nics(domains: int, rails: int, relay: Relay) -> None:
    fabric = built(FabricSpec(K.RAIL_ONLY, domains, rails))
    every = list(combinations(nics(fabric), 2))
    for links in random.Random(f"{domains} {rails}").sample(every, 14):
        check(fabric, RoutingPolicy(relay), frozenset(links))


@pytest.mark.parametrize(
    "links", [("d1r0-rail0", "d2r1-rail1"), ("d1r0-rail0", "d1r5-rail5"), ("d0r7-rail7", "d7r7-rail7")]
)
def test_two_dead_nics_of_64_gpus(links: tuple[str, str]) -> None:
    fabric = built(FabricSpec(K.RAIL_ONLY, 8, 8))
    routes = Routes(fabric, Failures(links=frozenset(links)))
    for domain in {fabric.switch_by_id[fabric.link(link_id).a].domain for link_id in links}:
        for load in loads(routes, domain).values():
            assert max(load.values()) - min(load.values()) <= 1, (links, domain, load)


def test_three_dead_nics_and_a_rail_switch() -> None:
    fabric = built(FabricSpec(K.RAIL_ONLY, 4, 4))
    random_source = random.Random(3)
    for _ in range(8):
        check(fabric, RoutingPolicy(), frozenset(random_source.sample(nics(fabric), 3)))
    check(fabric, RoutingPolicy(), frozenset(link.id for link in fabric.links_of("rail1")))


@pytest.mark.parametrize("shift", [0, 1, 3])
def test_declared_connections_alone_count_where_there_are_any(shift: int) -> None:
    """Every GPU sends to all GPUs of the next domain on one other rail (or its own): those are levelled."""
    fabric = built(FabricSpec(K.RAIL_ONLY, 5, 4))
    declared = {
        (src, dst) for src in fabric.gpus for dst in fabric.gpus
        if dst.domain == (src.domain + 1) % 5 and (dst.rail - src.rail - shift) % 4 < 2
    }  # fmt: skip
    policy = RoutingPolicy(placement=Placement.of({Connection(src, dst): () for src, dst in declared}))
    for links in ({"d1r0-rail0"}, {"d1r0-rail0", "d2r1-rail1"}, {"d3r2-rail2", "d3r3-rail3"}):
        routes = Routes(fabric, Failures(links=frozenset(links)), policy)
        for domain in {fabric.switch_by_id[fabric.link(link_id).a].domain for link_id in links}:
            for direction, load in loads(routes, domain, declared).items():
                difference = max(load.values()) - min(load.values())
                if difference > 1:
                    assert difference <= optimum(routes, domain, direction, declared), (links, domain, direction, load)


def loads_of_connections(routes: Routes, domain: int) -> dict[int, Counter[int]]:
    """By direction: declared connections that leave or enter ``domain``, by the rail of the NIC that they use there."""
    placement = routes.policy.placement
    assert placement is not None
    rail_of, found = nics_of(routes, domain)
    for each in placement.links_of:
        if each.src.domain != each.dst.domain and domain in (each.src.domain, each.dst.domain):
            path = routes.path(*each)
            assert path is not None
            direction = LEAVING if each.src.domain == domain else ENTERING
            found[direction].update(rail_of[link_id] for link_id in path.links if link_id in rail_of)
    return found


@pytest.mark.parametrize("relay", [Relay.SOURCE, Relay.DESTINATION])
@pytest.mark.parametrize("channels", [2, 3, 4])
def test_the_channels_of_few_pairs_are_spread_one_by_one(relay: Relay, channels: int) -> None:
    """A ring per rail, each with several channels: pairs are too few to level the rails, channels are not."""
    fabric = built(FabricSpec(K.RAIL_ONLY, 4, 4))
    ring = {
        Connection(src, Gpu((src.domain + 1) % 4, src.rail), channel): ()
        for src in fabric.gpus
        for channel in range(channels)
    }
    policy = RoutingPolicy(relay, placement=Placement.of(ring))
    for links in ({"d1r0-rail0"}, {"d1r0-rail0", "d1r2-rail2"}, {"d3r2-rail2", "d1r3-rail3"}):
        routes = Routes(fabric, Failures(links=frozenset(links)), policy)
        for domain in {fabric.switch_by_id[fabric.link(link_id).a].domain for link_id in links}:
            for direction, load in loads_of_connections(routes, domain).items():
                assert sum(load.values()) == 4 * channels
                assert max(load.values()) - min(load.values()) <= 1, (links, domain, direction, load)


def test_connections_that_were_given_a_relay_count_there() -> None:
    fabric = built(FabricSpec(K.RAIL_ONLY, 3, 4))
    ways: dict[Connection, list[str]] = {Connection(Gpu(0, 0), Gpu(1, 0), channel): [] for channel in range(6)}
    ways.update({Connection(Gpu(0, 1), Gpu(1, 2), channel): ["d0r1-rail1"] for channel in range(3)})
    policy = RoutingPolicy(placement=Placement.of(ways))
    routes = Routes(fabric, Failures(links=frozenset({"d0r0-rail0"})), policy)
    load = loads_of_connections(routes, 0)[LEAVING]
    assert load == {1: 3, 2: 3, 3: 3}


@pytest.mark.parametrize("kind", [K.RAIL_OPTIMIZED, K.SPINE_LEAF])
@pytest.mark.parametrize("channels", [1, 3])
def test_channels_enter_by_all_rails_where_spines_join_them(kind: FabricKind, channels: int) -> None:
    fabric = built(FabricSpec(kind, 4, 4, spines=4))
    connections = [
        Connection(Gpu(domain, rail), Gpu(0, 0), channel)
        for domain in range(1, 4) for rail in range(1, 4) for channel in range(channels)
    ]  # fmt: skip
    policy = RoutingPolicy(placement=Placement.of(dict.fromkeys(connections, ())))
    (link,) = (link for link in fabric.links_of("s0r0") if link.kind is LinkKind.NIC)
    load = loads_of_connections(Routes(fabric, Failures(links=frozenset({link.id})), policy), 0)[ENTERING]
    assert sum(load.values()) == 9 * channels
    assert max(load.values()) - min(load.values()) <= 1, load


@pytest.mark.parametrize("kind", [K.RAIL_OPTIMIZED, K.SPINE_LEAF])
def test_a_dead_nic_where_spines_join_the_rails(kind: FabricKind) -> None:
    fabric = built(FabricSpec(kind, 4, 4, spines=4))
    for victim in (Gpu(0, 0), Gpu(2, 3)):
        (link,) = (link for link in fabric.links_of(victim.switch_id) if link.kind is LinkKind.NIC)
        check(fabric, RoutingPolicy(), frozenset({link.id}))
        routes = Routes(fabric, Failures(links=frozenset({link.id})))
        for load in loads(routes, victim.domain).values():
            assert max(load.values()) - min(load.values()) <= 1, (victim, load)


def test_healthy_pairs_stay_where_they_are_if_one_nic_is_dead() -> None:
    """With one dead NIC the orphans have enough choice: nobody else is moved."""
    fabric = built(FabricSpec(K.RAIL_ONLY, 4, 4))
    healthy, routes = Routes(fabric), Routes(fabric, Failures(links=frozenset({"d1r2-rail2"})))
    for src in fabric.gpus:
        for dst in fabric.gpus:
            if src != dst:
                before, after = healthy.path(src, dst), routes.path(src, dst)
                assert before is not None
                assert after is not None
                assert after == before or "d1r2-rail2" in before.links
    assert {fabric.switch_by_id[switch_id].kind for switch_id, _ in routes.spread.ports} <= {SwitchKind.NVSWITCH}
