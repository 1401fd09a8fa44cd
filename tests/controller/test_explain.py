from __future__ import annotations

from itertools import permutations

import pytest

from controller.entries import MARKED_AROUND, PRIORITY_CLOSED_PORT, PRIORITY_STAMP
from controller.explain import explain, purpose
from controller.policy import RoutingPolicy
from controller.repairs import rules_for
from controller.routing import Routes
from tests.controller.fabrics import NAMED, built
from topologies.model import FabricKind, FabricSpec, Failures, Gpu


@pytest.mark.parametrize("name", ["rail-only 4x4", "rail-only 3x3 dual-homed", "rail-optimized 4x4", "spine-leaf 4x2"])
@pytest.mark.parametrize("local_repair", [True, False])
def test_every_hop_has_its_rule_and_it_leaves_by_the_paths_port(name: str, local_repair: bool) -> None:
    fabric = built(NAMED[name])
    for link in list(fabric.failure_targets())[::5]:
        routes = Routes(fabric, Failures(links=frozenset({link.id})), RoutingPolicy(local_repair=local_repair))
        for src, dst in list(permutations(fabric.gpus, 2))[::7]:
            told = explain(routes, src, dst)
            assert told.path is not None
            assert [reason.hop for reason in told.reasons] == list(told.path.hops)
            for reason in told.reasons:
                assert fabric.link_by_port[reason.hop.switch_id, reason.hop.out_port].id == reason.link_id
                assert reason.text


def test_a_detour_names_what_is_broken_and_who_relays() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    healthy = explain(Routes(fabric), Gpu(0, 1), Gpu(2, 3))
    assert healthy.summary == "the healthy path; d0r3 relays"
    routes = Routes(fabric, Failures(links=frozenset({"d2r3-rail3"})))
    detour = explain(routes, Gpu(0, 1), Gpu(2, 3))
    assert detour.summary == "a detour, because d2r3-rail3 is down; d2r1 relays"
    own = explain(Routes(fabric, Failures(links=frozenset({"d1r0-rail0"}))), Gpu(1, 0), Gpu(3, 0))
    assert "d1r0-rail0 would be next, but is down" in own.reasons[0].text


def test_another_domains_nvswitch_is_named() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    told = explain(Routes(fabric, Failures(links=frozenset({"d2r3-nv2"}))), Gpu(2, 3), Gpu(2, 1))
    assert "of another domain is crossed" in told.summary


def test_partitions_say_what_cuts() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    cut = Routes(fabric, Failures(links=frozenset({"d0r1-rail1", "d0r1-nv0"})))
    told = explain(cut, Gpu(0, 0), Gpu(0, 1))
    assert told.path is None
    assert told.summary == "partitioned: all ways out of d0r1 are down (d0r1-rail1, d0r1-nv0)"
    dead = explain(Routes(fabric, Failures(nodes=frozenset({"d0r1"}))), Gpu(0, 0), Gpu(0, 1))
    assert dead.summary == "partitioned: d0r1 is down"
    rails = Routes(built(FabricSpec(FabricKind.RAIL_ONLY, 2, 2)), Failures(nodes=frozenset({"rail0", "rail1"})))
    assert "no live links join d0r0 and d1r0 (4 links are down)" in explain(rails, Gpu(0, 0), Gpu(1, 0)).summary


def test_every_priority_has_a_purpose() -> None:
    fabric = built(NAMED["rail-optimized 4x4"])
    routes = Routes(fabric, Failures(links=frozenset({"leaf0-spine1", "d0r0-nv0"})))
    for rules in rules_for(routes).values():
        for rule in rules:
            assert purpose(rule.priority) != "unknown", rule
    assert purpose(PRIORITY_STAMP).startswith("stamps")
    assert purpose(MARKED_AROUND).startswith("for packets turned back")
    assert purpose(PRIORITY_CLOSED_PORT).startswith("closes")
    assert purpose(310) == "repair: one domain"
    assert purpose(305) == "healthy: one domain"
    assert purpose(32768) == "unknown"
