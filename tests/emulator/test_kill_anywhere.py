"""kill -9 at seeded random moments of up, run and down: what `down` or the next `up` leaves is nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from emulator import manager
from emulator.errors import NoSuchFabricError
from emulator.rundir import RUN_ROOT
from tests.emulator.live import fabric, live, traces
from topologies.model import FabricKind, FabricSpec

pytestmark = live

ROOT = Path(__file__).resolve().parent.parent.parent
NAME = "chaos"
SPEC = FabricSpec(FabricKind.RAIL_ONLY, 2, 2)
SCRIPTS = {
    "up": f"manager.up(FabricSpec(FabricKind.RAIL_ONLY, 2, 2), name='{NAME}')",
    "run": f"manager.attach('{NAME}').steady([('d0r0', 'd1r0'), ('d1r1', 'd0r0')], 0.5)",
    "down": f"manager.down('{NAME}')",
}
LONGEST_S = {"up": 1.2, "run": 1.2, "down": 0.25}
"""Until when a victim is chosen: a little longer than each takes on two idle cores."""


@dataclass(frozen=True)
class Foreign:
    """What is not ours and stays beside it: an Open vSwitch with a bridge called like one of ours, a listener on the
    OpenFlow port, a namespace with an interface called like one of ours."""

    directory: Path
    daemons: tuple[int, ...]
    listener: socket.socket

    def state(self) -> dict[str, object]:
        bridges = subprocess.run(
            ["ovs-vsctl", f"--db=unix:{self.directory}/db.sock", "list-br"], capture_output=True, text=True, check=True
        ).stdout
        links = subprocess.run(["ip", "-n", "foreign9", "-o", "link"], capture_output=True, text=True, check=True)
        return {
            "bridges": bridges,
            "alive": [psutil.pid_exists(pid) for pid in self.daemons],
            "links": links.stdout.count("s0r0-eth2"),
        }


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    directory = tmp_path_factory.mktemp("foreign")
    environment = {**os.environ, **dict.fromkeys(("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"), str(directory))}
    database = f"unix:{directory}/db.sock"

    def start(*command: str) -> None:
        subprocess.run(command, env=environment, check=True, capture_output=True)

    start("ovsdb-tool", "create", str(directory / "conf.db"))
    pidfile = [f"--pidfile={directory}/{name}.pid" for name in ("ovsdb-server", "ovs-vswitchd")]
    start("ovsdb-server", str(directory / "conf.db"), f"--remote=p{database}", "--detach", pidfile[0])
    start("ovs-vswitchd", database, "--enable-dummy", "--detach", pidfile[1])
    start("ovs-vsctl", f"--db={database}", "add-br", "rail0", "--", "set", "bridge", "rail0", "datapath_type=dummy")
    start("ip", "netns", "add", "foreign9")
    start("ip", "-n", "foreign9", "link", "add", "s0r0-eth2", "type", "veth", "peer", "rail0")
    pids = tuple(int((directory / f"{name}.pid").read_text()) for name in ("ovsdb-server", "ovs-vswitchd"))
    listener = socket.socket()
    with suppress(OSError):  # somebody on this machine may have it: as good for this test
        listener.bind(("0.0.0.0", 6653))
        listener.listen()
        listener.setblocking(False)
    try:
        yield Foreign(directory, pids, listener)
    finally:
        listener.close()
        for pid in reversed(pids):
            os.kill(pid, signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", "foreign9"], check=True)


def machine_interfaces() -> set[str]:
    rows = json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, text=True, check=True).stdout)
    return {row["ifname"] for row in rows}


def in_its_own_process(words: str) -> subprocess.Popen[bytes]:
    script = f"from emulator import manager; from topologies.model import FabricKind, FabricSpec; {words}"
    return subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.DEVNULL)


def victims(command: subprocess.Popen[bytes]) -> list[int]:
    """The process of the command, and those of the fabric as far as they are there."""
    found = [command.pid]
    with suppress(psutil.Error):
        found += [one.pid for one in psutil.Process(command.pid).children(recursive=True)]
    with suppress(NoSuchFabricError, psutil.Error):
        supervisor = psutil.Process(manager.RunDir(NAME).read_state().supervisor_pid)
        found += [supervisor.pid, *(one.pid for one in supervisor.children(recursive=True))]
    return sorted(set(found))


def kill_somebody(phase: str, chance: random.Random) -> str:
    """Start ``phase`` in a process of its own and kill a random process of it, or all of a kind, at a random moment."""
    command = in_its_own_process(SCRIPTS[phase])
    moment_s = chance.uniform(0.0, LONGEST_S[phase])
    deadline = time.monotonic() + moment_s
    while command.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    possible = victims(command)
    victim = chance.choice(possible)
    said = f"{phase}: process {possible.index(victim)} of {len(possible)} after {moment_s:.3f} s"
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    if victim != command.pid and chance.random() < 0.5:
        said += ", and the command"
        command.kill()
    command.wait(60)
    return said


def one_death(seed: int, foreign: Foreign) -> None:
    chance = random.Random(seed)
    phase = list(SCRIPTS)[seed % 3]
    before, interfaces = foreign.state(), machine_interfaces()
    if phase != "up":
        manager.up(SPEC, name=NAME)
    said = f"seed {seed}, {kill_somebody(phase, chance)}"
    if chance.random() < 0.5:
        with suppress(NoSuchFabricError):
            manager.down(NAME)
    else:
        said += ", then up"
        with suppress(NoSuchFabricError):
            state = manager.RunDir(NAME).read_state()
            if state.alive and state.ready:  # what was killed was not vital: the fabric still stands
                manager.down(NAME)
        with fabric(NAME) as running:
            assert running.reach_all()["unreachable"] == [], said
    assert traces(NAME) == [], said
    assert not (RUN_ROOT / f"{NAME}.lock").exists(), said
    assert machine_interfaces() == interfaces, said
    assert foreign.state() == before, said
    with pytest.raises(OSError, match=r"temporarily unavailable|Invalid"):
        foreign.listener.accept()  # none of our switches called at somebody else's controller


@pytest.mark.parametrize("seed", range(6))
def test_kill_9_at_a_random_moment_leaves_nothing(seed: int, foreign: Foreign) -> None:
    one_death(seed, foreign)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6, 46))
def test_kill_9_at_many_random_moments_leaves_nothing(seed: int, foreign: Foreign) -> None:
    one_death(seed, foreign)
