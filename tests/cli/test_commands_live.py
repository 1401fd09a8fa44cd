"""The commands about fabrics, typed as a user types them, on a real one."""

import json
import subprocess
import sys

import pytest

from emulator import manager
from tests.emulator.live import live

pytestmark = live

NAME = "typed"


def railbed(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "cli", *words], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def fabric():
    done = railbed("up", "--domains", "2", "--rails", "2", "--name", NAME)
    try:
        yield done
    finally:
        if any(state.name == NAME for state in manager.running()):
            manager.down(NAME)


def test_up_says_what_came_up(fabric):
    assert fabric.returncode == 0, fabric.stderr
    assert "rail-only with 4 GPUs is up" in fabric.stdout
    assert fabric.stderr == "", "no progress in a pipe"


def test_status_lists_it(fabric):
    done = railbed("status", "--json")
    (one,) = [row for row in json.loads(done.stdout) if row["name"] == NAME]
    assert one["status"]["switches"] == one["status"]["switches_connected"] == 8


def test_fail_failures_and_restore(fabric):
    failed = railbed("fail", "d0r1-rail1", "--name", NAME)
    assert failed.returncode == 0
    assert "d0r1-rail1 is down: noticed after" in failed.stdout
    assert "down already" in railbed("fail", "d0r1-rail1", "--name", NAME).stdout
    assert "swallows all packets (out)" in railbed(
        "blackhole", "d0r0-rail0", "--direction", "out", "--name", NAME
    ).stdout  # fmt: skip
    assert "5 of 20 Mbit/s" in railbed("degrade", "d1r0-rail0", "5", "--name", NAME).stdout
    shown = railbed("failures", "--name", NAME).stdout
    for line in ("d0r1-rail1  down", "d0r0-rail0  swallows packets (out)", "d1r0-rail0  5 Mbit/s only"):
        assert line in shown
    assert railbed("restore", "d0r0-rail0", "--name", NAME).stdout == "d0r0-rail0 is up\n"
    assert "d1r0-rail0" in railbed("failures", "--reset", "--name", NAME).stdout
    assert railbed("failures", "--name", NAME).stdout == "nothing is wrong\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("fail", "d0r1-rail9"), "no link 'd0r1-rail9'"),
        (("fail", "d0r0-s0r0"), "cannot fail"),
        (("degrade", "d0r0-rail0", "99"), "its own emulated rate is 20"),
        (("flap", "d0r0-rail0", "--count", "0"), "cannot flap"),
        (("up", "--name", NAME), "is up already"),
        (("restore", "d0r0-rail0", "--name", "nobody"), "no fabric called 'nobody'"),
    ],
)
def test_mistakes_are_one_sentence_with_exit_code_2(fabric, words, text):
    named = words if "--name" in words else (*words, "--name", NAME)
    done = railbed(*named)
    assert done.returncode == 2
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_down_takes_it_away(fabric):
    done = railbed("down", NAME)
    assert done.returncode == 0, done.stderr
    assert NAME not in [state.name for state in manager.running()]


def test_calibrate_measures_and_judges_the_default_scales():
    done = railbed("calibrate", "--json")
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["gbps_passes"] > 1
    assert measured["packets_per_s"] > 1000
    assert all(0 < value < 100 for value in measured["rtt_ms"].values())
    assert set(measured["default_scales"]) == {"16", "64", "256"}
