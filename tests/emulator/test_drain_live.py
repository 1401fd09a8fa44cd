"""Parts of live fabrics out of service: nothing crosses them, they come back, and what is said of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from emulator.wire import RemoteError
from tests.emulator.live import fabric, live

pytestmark = live

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def running():
    with fabric("drained", domains=2, rails=2) as up:
        yield up


def railbed(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cli", *words, "--name", "drained"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{done.returncode} {done.stdout}{done.stderr}".strip()


def switches_on_the_way(running) -> set[str]:
    """Of the path between two GPUs, on which declared path, rules and probes agree."""
    found = running.path("d0r0", "d1r1")
    assert found["agree"], found
    return {interface.partition("-")[0] for interface, _ in found["declared"]}


def test_a_drained_gpu_is_no_relay_and_comes_back(running):
    assert "s0r1" in switches_on_the_way(running)
    assert railbed("drain", "d0r1").startswith("0 d0r1 is out of service: new rules everywhere after ")
    assert railbed("drain", "d0r1") == "0 d0r1 is out of service; no route has changed by that"
    assert railbed("drain") == "0 out of service: d0r1-nv0, d0r1-rail1"
    assert running.status()["links_down"] == []
    assert switches_on_the_way(running) == {"s0r0", "rail0", "s1r0", "nv1", "s1r1"}
    unreachable = running.reach_all(timeout_s=1.0)["unreachable"]
    assert unreachable
    assert all("d0r1" in pair for pair in unreachable)
    assert railbed("drain", "d0r1", "--undo").startswith("0 d0r1 is in service: new rules everywhere after ")
    assert railbed("drain") == "0 everything is in service"
    assert running.reach_all()["unreachable"] == []


def test_it_holds_whatever_the_links_do(running):
    running.drain("d0r1-rail1")
    assert "out of service, so no route has changed" in railbed("fail", "d0r1-rail1")
    assert "'railbed drain d0r1-rail1 --undo' changes that" in railbed("restore", "d0r1-rail1")
    assert running.drained() == ["d0r1-rail1"]
    running.fail("d1r0-rail0")
    assert not running.drain("d1r0-rail0")["changed"]
    running.drain("d0r1-rail1", on=False)
    running.drain("d1r0-rail0", on=False)
    running.restore("d1r0-rail0")
    assert running.reach_all()["unreachable"] == []


def test_wrong_use_is_told_in_a_sentence(running):
    assert railbed("drain", "d7r7").startswith("2 railbed: ")
    assert "joins a GPU to its own switch" in railbed("drain", "d0r0-s0r0")
    assert "--undo needs the TARGET" in railbed("drain", "--undo")
    with pytest.raises(RemoteError, match="no link 'nothing'"):
        running.drain("nothing")
