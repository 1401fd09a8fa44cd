"""The controller on a live fabric of 16 GPUs: random faults, silent failures, and life without it."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import pytest

from controller.routing import Routes
from emulator.errors import EmulatorError
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec, Failures

pytestmark = pytest.mark.live

SPEC = FabricSpec(FabricKind.RAIL_ONLY, 4, 4)
DEADLINE_S = 20.0
RANDOM_STEPS = 30
MAX_FAULTS = 5
SOAK_S = 600.0


@pytest.fixture(scope="module")
def standing() -> Iterator[Any]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ovs-vswitchd") is None:
        pytest.skip("Open vSwitch is not installed")
    from emulator import manager

    name = f"ctl{os.getpid() % 10000}"
    fabric = manager.up(SPEC, name=name, bfd=True)
    yield fabric
    manager.down(name)


@pytest.fixture
def running(standing: Any) -> Iterator[Any]:
    """The one fabric of all tests, with nothing broken: what one test breaks is none of the next one's business."""
    yield standing
    standing.reset_impairments()


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    pause = 0.02
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(pause)
    raise AssertionError(f"not within {DEADLINE_S:g} s: {what}")


def test_random_faults(running: Any) -> None:
    """The same driver as on switches in memory, a step at a time: what gets through is the graph's truth."""
    fabric = build(SPEC)
    random_source = random.Random(42)
    pool = sorted(link.id for link in fabric.failure_targets())
    down: set[str] = set()
    for step in range(RANDOM_STEPS):
        repair = len(down) == MAX_FAULTS or (down and random_source.random() < 0.4)
        link_id = random_source.choice(sorted(down) if repair else pool)
        (running.restore if link_id in down else running.fail)(link_id)
        down ^= {link_id}
        routes = Routes(fabric, Failures(links=frozenset(down)))
        cut_off = {(src.id, dst.id) for src, dst in routes.partitioned()}
        reach = running.reach_all(timeout_s=0.5 if cut_off else 5.0)
        assert {tuple(pair) for pair in reach["unreachable"]} == cut_off, (step, sorted(down))
        if step % 5 == 4:
            src, dst = random_source.choice(list(permutations(fabric.gpus, 2)))
            path = running.path(src.id, dst.id)
            assert path["agree"], path["disagreement"]
    for link_id in sorted(down):
        running.restore(link_id)
    assert running.reach_all()["unreachable"] == []


def test_a_silent_failure_is_found_within_a_second(running: Any) -> None:
    link_id = "d1r2-rail2"
    events = len(running.events())
    running.blackhole(link_id)
    began_s = time.monotonic()
    found = wait_until(lambda: [each for each in running.events()[events:] if each["event"] == "repaired"], "a repair")
    assert found[0]["links_down"] == [link_id]
    assert found[0]["t_s"] - began_s < 1.0
    assert running.reach_all()["unreachable"] == []
    events = len(running.events())
    running.restore(link_id)
    wait_until(
        lambda: [each for each in running.events()[events:] if each["event"] == "repaired" and not each["links_down"]],
        "the way back",
    )


def test_traffic_flows_while_the_controller_is_away_and_when_it_comes_back(running: Any) -> None:
    running.fail("d0r0-rail0")
    seen = running.measure_absence("d2r1-rail1", "d1r1", "d2r1")
    # Only what was on the dead link when it died; nothing when the new controller came.
    assert seen["lost"] <= 100, seen
    assert seen["longest_gap_s"] < 0.25, seen
    assert running.status()["switches_connected"] == 24
    wait_until(
        lambda: [each for each in running.events() if each["event"] == "settled"
                 and each["links_down"] == ["d0r0-rail0", "d2r1-rail1"]],
        "the new controller knows of both failures",
    )  # fmt: skip
    for link_id in ("d0r0-rail0", "d2r1-rail1"):
        running.restore(link_id)
    assert running.reach_all()["unreachable"] == []


@pytest.mark.soak
def test_no_false_alarm_in_ten_loaded_minutes(running: Any) -> None:
    pairs = [(gpu.id, f"d{(gpu.domain + 1) % 4}r{gpu.rail}") for gpu in build(SPEC).gpus]
    events = len(running.events())
    ends_s = time.monotonic() + SOAK_S
    while time.monotonic() < ends_s:
        rates = running.steady(pairs, 30.0)["rates_mbps"]
        assert min(rates) > 0
    alarms = [each for each in running.events()[events:] if each["event"] == "link-down"]
    assert alarms == []


def test_an_unknown_switch_has_no_rules(running: Any) -> None:
    with pytest.raises(EmulatorError):
        running.rules("spine9")
