"""Fabrics of more than 64 domains, where a repair is worked out for the touched domains and stand-ins of the rest."""

from __future__ import annotations

import random
from itertools import islice

import networkx as nx
import pytest

from controller.fake import FakeFabric, Outcome
from controller.policy import Relay, RoutingPolicy
from controller.repairs import Repairs, rules_for
from controller.routing import Routes
from controller.rules import groups_for
from tests.controller.fabrics import built
from topologies.model import Fabric, FabricKind, FabricSpec, Failures, Gpu, LinkKind

K = FabricKind
LARGE = {
    "rail-only 70x2": FabricSpec(K.RAIL_ONLY, 70, 2),
    "rail-only 67x3 dual-homed": FabricSpec(K.RAIL_ONLY, 67, 3, uplinks=2),
    "rail-only 70x2 Clos": FabricSpec(K.RAIL_ONLY, 70, 2, domains_per_leaf=6, spines=3),
    "rail-optimized 66x2": FabricSpec(K.RAIL_OPTIMIZED, 66, 2, spines=2, parallel_links=2),
    "rail-optimized 70x2 units": FabricSpec(K.RAIL_OPTIMIZED, 70, 2, domains_per_leaf=20, spines=2),
    "rail-optimized 70x2": FabricSpec(K.RAIL_OPTIMIZED, 70, 2, domains_per_leaf=70, spines=2),
    "spine-leaf 66x2": FabricSpec(K.SPINE_LEAF, 66, 2, domains_per_leaf=8, spines=3),
    "spine-leaf 68x2, many leaves": FabricSpec(K.SPINE_LEAF, 68, 2, domains_per_leaf=1, spines=2, parallel_links=2),
    "rail-only 66x2 Clos, many leaves": FabricSpec(K.RAIL_ONLY, 66, 2, domains_per_leaf=1, spines=2),
    "rail-optimized 66x2, many leaves": FabricSpec(K.RAIL_OPTIMIZED, 66, 2, domains_per_leaf=1, spines=2),
}


def loaded(fabric: Fabric, routes: Routes, pairs: list[tuple[Gpu, Gpu]]) -> FakeFabric:
    """A fabric in memory whose switches on the way of ``pairs`` have their rules."""
    needed = {hop.switch_id for pair in pairs if (path := routes.path(*pair)) for hop in path.hops}
    needed |= {src.switch_id for src, _ in pairs}
    tables, groups = rules_for(routes), groups_for(fabric, routes.policy)
    fake = FakeFabric(fabric, set(routes.links_down))
    fake.load({each: tables[each] for each in needed}, {each: groups[each] for each in needed})
    return fake


def pairs_around(fabric: Fabric, touched: set[int], random_source: random.Random) -> list[tuple[Gpu, Gpu]]:
    """Pairs within, from, to and between the touched domains, and of all others."""
    near = [gpu for gpu in fabric.gpus if gpu.domain in touched]
    pairs = [tuple(random_source.sample(near, 2)) for _ in range(6)] if len(near) > 1 else []
    for _ in range(14):
        src, dst = random_source.choice(near), random_source.choice(fabric.gpus)
        pairs += [(src, dst), (dst, src), tuple(random_source.sample(fabric.gpus, 2))]
    return [(src, dst) for src, dst in pairs if src != dst]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("name", LARGE)
def test_rules_routes_and_graph_agree(name: str, count: int) -> None:
    fabric = built(LARGE[name])
    random_source = random.Random(f"{name} {count}")
    by_kind = {kind: [link for link in fabric.failure_targets() if link.kind is kind] for kind in LinkKind}
    for relay in (Relay.SOURCE, Relay.BALANCED) if name == "rail-only 70x2" else (Relay.SOURCE,):
        links = [
            random_source.choice(of_kind)
            for of_kind in islice(random_source.sample([each for each in by_kind.values() if each], 2) * 2, count)
        ]
        routes = Routes(fabric, Failures(links=frozenset(link.id for link in links)), RoutingPolicy(relay))
        graph: nx.Graph = nx.Graph((link.a, link.b) for link in fabric.links if link.id not in routes.links_down)
        ends = {fabric.switch_by_id[end].domain for link in links for end in (link.a, link.b)}
        pairs = pairs_around(fabric, ends - {-1} or {0}, random_source)
        distances = {dst: nx.single_source_shortest_path_length(graph, dst.id) for _, dst in pairs}
        fake = loaded(fabric, routes, pairs)
        for src, dst in pairs:
            path = routes.path(src, dst)
            assert path is not None
            assert len(path.links) == distances[dst][src.id], (links, src.id, dst.id, path.links)
            walked = fake.send(src, dst)
            assert walked.outcome is Outcome.DELIVERED, (links, src.id, dst.id, walked)
            assert walked.hops == path.hops, (links, src.id, dst.id)


@pytest.mark.parametrize("name", LARGE)
def test_families_speak_for_every_switch(name: str) -> None:
    """The concerned switches are those that have rules, and alike GPU switches and NVSwitches share one tuple."""
    fabric = built(LARGE[name])
    for kind in (LinkKind.NVLINK, LinkKind.NIC):
        link_id = [link.id for link in fabric.links if link.kind is kind][fabric.spec.rails]
        repairs = Repairs(Routes(fabric, Failures(links=frozenset({link_id}))), 1)
        assert {fabric.switches[here].id for here in repairs.concerned} >= set(repairs)
        of_gpus = {id(repairs[switch_id]) for switch_id in repairs if switch_id.startswith("s")}
        assert len(of_gpus) < 8 * fabric.spec.rails * fabric.spec.uplinks


WITH_SPINES = [name for name, spec in LARGE.items() if spec.spines]


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("name", WITH_SPINES)
def test_rules_and_ports_are_right_when_uplinks_of_a_leaf_die(name: str, every: bool) -> None:
    """One of them, or all, so that the spines too need another way; the ports are those of a search by the book."""
    fabric = built(LARGE[name])
    uplinks = [link for link in fabric.failure_targets() if link.kind is LinkKind.FABRIC]
    leaf = fabric.switch_by_id[uplinks[len(uplinks) // 2].a]
    dead = [link.id for link in uplinks if link.a == leaf.id]
    routes = Routes(fabric, Failures(links=frozenset(dead if every else dead[:1])))
    below = [fabric.switch_by_id[link.a] for link in fabric.links if link.b == leaf.id and link.kind is LinkKind.NIC]
    far = [gpu for gpu in fabric.gpus if gpu.domain not in {switch.domain for switch in below}]
    pairs = [
        pair
        for number, switch in enumerate(below[:: max(1, len(below) // 12)])
        for other in (far or list(fabric.gpus))[number :: max(1, len(far or fabric.gpus) // 5)]
        for pair in ((Gpu(switch.domain, switch.rail), other), (other, Gpu(switch.domain, switch.rail)))
        if pair[0] != pair[1] and pair not in routes.partitioned()
    ]
    fake = loaded(fabric, routes, pairs)
    graph: nx.Graph = nx.Graph((link.a, link.b) for link in fabric.links if link.id not in routes.links_down)
    for src, dst in pairs:
        path = routes.path(src, dst)
        assert path is not None
        walked = fake.send(src, dst)
        assert (walked.outcome, walked.hops) == (Outcome.DELIVERED, path.hops), (src.id, dst.id)
    for dst in sorted({dst for _, dst in pairs})[:6]:
        distance = nx.single_source_shortest_path_length(graph, dst.switch_id)
        for switch in fabric.switches:
            expected = [
                link.port(switch.id)
                for link in fabric.links_of(switch.id)
                if link.id not in routes.links_down
                and link.kind is not LinkKind.HOST
                and distance.get(link.other(switch.id), len(graph)) == distance.get(switch.id, 0) - 1
            ]
            if switch.id != dst.switch_id:
                assert routes.ports(switch.id, dst) == tuple(sorted(expected)), (switch.id, dst.id)


def test_a_dead_nic_costs_one_rule_on_each_switch_that_sends_there() -> None:
    fabric = built(FabricSpec(K.RAIL_ONLY, 128, 8))
    repairs = Repairs(Routes(fabric, Failures(links=frozenset({"d5r3-rail3"})), RoutingPolicy(local_repair=False)), 1)
    counts = {switch_id: len(rules) for switch_id, rules in repairs.items()}
    elsewhere = {count for switch_id, count in counts.items() if switch_id[0] in "sn" and "5" not in switch_id}
    assert elsewhere == {1}
    # The domain's own NVSwitch spreads the orphaned rail over the other seven, by the domain's number modulo 64.
    assert counts["nv5"] == 64 + 1
    assert len(counts) == 1024 + 128 + 1
