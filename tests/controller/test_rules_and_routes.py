"""The rules, walked packet by packet, against the routes, and both against the graph's truth."""

from __future__ import annotations

import random
from itertools import permutations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fake import Outcome
from controller.policy import Relay, RoutingPolicy
from controller.routing import Routes
from tests.controller.driver import connected_pairs, repaired_fabric
from tests.controller.fabrics import NAMED, built, policies, specs
from topologies.model import Fabric, FabricKind, FabricSpec, Failures, Gpu, LinkKind


def check(fabric: Fabric, policy: RoutingPolicy, failures: Failures) -> None:
    """Rules, routes and graph agree about every pair."""
    routes = Routes(fabric, failures, policy)
    fake = repaired_fabric(routes)
    expected = connected_pairs(fabric, routes.links_down)
    assert set(routes.partitioned()) == set(permutations(fabric.gpus, 2)) - expected
    for src, dst in permutations(fabric.gpus, 2):
        path = routes.path(src, dst)
        walked = fake.send(src, dst)
        if (src, dst) in expected:
            assert path is not None
            assert walked.outcome is Outcome.DELIVERED, (src.id, dst.id, walked)
            assert walked.hops == path.hops, (src.id, dst.id)
            assert walked.intact
            assert not walked.turned_back
            assert routes.links_down.isdisjoint(path.links)
            assert len({hop.switch_id for hop in path.hops}) == len(path.hops)
        else:
            assert path is None
            if routes.alive(src):
                assert (walked.outcome, walked.reason) == (Outcome.DROPPED, "partitioned"), (src.id, dst.id, walked)
            else:
                assert walked.outcome is Outcome.DEAD_LINK


@pytest.mark.parametrize("name", NAMED)
def test_healthy_and_every_single_failure(name: str) -> None:
    fabric = built(NAMED[name])
    links = [Failures(links=frozenset({link.id})) for link in fabric.links]
    nodes = [Failures(nodes=frozenset({node})) for node in [*fabric.switch_by_id, *fabric.gpu_by_id]]
    for policy in policies(fabric):
        # Balanced relay mixes the rules of the other two; a third of the failures is enough for it.
        every = [*links, *nodes][:: 3 if policy.relay is Relay.BALANCED else 1]
        for failures in [Failures(), *every]:
            check(fabric, policy, failures)


@pytest.mark.parametrize("name", NAMED)
def test_several_random_failures(name: str) -> None:
    fabric = built(NAMED[name])
    random_source = random.Random(f"several {name}")
    targets = [link.id for link in fabric.links]
    for policy in policies(fabric):
        for count in (2, 2, 2, 2, 3, 5, 8):
            chosen = random_source.sample(targets, min(count, len(targets)))
            check(fabric, policy, Failures(links=frozenset(chosen)))


@given(spec=specs(), data=st.data())
@settings(max_examples=40, derandomize=True, deadline=None)
def test_any_fabric_with_any_failures(spec, data) -> None:
    fabric = built(spec)
    links = data.draw(st.sets(st.sampled_from([link.id for link in fabric.links]), max_size=4))
    nodes = data.draw(st.sets(st.sampled_from([switch.id for switch in fabric.switches]), max_size=1))
    for policy in policies(fabric):
        check(fabric, policy, Failures(frozenset(links), frozenset(nodes)))


@given(spec=specs())
@settings(max_examples=60, derandomize=True, deadline=None)
def test_closed_form_equals_the_search(spec) -> None:
    fabric = built(spec)
    for policy in policies(fabric):
        routes = Routes(fabric, policy=policy)
        for switch in fabric.switches:
            for dst in fabric.gpus:
                assert routes.preferred_ports(switch.id, dst) == routes.forwarding.healthy_ports(switch, dst)


def searched(routes: Routes, dst: Gpu) -> dict[str, int]:
    """Distances over live links by plain breadth-first search."""
    graph: nx.Graph = nx.Graph()
    graph.add_nodes_from(routes.fabric.switch_by_id)
    live = [link for link in routes.fabric.links if link.id not in routes.links_down and link.kind is not LinkKind.HOST]
    graph.add_edges_from((link.a, link.b) for link in live)
    return dict(nx.single_source_shortest_path_length(graph, dst.switch_id))


@given(spec=specs(), data=st.data())
@settings(max_examples=80, derandomize=True, deadline=None)
def test_next_hops_are_those_of_a_plain_search(spec, data) -> None:
    fabric = built(spec)
    pool = [link.id for link in fabric.failure_targets()]
    links = data.draw(st.sets(st.sampled_from(pool), max_size=5)) if pool else set()
    routes = Routes(fabric, Failures(links=frozenset(links)))
    for dst in fabric.gpus:
        distances = searched(routes, dst)
        for switch in fabric.switches:
            nearer = distances.get(switch.id, -9) - 1
            expected = {
                link.port(switch.id)
                for link in fabric.links_of(switch.id)
                if link.id not in routes.links_down
                and link.kind is not LinkKind.HOST
                and distances.get(link.other(switch.id)) == nearer
            }
            assert set(routes.ports(switch.id, dst)) == (expected if switch.id != dst.switch_id else {1})


@pytest.mark.parametrize("name", NAMED)
def test_nothing_changes_but_what_is_said_to(name: str) -> None:
    """The short cut of a repair, which looks only around the dead links, misses nothing."""
    fabric = built(NAMED[name])
    random_source = random.Random(name)
    targets = [link.id for link in fabric.failure_targets()]
    sets = [[link_id] for link_id in targets] + [random_source.sample(targets, min(3, len(targets))) for _ in range(9)]
    for policy in policies(fabric):
        healthy = Routes(fabric, policy=policy)
        for links in sets:
            routes = Routes(fabric, Failures(links=frozenset(links)), policy)
            for here, switch in enumerate(fabric.switches):
                for dst in fabric.gpus:
                    stand_ins = routes.alike.switch(here, dst), routes.alike.destination(dst)
                    hit = stand_ins[1] in routes.hits.get(stand_ins[0], ()) or not routes.alive(dst)
                    hit = hit or (switch.id, dst) in routes.spread.ports
                    if not hit and not routes.isolated(switch):
                        assert routes.preferred_ports(switch.id, dst) == healthy.preferred_ports(switch.id, dst)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_larger_fabric_with_sampled_failures(seed: int) -> None:
    random_source = random.Random(seed)
    fabric = built(NAMED["rail-optimized 4x4"])
    pool = [link.id for link in fabric.links if link.kind is not LinkKind.HOST]
    for _ in range(10):
        check(fabric, RoutingPolicy(seed=seed), Failures(links=frozenset(random_source.sample(pool, 4))))


@pytest.mark.soak
@pytest.mark.parametrize("kind", [FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED, FabricKind.SPINE_LEAF])
def test_every_single_failure_of_64_gpus(kind: FabricKind) -> None:
    fabric = built(FabricSpec(kind, 8, 8, spines=None if kind is FabricKind.RAIL_ONLY else 4))
    for policy in policies(fabric)[:1]:
        for link in fabric.failure_targets():
            check(fabric, policy, Failures(links=frozenset({link.id})))
