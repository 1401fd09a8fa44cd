"""The keeper's changes of rules: no loss and no loop at any step, whatever order the messages come in."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import pytest

from controller.entries import ArpReply, Match, Output, Rule
from controller.fake import AT, Outcome, encoded_rule, ip_packet
from controller.keeper import DRAIN_S, FREE_FLAPS, HOLD_FIRST_S, Held, Stage
from controller.openflow import rule_identity, steps
from controller.policy import RoutingPolicy
from controller.routing import Routes
from tests.controller.driver import Driver, connected_pairs, loop_for, targets
from tests.controller.fabrics import NAMED, built
from topologies.model import FabricKind, FabricSpec

SMALL = ["rail-only 2x2", "rail-only 3x3 dual-homed", "rail-only 4x2 Clos", "rail-optimized 3x2 one spine",
         "spine-leaf 4x2"]  # fmt: skip


def started(name: str, seed: object = 0, **policy: Any) -> Driver:
    driver = Driver(built(NAMED[name]), RoutingPolicy(**policy), seed)
    driver.connect_all()
    driver.check_converged()
    return driver


def events(driver: Driver, name: str) -> list[dict[str, Any]]:
    return [event for event in driver.events if event["event"] == name]


@pytest.mark.parametrize("local_repair", [True, False])
@pytest.mark.parametrize("name", SMALL)
def test_nothing_is_lost_while_a_link_is_taken_back_into_use(name: str, local_repair: bool) -> None:
    """Make before break: from the moment the link is up until all old rules are gone, every pair gets through."""
    driver = started(name, local_repair=local_repair)
    for link_id in targets(driver.fabric)[::2]:
        driver.set_link(link_id, up=False)
        driver.settle()
        driver.set_link(link_id, up=True)
        everybody = list(permutations(driver.fabric.gpus, 2))
        while True:
            for src, dst in driver.random.sample(everybody, 6):
                walk = driver.fake.send(src, dst)
                assert walk.outcome is Outcome.DELIVERED, (link_id, src.id, dst.id, walk)
            if not driver.step():
                if driver.keeper.stage is Stage.SETTLED:
                    break
                driver.advance(DRAIN_S / 2)
        driver.now_s += 60
        driver.check_converged()


@pytest.mark.parametrize("name", SMALL)
def test_a_repair_hurts_nobody_who_was_not_hurt_by_the_failure(name: str) -> None:
    driver = started(name, local_repair=False)
    for link_id in targets(driver.fabric)[1::2]:
        driver.set_link(link_id, up=False)
        well = [pair for pair, outcome in driver.outcomes().items() if outcome is Outcome.DELIVERED]
        while driver.step():
            for src, dst in driver.random.sample(well, 6):
                assert driver.fake.send(src, dst).outcome is Outcome.DELIVERED
        driver.settle()
        driver.check_converged()
        driver.set_link(link_id, up=True)
        driver.now_s += 60
        driver.settle()


@pytest.mark.parametrize("name", ["rail-only 2x2", "rail-only 4x2 Clos", "rail-optimized 4x2 units", "spine-leaf 4x2"])
@pytest.mark.parametrize("seed", range(2))
def test_no_packet_anywhere_loops_at_any_step(name: str, seed: int) -> None:
    """On the (switch, in-port) graph of every destination, for packets of every version that can be under way."""
    driver = started(name, seed)
    down: set[str] = set()
    for _ in range(4):
        link_id = driver.random.choice(targets(driver.fabric))
        driver.set_link(link_id, up=link_id in down)
        down ^= {link_id}
        for _ in range(driver.random.randrange(5, 80)):
            driver.step()
            if driver.random.random() < 0.05:
                dst = driver.random.choice(driver.fabric.gpus)
                loop = loop_for(driver.fake, dst, {0, driver.keeper.version, max(0, driver.keeper.version - 1)})
                assert loop is None, (dst.id, loop)
    driver.settle()
    driver.check_converged()


@pytest.mark.parametrize("name", ["rail-only 2x2", "rail-only 3x3 dual-homed", "rail-optimized 3x2 one spine"])
def test_every_pair_of_failures(name: str) -> None:
    driver = started(name)
    for links in list(combinations(targets(driver.fabric), 2))[:: 1 if "2x2" in name else 4]:
        for link_id in links:
            driver.set_link(link_id, up=False)
        driver.settle()
        driver.check_converged()
        truth = connected_pairs(driver.fabric, set(links))
        partitioned = events(driver, "partitioned")
        total = len(driver.fabric.gpus) * (len(driver.fabric.gpus) - 1)
        if len(truth) < total:
            assert partitioned[-1]["count"] == total - len(truth)
        for link_id in links:
            driver.set_link(link_id, up=True)
        driver.now_s += 60
        driver.settle()
    driver.check_converged()


def test_stages_follow_each_other_and_the_old_version_goes_last() -> None:
    driver = started("rail-only 2x2")
    driver.set_link("d0r0-rail0", up=False)
    driver.run()
    assert driver.keeper.stage is Stage.SETTLED, "nothing is left to delete after a first repair"
    first = driver.keeper.version
    driver.set_link("d1r0-rail0", up=False)
    driver.run()
    assert driver.keeper.stage is Stage.DRAINING
    second = driver.keeper.version
    held = {flow.values for switch in driver.fake.switches.values() for flow in switch.flows()}
    assert {first << 8, second << 8} <= {value for values in held for value in values}
    driver.advance(DRAIN_S)
    driver.run()
    assert driver.keeper.stage is Stage.SETTLED
    driver.check_converged()
    assert [event["version"] for event in events(driver, "repaired")] == [first, second]


def test_a_failure_in_the_middle_of_a_repair_starts_a_new_version() -> None:
    driver = started("rail-only 2x2")
    driver.set_link("d0r0-rail0", up=False)
    for _ in range(12):
        driver.step()
    driver.set_link("d1r1-nv1", up=False)
    driver.settle()
    driver.check_converged()
    assert events(driver, "repaired")[-1]["links_down"] == ["d0r0-rail0", "d1r1-nv1"]


def test_versions_wrap_around() -> None:
    driver = started("rail-only 2x2")
    for number in range(300):
        driver.set_link("d0r0-rail0", up=bool(number % 2))
        driver.settle()
        driver.now_s += 60
    driver.check_converged()
    seen = [event["version"] for event in events(driver, "repaired")]
    assert max(seen) <= 255


def test_a_flapping_link_is_held_down() -> None:
    driver = started("rail-only 2x2")
    for _ in range(FREE_FLAPS + 1):
        driver.set_link("d0r0-rail0", up=False)
        driver.run()
        driver.set_link("d0r0-rail0", up=True)
        driver.run()
    assert [event["hold_s"] for event in events(driver, "hold-down")] == [HOLD_FIRST_S]
    assert driver.keeper.links_down() == {"d0r0-rail0"}
    assert set(driver.outcomes().values()) == {Outcome.DELIVERED}
    driver.advance(HOLD_FIRST_S / 2)
    driver.run()
    assert driver.keeper.links_down() == {"d0r0-rail0"}
    driver.advance(HOLD_FIRST_S)
    driver.run()
    assert driver.keeper.links_down() == frozenset()
    # After a quiet time the link has its good name back.
    driver.now_s += 60
    driver.set_link("d0r0-rail0", up=False)
    driver.run()
    driver.set_link("d0r0-rail0", up=True)
    driver.run()
    assert driver.keeper.links_down() == frozenset()


def test_a_port_stays_closed_until_rules_that_use_it_are_in() -> None:
    driver = started("rail-only 2x2")
    driver.set_link("d0r0-rail0", up=False)
    driver.settle()
    driver.set_link("d0r0-rail0", up=True, tell=False)
    # A switch that knows nothing of the failure sends over the link.
    wrong = Rule(1050, Match(), (Output(2),), "wrong")
    driver.fake.install("s0r0", wrong)
    src, dst = driver.fabric.gpu("d0r0"), driver.fabric.gpu("d1r0")
    version = driver.keeper.version
    packet = ip_packet(src, dst)
    packet[AT["eth_src"]] |= version << 8
    walk = driver.fake.follow("s0r0", packet, dst)
    assert (walk.outcome, walk.switch_id) == (Outcome.DROPPED, "rail0")


def test_lost_messages_are_made_up_for() -> None:
    driver = started("rail-only 2x2")
    driver.set_link("d0r0-rail0", up=False, tell=False)
    assert driver.keeper.links_down() == frozenset()
    driver.settle()
    driver.check_converged()
    assert driver.keeper.links_down() == {"d0r0-rail0"}


def restarted(driver: Driver) -> None:
    """A new controller to which every switch tells what it holds."""
    told = {switch_id: driver.held(switch_id) for switch_id in driver.fake.switches}
    driver.new_keeper()
    driver.events.clear()
    for switch_id, (flows, groups) in told.items():
        driver.keeper.connect(switch_id)
        driver.keeper.set_ports(switch_id, driver.states(switch_id), every=True)
        driver.keeper.read(switch_id, flows, groups)
        driver.drain()


def test_a_restarted_controller_adopts_what_it_finds() -> None:
    driver = started("rail-only 2x2")
    for down in ([], ["d0r0-rail0"], ["d0r0-rail0", "d1r1-nv1"]):
        for link_id in down:
            driver.set_link(link_id, up=False)
        driver.settle()
        restarted(driver)
        assert not any(driver.to_switch.values()), "there was nothing to change"
        driver.settle()
        driver.check_converged()
        assert events(driver, "repair") == []
        assert len(events(driver, "ready")) == 1


def test_a_restarted_controller_sees_what_happened_meanwhile_and_loses_nothing() -> None:
    driver = started("rail-only 2x2")
    driver.set_link("d0r0-rail0", up=False)
    driver.settle()
    driver.set_link("d0r0-rail0", up=True, tell=False)
    driver.set_link("d1r0-rail0", up=False, tell=False)
    well = [pair for pair, outcome in driver.outcomes().items() if outcome is Outcome.DELIVERED]
    assert len(well) == 12, "local repair holds while there is no controller"
    restarted(driver)
    while driver.step():
        for src, dst in well:
            assert driver.fake.send(src, dst).outcome is Outcome.DELIVERED
    driver.settle()
    driver.check_converged()
    assert events(driver, "ready")


def test_a_controller_that_died_in_the_middle_of_a_change_is_succeeded() -> None:
    for cut in range(0, 60, 7):
        driver = started("rail-only 2x2", seed=cut)
        driver.set_link("d0r0-rail0", up=False)
        for _ in range(cut):
            driver.step()
        restarted(driver)
        driver.settle()
        driver.check_converged()


def test_foreign_rules_and_groups_go_and_wrong_ones_are_mended() -> None:
    driver = started("rail-only 2x2")
    switch = driver.fake.switches["s0r0"]
    flows, groups = driver.held("s0r0")
    strange = Rule(7, Match(in_port=2), (Output(3),), "strange")
    spoilt = next(rule for rule in driver.sent["s0r0"].values() if ArpReply() in rule.actions)
    switch.apply(encoded_rule(strange))
    switch.apply(encoded_rule(Rule(spoilt.priority, spoilt.match, (Output(3),), "spoilt")))
    flows[rule_identity(strange)] = Held(steps(strange.actions), strange)
    flows[rule_identity(spoilt)] = Held(steps((Output(3),)), spoilt)
    driver.keeper.connect("s0r0")
    driver.keeper.read("s0r0", flows, groups)
    driver.drain()
    driver.settle()
    driver.check_converged()


def test_a_switch_that_comes_back_empty_gets_everything_again() -> None:
    driver = started("rail-only 2x2")
    driver.set_link("d0r1-nv0", up=False)
    driver.settle()
    for switch_id in ("s0r0", "nv1", "rail0"):
        driver.keeper.lose(switch_id)
        driver.run()
        fresh = type(driver.fake.switches[switch_id])(switch_id, driver.fake.switches[switch_id].ports)
        fresh.dead_ports = driver.fake.switches[switch_id].dead_ports
        driver.fake.switches[switch_id] = fresh
        driver.connect(switch_id)
        driver.settle()
        driver.check_converged()
    assert driver.keeper.connected == sorted(driver.fake.switches)


def test_a_switch_that_never_comes_does_not_hold_up_the_others() -> None:
    driver = Driver(built(FabricSpec(FabricKind.RAIL_ONLY, 2, 2)))
    driver.fake.set_link("d0r0-rail0", up=False)
    for switch_id in driver.fake.switches:
        if switch_id != "nv1":
            driver.connect(switch_id)
    driver.run()
    assert driver.keeper.version == 0
    for _ in range(8):
        driver.advance(0.5)
        driver.run()
    assert driver.keeper.version > 0
    assert events(driver, "ready") == []
    driver.connect("nv1")
    driver.settle()
    driver.check_converged()
    assert events(driver, "ready")


def test_routes_of_the_keeper_are_the_pure_ones() -> None:
    driver = started("rail-only 2x2")
    driver.set_link("d0r0-rail0", up=False)
    driver.settle()
    pure = Routes(driver.fabric, driver.keeper.routes.failures)
    for src, dst in permutations(driver.fabric.gpus, 2):
        assert driver.keeper.routes.path(src, dst) == pure.path(src, dst)


@pytest.mark.parametrize("local_repair", [True, False])
def test_a_dead_switch_is_one_repair_where_switches_repair_by_themselves(local_repair: bool) -> None:
    driver = started("rail-only 3x3 dual-homed", local_repair=local_repair)
    links = [link.id for link in driver.fabric.links_of("rail0")]
    for link_id in links:
        driver.set_link(link_id, up=False)
        if not local_repair:
            driver.run()
    driver.settle()
    driver.check_converged()
    assert len(events(driver, "repair")) == (1 if local_repair else len(links))
