"""The rules, walked packet by packet, against the routes, and both against the graph's truth."""

from __future__ import annotations

import random
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fake import Outcome
from controller.policy import RoutingPolicy
from controller.routing import Routes
from tests.controller.driver import connected_pairs, repaired_fabric
from tests.controller.fabrics import NAMED, built, policies, specs
from topologies.model import Fabric, Failures, LinkKind


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
        for failures in [Failures(), *links, *nodes]:
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
@settings(max_examples=60, derandomize=True, deadline=None)
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


@pytest.mark.parametrize("name", NAMED)
def test_only_changed_destinations_change(name: str) -> None:
    """The short cut of a repair (leaving destinations alone whose next hops live) misses nothing."""
    fabric = built(NAMED[name])
    for policy in policies(fabric):
        healthy = Routes(fabric, policy=policy)
        for link in fabric.failure_targets():
            routes = Routes(fabric, Failures(links=frozenset({link.id})), policy)
            changed = set(routes.changed_destinations())
            for dst in set(fabric.gpus) - changed:
                for switch in fabric.switches:
                    if not routes.isolated(switch):
                        assert routes.preferred_ports(switch.id, dst) == healthy.preferred_ports(switch.id, dst)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_larger_fabric_with_sampled_failures(seed: int) -> None:
    random_source = random.Random(seed)
    fabric = built(NAMED["rail-optimized 4x4"])
    pool = [link.id for link in fabric.links if link.kind is not LinkKind.HOST]
    for _ in range(10):
        check(fabric, RoutingPolicy(seed=seed), Failures(links=frozenset(random_source.sample(pool, 4))))
