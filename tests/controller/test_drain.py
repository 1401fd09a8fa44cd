"""Links out of service: nothing uses them, nothing is lost on the way there and back, failures meanwhile included."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from controller.fake import Outcome
from controller.keeper import DRAIN_S, Stage
from controller.policy import RoutingPolicy
from tests.controller.driver import Driver, targets
from tests.controller.fabrics import NAMED, built
from topologies.errors import UnknownElementError
from topologies.model import LinkKind

FABRICS = ["rail-only 3x3 dual-homed", "rail-only 4x2 Clos", "rail-optimized 3x2 one spine", "spine-leaf 4x2"]


def started(name: str, **policy: Any) -> Driver:
    driver = Driver(built(NAMED[name]), RoutingPolicy(**policy))
    driver.connect_all()
    driver.check_converged()
    return driver


def links_of_gpu(driver: Driver, gpu_id: str) -> frozenset[str]:
    switch_id = driver.fabric.gpu(gpu_id).switch_id
    return frozenset(link.id for link in driver.fabric.links_of(switch_id) if link.kind is not LinkKind.HOST)


def settle_without_loss(driver: Driver, pairs: list[Any]) -> None:
    """Step by step to the end of a change; every one of ``pairs`` gets through at every step."""
    while True:
        for src, dst in driver.random.sample(pairs, min(6, len(pairs))):
            walk = driver.fake.send(src, dst)
            assert walk.outcome is Outcome.DELIVERED, (src.id, dst.id, walk)
        if not driver.step():
            if driver.keeper.stage is Stage.SETTLED:
                return
            driver.advance(DRAIN_S / 2)


@pytest.mark.parametrize("local_repair", [True, False])
@pytest.mark.parametrize("name", FABRICS)
def test_a_drained_gpu_is_crossed_by_nobody_and_no_packet_of_the_others_is_lost(name: str, local_repair: bool) -> None:
    driver = started(name, local_repair=local_repair)
    gone = driver.fabric.gpu("d0r1")
    links = links_of_gpu(driver, "d0r1")
    others = [pair for pair in permutations(driver.fabric.gpus, 2) if gone not in pair]
    assert driver.keeper.drain(links)
    settle_without_loss(driver, others)
    driver.check_converged()
    assert driver.keeper.links_down() == driver.keeper.drained == links
    for src, dst in others:
        path = driver.keeper.routes.path(src, dst)
        assert path is not None
        assert not links & set(path.links)
    assert driver.keeper.drain(frozenset())
    settle_without_loss(driver, others)
    driver.check_converged()
    assert driver.keeper.version == 0
    told = [event["links"] for event in driver.events if event["event"] == "drained"]
    assert told == [sorted(links), []]


def test_a_failure_of_another_link_is_repaired_meanwhile_and_both_end() -> None:
    driver = started("rail-only 3x3 dual-homed")
    driver.keeper.drain(frozenset({"d0r0-nv0"}))
    broken = next(link for link in targets(driver.fabric) if link.startswith("d1r0-rail"))
    driver.set_link(broken, up=False)
    driver.settle()
    assert driver.keeper.links_down() == {"d0r0-nv0", broken}
    driver.check_converged()
    assert driver.keeper.drain(frozenset())
    driver.settle()
    assert driver.keeper.links_down() == {broken}
    driver.set_link(broken, up=True)
    driver.now_s += 60
    driver.settle()
    driver.check_converged()
    assert driver.keeper.version == 0


def test_draining_what_is_down_changes_no_route_and_holds_when_it_comes_back() -> None:
    driver = started("rail-only 2x2")
    driver.set_link("d0r0-rail0", up=False)
    driver.settle()
    version = driver.keeper.version
    assert not driver.keeper.drain(frozenset({"d0r0-rail0"}))
    assert driver.keeper.version == version
    driver.set_link("d0r0-rail0", up=True)
    driver.now_s += 60
    driver.settle()
    assert driver.keeper.links_down() == {"d0r0-rail0"}
    assert driver.keeper.drain(frozenset())
    driver.settle()
    driver.check_converged()
    assert driver.keeper.version == 0


def test_a_link_that_there_is_not_is_refused() -> None:
    driver = started("rail-only 2x2")
    with pytest.raises(UnknownElementError, match="no link 'd9r9-rail0'"):
        driver.keeper.drain(frozenset({"d9r9-rail0"}))
    assert driver.keeper.drained == frozenset()
