"""The shape of the rules: how many, by which masks, and what a repair adds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest

from controller.entries import ABOVE_FROM_GPU, ArpReply, DecTtl, Output, Stamp, ToGroup
from controller.errors import PolicyError, RouteError
from controller.policy import Relay, RoutingPolicy, relay_named
from controller.repairs import Repairs, rules_for
from controller.routing import Routes
from controller.rules import healthy_rules
from controller.selectors import EVERY_GPU, Selector, domain_of, exact, hash_class, rail_of
from tests.controller.driver import healthy_fabric
from tests.controller.fabrics import NAMED, built, policies
from topologies import addresses
from topologies.errors import UnknownElementError
from topologies.model import FabricKind, FabricSpec, Failures, Gpu, SwitchKind


@pytest.mark.parametrize("name", NAMED)
def test_healthy_tables_are_small(name: str) -> None:
    fabric = built(NAMED[name])
    for policy in policies(fabric):
        for switch in fabric.switches:
            count = len(healthy_rules(fabric, policy)[switch.id])
            if switch.kind is SwitchKind.GPU:
                assert count <= (14 if policy.relay is Relay.BALANCED else 12) + 5 * (fabric.spec.uplinks - 1)
            elif switch.kind is SwitchKind.NVSWITCH and fabric.kind is not FabricKind.IDEAL:
                assert count == 3 * fabric.spec.rails + 1
            elif switch.kind is SwitchKind.RAIL:
                assert count == 3 * fabric.spec.domains + 1
        plain = replace(policy, local_repair=False)
        for switch in fabric.switches:
            count = len(healthy_rules(fabric, plain)[switch.id])
            if switch.kind is SwitchKind.GPU:
                assert count <= 10 + fabric.spec.uplinks
            elif switch.kind is SwitchKind.NVSWITCH:
                assert count == fabric.spec.rails + 1
            elif switch.kind is SwitchKind.RAIL:
                assert count == fabric.spec.domains + 1


@pytest.mark.parametrize("name", NAMED)
def test_identities_are_unique_and_only_gpu_switches_leave_the_ttl_alone(name: str) -> None:
    fabric = built(NAMED[name])
    for policy in policies(fabric):
        for switch_id, rules in healthy_rules(fabric, policy).items():
            assert max(Counter(rule.identity for rule in rules).values()) == 1
            for rule in rules:
                forwards = any(isinstance(action, Output | ToGroup) for action in rule.actions)
                is_gpu = fabric.switch_by_id[switch_id].kind is SwitchKind.GPU
                assert (DecTtl() in rule.actions) == (forwards and not is_gpu)


def test_a_repaired_nic_is_few_rules() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    routes = Routes(fabric, Failures(links=frozenset({"d1r2-rail2"})))
    repairs = Repairs(routes, 9)
    assert {rule.match.version for rules in repairs.values() for rule in rules} == {9}
    # Both ends of the dead link are closed.
    closed = {switch_id for switch_id, rules in repairs.items() for rule in rules if rule.reason == "link is down"}
    assert closed == {"s1r2", "rail2"}

    def named(switch_id: str) -> list[Selector | None]:
        passing = [rule for rule in repairs[switch_id] if rule.reason == "repair" and rule.match.in_port is None]
        sent = [rule for rule in repairs[switch_id] if rule.reason == "repair" and rule.match.in_port == 1]
        assert [rule.match.dst for rule in sent] == [rule.match.dst for rule in passing]
        assert [rule.priority - ABOVE_FROM_GPU for rule in sent] == [rule.priority for rule in passing]
        return [rule.match.dst for rule in passing]

    # The GPU itself: its whole rail by NVLink, by one masked rule.
    assert named("s1r2") == [rail_of(Gpu(1, 2))]
    # A neighbour in the domain: the rail of the dead NIC by its own NIC, one masked rule.
    assert named("s1r0") == [rail_of(Gpu(1, 2))]
    # Elsewhere: only the GPU that lost its NIC is reached in another way.
    assert named("s0r0") == [exact(Gpu(1, 2))]
    assert sum(len(rules) for rules in repairs.values()) < 60


def test_stamps_put_a_version_in_force() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    healthy = rules_for(Routes(fabric))
    assert not any(isinstance(action, Stamp) for rules in healthy.values() for rule in rules for action in rule.actions)
    broken = rules_for(Routes(fabric, Failures(links=frozenset({"d0r0-rail0"}))), version=7)
    for switch in fabric.switches:
        assert broken[switch.id][: len(healthy[switch.id])] == healthy[switch.id]
        stamps = [rule for rule in broken[switch.id] if Stamp(7) in rule.actions]
        assert len(stamps) == (switch.kind is SwitchKind.GPU)


def test_partitioned_gpu_is_named_and_dropped_for() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    routes = Routes(fabric, Failures(links=frozenset({"d0r1-rail1", "d0r1-nv0"})))
    cut = Gpu(0, 1)
    assert set(routes.partitioned()) == {
        pair for other in fabric.gpus if other != cut for pair in ((cut, other), (other, cut))
    }
    tables = rules_for(routes)
    drops = {switch_id: [rule for rule in rules if rule.reason == "partitioned"] for switch_id, rules in tables.items()}
    assert any(drops.values())
    assert all(rule.actions == () for rules in drops.values() for rule in rules)
    # At the cut GPU: one drop for its domain, one for its rail, one for the rest.
    assert len(drops["s0r1"]) == 3
    with pytest.raises(RouteError, match="two different GPUs"):
        routes.path(cut, cut)


def test_dead_gpu_cannot_talk_and_does_not_relay() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 3, 3))
    dead = Gpu(0, 1)
    routes = Routes(fabric, Failures(nodes=frozenset({"d0r1"})))
    assert len(routes.partitioned()) == 2 * 8
    for src, dst in permutations(fabric.gpus, 2):
        path = routes.path(src, dst)
        if dead in (src, dst):
            assert path is None
        else:
            assert path is not None
            assert dead not in path.relays


def test_relays_follow_the_policy() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    for relay, expected in ((Relay.SOURCE, Gpu(0, 3)), (Relay.DESTINATION, Gpu(2, 1)), (Relay.BALANCED, Gpu(0, 3))):
        path = Routes(fabric, policy=RoutingPolicy(relay)).path(Gpu(0, 1), Gpu(2, 3))
        assert path is not None
        assert path.relays == (expected,)
        assert path.links[0] == "d0r1-s0r1"
        assert path.links[-1] == "d2r3-s2r3"
    direct = Routes(built(FabricSpec(FabricKind.RAIL_OPTIMIZED, 4, 4, spines=4))).path(Gpu(0, 1), Gpu(2, 3))
    assert direct is not None
    assert direct.relays == ()
    assert relay_named("destination") is Relay.DESTINATION
    with pytest.raises(PolicyError, match="source, destination or balanced"):
        relay_named("direct")


def test_every_arp_request_is_answered_with_the_right_address() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 3, 2))
    fake = healthy_fabric(fabric, RoutingPolicy())
    for asking, wanted in permutations(fabric.gpus, 2):
        assert fake.arp_answer(asking, wanted) == addresses.mac(wanted.domain, wanted.rail)
    responders = {
        switch_id: rule
        for switch_id, table in rules_for(Routes(fabric)).items()
        for rule in table
        if ArpReply() in rule.actions
    }
    assert responders.keys() == {gpu.switch_id for gpu in fabric.gpus}
    assert all(rule.match.in_port == 1 for rule in responders.values())


@pytest.mark.parametrize("gpu", [Gpu(0, 0), Gpu(3, 1), Gpu(254, 255), Gpu(255, 0), Gpu(300, 7), Gpu(65534, 255)])
def test_selectors_are_the_addresses(gpu: Gpu) -> None:
    address = addresses.ipv4(gpu.domain, gpu.rail)
    assert (exact(gpu).address, exact(gpu).address_mask) == (address, addresses.EXACT_MASK)
    assert domain_of(gpu).address == address.rpartition(".")[0] + ".0"
    assert domain_of(gpu).address_mask == addresses.DOMAIN_MASK
    assert (rail_of(gpu).address, rail_of(gpu).address_mask) == (f"10.0.0.{gpu.rail}", addresses.RAIL_MASK)
    assert (EVERY_GPU.address, EVERY_GPU.address_mask) == ("10.0.0.0", addresses.NETWORK_MASK)
    assert hash_class(gpu, 65535).address_mask == "255.0.63.255"
    assert all(selector(gpu).matches(gpu) for selector in (exact, domain_of, rail_of))
    assert not exact(gpu).matches(Gpu(gpu.domain + 1, gpu.rail))


def test_unknown_links_are_refused() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    with pytest.raises(UnknownElementError, match="d0r0-rail0"):
        Routes(fabric, Failures(links=frozenset({"d0r0-rail00"})))
