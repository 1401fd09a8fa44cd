"""A hidden fault on a real fabric: traffic feels it, no list shows it, and the answer is judged."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from controller.routing import Routes
from emulator.manager import RunningFabric
from emulator.mystery import FaultKind, draw_fault
from tests.emulator.live import fabric, live

pytestmark = live

NAME = "riddle"


def railbed(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli", *words, "--name", NAME], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def running() -> Iterator[RunningFabric]:
    with fabric(NAME, domains=2, rails=2) as up:
        yield up


def test_a_hidden_fault_is_felt_but_not_listed_until_it_is_found(running: RunningFabric) -> None:
    fault = draw_fault(Routes(running.fabric), running.scale, 3, (FaultKind.BLACKHOLE,))
    hidden = railbed("mystery", "--seed", "3", "--kinds", "blackhole")
    assert hidden.returncode == 0, hidden.stderr
    assert fault.link_id not in hidden.stdout
    assert railbed("failures").stdout == "nothing is wrong\n"
    assert "swallows nothing" in railbed("blackhole", fault.link_id, "--show").stdout
    assert running.observe(0, impairments=True)["impairments"] == []
    assert running.status()["links_down"] == []
    unreachable = running.reach_all(timeout_s=0.6)["unreachable"]
    assert unreachable
    src, dst = unreachable[0]
    assert "vanished" in railbed("path", src, dst, "--probes", "1").stdout
    again = railbed("mystery", "--seed", "4")
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    others = [link.id for link in running.fabric.failure_targets() if link.id != fault.link_id]
    assert railbed("solve", others[0]).returncode == 1
    assert railbed("solve", "d9r9").returncode == 2
    right = railbed("solve", fault.link_id)
    assert right.returncode == 0
    assert "(after 2 tries)" in right.stdout
    assert railbed("failures").stdout.startswith("link")
    assert railbed("restore", fault.link_id).returncode == 0
    assert running.reach_all()["unreachable"] == []


def test_restoring_everything_ends_it(running: RunningFabric) -> None:
    assert running.hide_fault(1, ["degrade"])["open"]
    (restored,) = running.reset_impairments()
    assert restored == draw_fault(Routes(running.fabric), running.scale, 1, (FaultKind.DEGRADE,)).link_id
    assert running.mystery() == {"open": False}
    assert running.impairments() == []
