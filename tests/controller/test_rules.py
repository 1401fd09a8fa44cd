"""The shape of the rules: how many, by which masks, and what a repair adds."""

from __future__ import annotations

import random
from collections import Counter
from itertools import permutations

import pytest

from controller.errors import AmbiguousRulesError, PolicyError, RouteError
from controller.policy import Relay, RoutingPolicy, relay_named
from controller.routing import Routes
from controller.rules import (
    ArpReply,
    DecTtl,
    Match,
    Output,
    Rule,
    healthy_rules,
    rules_diff,
    rules_for,
)
from controller.selectors import EVERY_GPU, domain_of, exact, hash_class, rail_of
from controller.tables import Outcome, Packet, RuleTable, arp_answer, tables_of, walk
from tests.controller.fabrics import NAMED, built, policies
from topologies import addresses
from topologies.errors import UnknownElementError
from topologies.model import FabricKind, FabricSpec, Failures, Gpu, LinkKind, SwitchKind


@pytest.mark.parametrize("name", NAMED)
def test_healthy_tables_are_small(name: str) -> None:
    fabric = built(NAMED[name])
    for policy in policies(fabric):
        for switch in fabric.switches:
            count = len(healthy_rules(fabric, policy)[switch.id])
            if switch.kind is SwitchKind.GPU:
                assert count <= 8
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
                forwards = any(isinstance(action, Output) for action in rule.actions)
                is_gpu = fabric.switch_by_id[switch_id].kind is SwitchKind.GPU
                assert (DecTtl() in rule.actions) == (forwards and not is_gpu)


def test_a_repaired_nic_is_few_rules() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    healthy = rules_for(Routes(fabric))
    repaired = rules_for(Routes(fabric, Failures(links=frozenset({"d1r2-rail2"}))))
    added = {
        switch_id: adds for switch_id in healthy if (adds := rules_diff(healthy[switch_id], repaired[switch_id])[0])
    }
    for switch_id in healthy:
        assert rules_diff(healthy[switch_id], repaired[switch_id])[1] == ()
    # The GPU itself: its whole rail by NVLink, by one masked rule.
    assert [rule.match.dst for rule in added["s1r2"]] == [rail_of(Gpu(1, 2))]
    # A neighbour in the domain: the rail of the dead NIC by its own NIC, one masked rule.
    assert [rule.match.dst for rule in added["s1r0"]] == [rail_of(Gpu(1, 2))]
    # Elsewhere: only the GPU that lost its NIC is reached in another way.
    assert [rule.match.dst for rule in added["s0r0"]] == [exact(Gpu(1, 2))]
    assert sum(len(rules) for rules in added.values()) < 40
    restored = rules_for(Routes(fabric))
    assert all(restored[switch_id] is healthy[switch_id] for switch_id in healthy)


def test_partitioned_gpu_is_named_and_dropped_for() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    routes = Routes(fabric, Failures(links=frozenset({"d0r1-rail1", "d0r1-nv0"})))
    cut = Gpu(0, 1)
    assert set(routes.partitioned()) == {
        pair for other in fabric.gpus if other != cut for pair in ((cut, other), (other, cut))
    }
    tables = rules_for(routes)
    drops = [rule for rules in tables.values() for rule in rules if rule.reason == "partitioned"]
    assert drops
    assert all(rule.actions == () for rule in drops)
    # At the cut GPU: one drop for its domain, one for its rail, one for the rest.
    assert len([rule for rule in drops if rule.switch_id == "s0r1"]) == 3
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
    for relay, expected in ((Relay.SOURCE, Gpu(0, 3)), (Relay.DESTINATION, Gpu(2, 1))):
        path = Routes(fabric, policy=RoutingPolicy(relay)).path(Gpu(0, 1), Gpu(2, 3))
        assert path is not None
        assert path.relays == (expected,)
        assert path.links[0] == "d0r1-s0r1"
        assert path.links[-1] == "d2r3-s2r3"
    direct = Routes(built(FabricSpec(FabricKind.RAIL_OPTIMIZED, 4, 4, spines=4))).path(Gpu(0, 1), Gpu(2, 3))
    assert direct is not None
    assert direct.relays == ()
    assert relay_named("destination") is Relay.DESTINATION
    with pytest.raises(PolicyError, match="source or destination"):
        relay_named("direct")


def test_every_arp_request_is_answered_with_the_right_address() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 3, 2))
    tables = tables_of(rules_for(Routes(fabric)))
    for asking, wanted in permutations(fabric.gpus, 2):
        assert arp_answer(tables, asking, wanted) == addresses.mac(wanted.domain, wanted.rail)
    responders = [rule for table in tables.values() for rule in table.rules() if ArpReply() in rule.actions]
    assert {rule.switch_id for rule in responders} == {gpu.switch_id for gpu in fabric.gpus}
    assert all(rule.match.in_port == 1 for rule in responders)


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


def rule(priority: int, dst: object, port: int | None) -> Rule:
    return Rule("x", priority, Match(0x0800, None, dst), () if port is None else (Output(port),), "test")  # type: ignore[arg-type]


def test_table_looks_up_by_priority_and_mask_and_finds_ambiguity() -> None:
    gpu = Gpu(1, 2)
    packet = Packet(1, Gpu(0, 0), gpu)
    table = RuleTable("x", [rule(1, EVERY_GPU, 1), rule(5, domain_of(gpu), 2)])
    assert table.lookup(packet) == rule(5, domain_of(gpu), 2)
    table.install(rule(5, domain_of(gpu), 7))
    assert len(table.rules()) == 2
    assert table.lookup(packet) == rule(5, domain_of(gpu), 7)
    table.install(rule(5, rail_of(gpu), 3))
    with pytest.raises(AmbiguousRulesError, match="d0r0 to d1r2"):
        table.lookup(packet)
    table.delete(rule(5, rail_of(gpu), 9))
    table.delete(rule(5, domain_of(gpu), 9))
    assert table.lookup(packet) == rule(1, EVERY_GPU, 1)
    table.delete(rule(1, EVERY_GPU, 1))
    assert table.lookup(packet) is None


def test_walk_finds_loops_dead_links_and_turned_packets() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    src, dst = Gpu(0, 0), Gpu(1, 0)
    rules = dict(rules_for(Routes(fabric)))
    assert walk(tables_of(rules), fabric, src, dst).outcome is Outcome.DELIVERED
    dead = walk(tables_of(rules), fabric, src, dst, {"d1r0-rail0"})
    assert (dead.outcome, dead.switch_id) == (Outcome.DEAD_LINK, "rail0")

    def misled(switch_id: str, port: int) -> dict[str, RuleTable]:
        wrong = Rule(switch_id, 999, Match(0x0800, None, exact(dst)), (Output(port),), "wrong")
        return tables_of({**rules, switch_id: (*rules[switch_id], wrong)})

    turned = walk(misled("rail0", 1), fabric, src, dst)
    assert (turned.outcome, turned.switch_id) == (Outcome.DROPPED, "rail0")
    handed = walk(misled("s0r0", 1), fabric, src, dst)
    assert handed.outcome is Outcome.DROPPED
    # Each switch of this ring hands the packet to the next.
    looping = {**rules}
    for switch_id, port in (("s0r0", 3), ("nv0", 2), ("s0r1", 2), ("rail1", 2), ("s1r1", 3), ("nv1", 1), ("s1r0", 2),
                            ("rail0", 1)):  # fmt: skip
        wrong = Rule(switch_id, 999, Match(0x0800, None, exact(dst)), (Output(port),), "wrong")
        looping[switch_id] = (*looping[switch_id], wrong)
    loop = walk(tables_of(looping), fabric, src, dst)
    assert loop.outcome is Outcome.LOOP
    empty = walk({switch.id: RuleTable(switch.id) for switch in fabric.switches}, fabric, src, dst)
    assert (empty.outcome, empty.reason) == (Outcome.DROPPED, "no rule")


@pytest.mark.parametrize("seed", range(5))
def test_diffs_turn_any_rules_into_any_others(seed: int) -> None:
    random_source = random.Random(seed)
    fabric = built(FabricSpec(FabricKind.RAIL_OPTIMIZED, 3, 3, spines=2))
    pool = [link.id for link in fabric.links if link.kind is not LinkKind.HOST]
    current = {switch_id: RuleTable(switch_id, rules) for switch_id, rules in rules_for(Routes(fabric)).items()}
    for _ in range(6):
        wanted = rules_for(Routes(fabric, Failures(links=frozenset(random_source.sample(pool, 3)))))
        for switch_id, table in current.items():
            adds, deletes = rules_diff(table.rules(), wanted[switch_id])
            for each in deletes:
                table.delete(each)
            for each in adds:
                table.install(each)
            as_set = {(each.identity, each.actions) for each in table.rules()}
            assert as_set == {(each.identity, each.actions) for each in wanted[switch_id]}


def test_unknown_links_are_refused() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    with pytest.raises(UnknownElementError, match="d0r0-rail0"):
        Routes(fabric, Failures(links=frozenset({"d0r0-rail00"})))
