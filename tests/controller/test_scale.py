"""How many rules each kind of switch holds, and how long large fabrics take."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

import pytest

from controller.policy import RoutingPolicy
from controller.repairs import Repairs
from controller.routing import Routes
from controller.rules import families, groups_for, healthy_rules
from tests.controller.fabrics import NAMED, built, policies
from topologies.model import FabricKind, FabricSpec, Failures, Gpu, SwitchKind


@pytest.mark.parametrize("name", NAMED)
def test_families_count_what_is_there(name: str) -> None:
    fabric = built(NAMED[name])
    for policy in policies(fabric):
        for each in (policy, replace(policy, local_repair=False)):
            expected: Counter[tuple[SwitchKind, int, int]] = Counter()
            for switch in fabric.switches:
                rules, groups = healthy_rules(fabric, each)[switch.id], groups_for(fabric, each)[switch.id]
                expected[switch.kind, len(rules), len(groups)] += 1
            counted: Counter[tuple[SwitchKind, int, int]] = Counter()
            for family in families(fabric, each):
                counted[family.kind, family.rules, family.groups] += family.switches
            assert counted == expected


@pytest.mark.parametrize(("domains", "rails"), [(4, 4), (8, 8), (128, 8), (1024, 8)])
def test_rules_of_a_rail_only_fabric_by_its_size(domains: int, rails: int) -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, domains, rails))
    for local_repair, per_thing, gpu in ((False, 1, 6), (True, 3, 12)):
        found = {each.kind: each for each in families(fabric, RoutingPolicy(local_repair=local_repair))}
        assert found[SwitchKind.GPU].rules == gpu
        assert found[SwitchKind.NVSWITCH].rules == per_thing * rails + 1
        assert found[SwitchKind.RAIL].rules == per_thing * domains + 1
        assert found[SwitchKind.GPU].switches == domains * rails


def test_a_dead_uplink_moves_only_the_hash_classes_that_used_it() -> None:
    """At its leaf one in eight of all, at the other leaves one in eight of those that go to it, none twice."""
    fabric = built(FabricSpec(FabricKind.RAIL_OPTIMIZED, 128, 8, spines=8))
    repairs = Repairs(Routes(fabric, Failures(links=frozenset({"leaf3-spine5"}))), 1)
    counts = {switch_id: len(rules) for switch_id, rules in repairs.items()}
    healthy = healthy_rules(fabric, RoutingPolicy())["leaf3"]
    used = Counter(rule.actions for rule in healthy if rule.reason == "hashed")
    assert len(used) == 8
    # One more closes the port; the classes of no known source that use it are repaired for GPUs below the leaf too.
    assert counts["leaf3"] - 1 in used.values()
    assert counts["spine5"] == 64 + 1
    others = [count for switch_id, count in counts.items() if switch_id not in ("leaf3", "spine5")]
    assert len(others) == 7
    assert all(400 < count < 640 for count in others)


def test_a_dead_uplink_is_looked_at_through_stand_ins() -> None:
    """How often next hops are asked for does not grow with the domains, though they are 1,792 at two leaves."""

    class Counted(Routes):
        asked = 0

        def preferred_ports(self, switch_id: str, dst: Gpu) -> tuple[int, ...]:
            self.asked += 1
            return super().preferred_ports(switch_id, dst)

    fabric = built(FabricSpec(FabricKind.RAIL_OPTIMIZED, 128, 8, spines=8))
    routes = Counted(fabric, Failures(links=frozenset({"leaf3-spine5"})))
    assert sum(map(len, Repairs(routes, 1).values())) > 7_000
    assert routes.asked < 200


def test_a_repair_costs_what_it_touches_and_not_what_the_fabric_has() -> None:
    """The time is bounded loosely, for the machine is shared; benchmarks/routes.py has the figures."""
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 128, 8))
    assert Routes(fabric, Failures(links=frozenset({"d3r3-rail3"}))).hits
    started_s = time.perf_counter()
    rules = Repairs(Routes(fabric, Failures(links=frozenset({"d5r3-rail3"}))), 1)
    assert time.perf_counter() - started_s < 2.0
    assert 1024 <= sum(map(len, rules.values())) < 4 * 1024
