import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from emulator import manager
from emulator.errors import FabricExistsError, NoSuchFabricError
from emulator.names import interface_name
from emulator.rundir import RUN_ROOT, known_names
from emulator.shape import shape
from tests.emulator.live import fabric, in_fabric, live, traces
from topologies.errors import RailbedError
from topologies.model import FabricKind, FabricSpec

pytestmark = live


def machine_settings() -> list[str]:
    names = (
        "/proc/sys/net/core/wmem_default", "/proc/sys/net/core/rmem_default",
        "/proc/sys/net/ipv4/tcp_allowed_congestion_control", "/sys/kernel/rcu_expedited",
    )  # fmt: skip
    return [Path(name).read_text() for name in names if Path(name).exists()]


def machine_interfaces() -> str:
    rows = json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, text=True, check=True).stdout)
    return ",".join(sorted(row["ifname"] for row in rows))


def wait_until(happened, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_a_fabric_comes_up_verified_and_goes_without_a_trace():
    settings, interfaces = machine_settings(), machine_interfaces()
    with fabric("life", domains=4, rails=4) as running:
        status = running.status()
        assert status["switches_connected"] == status["switches"] == 24
        assert "240 ordered pairs" in status["self_test"]
        assert status["links_down"] == []
        assert status["datapath"] in ("kernel", "userspace")
        assert machine_settings() == settings, "the machine's settings are raised only while a fabric comes up"
        assert machine_interfaces() == interfaces, "all interfaces are in the fabric's namespace"
        assert traces("life")
    assert traces("life") == []
    assert machine_settings() == settings


@pytest.mark.parametrize("kind", [FabricKind.RAIL_OPTIMIZED, FabricKind.SPINE_LEAF, FabricKind.IDEAL])
def test_every_kind_of_fabric_comes_up(kind):
    with fabric("kinds", kind) as running:
        assert running.reach_all()["unreachable"] == []


def test_dual_homed_nics_parallel_links_and_clos_rails_come_up():
    with fabric("odd", FabricKind.RAIL_OPTIMIZED, spines=1, parallel_links=2) as running:
        assert "leaf0-spine0#2" in {link.id for link in running.fabric.links}
        assert running.reach_all()["unreachable"] == []
    with fabric("odd", FabricKind.RAIL_ONLY, domains=4, uplinks=2, domains_per_leaf=2) as running:
        assert running.reach_all()["unreachable"] == []


def test_the_kernel_holds_the_shaping_of_the_scale():
    with fabric("shape") as running:
        text = in_fabric("shape", "tc", "class", "show", "dev", interface_name("s0r0", 2))
        assert "rate 20Mbit ceil 20Mbit" in text
        queue = in_fabric("shape", "tc", "qdisc", "show", "dev", interface_name("rail0", 1))
        assert f"limit {shape(20).queue_bytes}b" in queue
        running.fail("d0r0-rail0")
        running.restore("d0r0-rail0")
        assert in_fabric("shape", "tc", "class", "show", "dev", interface_name("s0r0", 2)) == text


def test_two_fabrics_live_side_by_side():
    with fabric("left") as left, fabric("right", FabricKind.RAIL_OPTIMIZED) as right:
        left.fail("d0r0-rail0")
        assert right.status()["links_down"] == []
        assert left.status()["links_down"] == ["d0r0-rail0"]
        manager.down("left")
        assert right.reach_all()["unreachable"] == []


def test_what_cannot_be_is_one_sentence_and_leaves_nothing():
    with fabric("busy"):
        with pytest.raises(FabricExistsError, match="'busy' is up already"):
            manager.up(FabricSpec(FabricKind.RAIL_ONLY, 2, 2), name="busy")
        assert manager.attach("busy").status()["switches_connected"] == 8, "the one that is up is not harmed"
    with pytest.raises(NoSuchFabricError, match="no fabric called 'busy'"):
        manager.attach("busy")
    with pytest.raises(NoSuchFabricError):
        manager.down("busy")
    with pytest.raises(RailbedError, match="65536 is no TCP port"):
        manager.up(FabricSpec(FabricKind.RAIL_ONLY, 2, 2), name="never", openflow_port=65536)
    assert traces("never") == []


def test_an_open_vswitch_that_cannot_start_is_said_and_nothing_stays(monkeypatch, tmp_path):
    broken = tmp_path / "ovs-vswitchd"
    broken.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && exec /usr/sbin/ovs-vswitchd --version\necho 'no room' >&2\nexit 1\n"
    )
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(RailbedError) as caught:
        manager.up(FabricSpec(FabricKind.RAIL_ONLY, 2, 2), name="broken", timeout_s=30)
    assert "ovs-vswitchd0 did not start: no room" in str(caught.value)
    assert [trace for trace in traces("broken") if "/run/railbed" not in trace] == []
    manager.down("broken")
    assert traces("broken") == []


@pytest.mark.parametrize("victim", ["supervisor", "emulation", "ovs-vswitchd", "controller"])
def test_kill_9_leaves_nothing_that_down_does_not_remove(victim):
    with fabric("crash") as running:
        supervisor = running.state.supervisor_pid
        pids = {
            "supervisor": supervisor,
            "emulation": max(int(line) for line in _children(supervisor, "emulator.daemon")),
            "ovs-vswitchd": int(_children(supervisor, "ovs-vswitchd")[0]),
            "controller": int(_children(supervisor, "-m controller")[0]),
        }
        os.kill(pids[victim], signal.SIGKILL)
        if victim in ("supervisor", "emulation"):
            wait_until(lambda: not any("process" in trace for trace in traces("crash")))
        report = manager.down("crash")
        assert report.removed + report.stale == ["crash"]
        assert traces("crash") == []


def test_the_next_up_clears_what_a_crash_left():
    with fabric("again") as running:
        os.kill(running.state.supervisor_pid, signal.SIGKILL)
        wait_until(lambda: not running.state.alive)
        with pytest.raises(NoSuchFabricError, match="no longer running"):
            manager.attach("again")
        second = manager.up(FabricSpec(FabricKind.RAIL_ONLY, 2, 2), name="again")
        assert second.reach_all()["unreachable"] == []


def test_foreign_namespaces_bridges_and_processes_are_left_alone(tmp_path):
    subprocess.run(["ip", "netns", "add", "foreign"], check=True)
    sleeper = subprocess.Popen(["ip", "netns", "exec", "foreign", "sleep", "300"])
    try:
        subprocess.run(["ip", "-n", "foreign", "link", "add", "s0r0-eth2", "type", "veth", "peer", "rail0"], check=True)
        with fabric("mine") as running:
            os.kill(running.state.supervisor_pid, signal.SIGKILL)
            wait_until(lambda: not running.state.alive)
            manager.down()
        assert sleeper.poll() is None
        assert "s0r0-eth2" in subprocess.run(["ip", "-n", "foreign", "link"], capture_output=True, text=True).stdout
    finally:
        sleeper.kill()
        sleeper.wait()
        subprocess.run(["ip", "netns", "del", "foreign"], check=True)


def _children(ancestor: int, words: str) -> list[str]:
    """Pids (outer) of the descendants of ``ancestor`` whose command line holds ``words``."""
    rows = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    parents, args = {}, {}
    for row in rows.splitlines():
        pid, parent, command = row.split(None, 2)
        parents[pid], args[pid] = parent, command
    found = []
    for pid, command in args.items():
        above = pid
        while above in parents and above != str(ancestor):
            above = parents[above]
        if above == str(ancestor) and words in command:
            found.append(pid)
    return found


def test_run_root_is_gone_when_no_fabric_is_up():
    with fabric("last"):
        assert RUN_ROOT.is_dir()
    if not known_names():
        assert not RUN_ROOT.exists()
