import subprocess

import pytest

from tests.emulator.live import fabric, live

pytestmark = live


@pytest.fixture(scope="module")
def running():
    with fabric("minimn", domains=2, rails=2) as up:
        yield up


def test_mininets_commands_work_on_a_running_fabric(running):
    nodes = running.mininet("nodes")
    for name in ("d0r0", "d1r1", "s0r0", "nv1", "rail0"):
        assert name in nodes
    assert "d0r0 eth0:s0r0-eth1" in running.mininet("net")
    assert "s0r0 lo:  s0r0-eth1:eth0" in running.mininet("net")


def test_a_host_runs_commands_and_knows_the_others_by_name(running):
    assert "inet 10.0.1.0/8" in running.mininet("d0r0 ip -4 addr show eth0")
    ping = running.mininet("d0r0 ping -c 2 -i 0.2 d1r1")
    assert "2 received" in ping, ping


def test_pingall_loses_nothing(running):
    assert "0% dropped (12/12 received)" in running.mininet("pingall")


def test_a_switch_answers_dpctl(running):
    assert "nw_dst=10.0.1.0" in running.mininet("dpctl dump-flows")


def test_an_unknown_command_is_said(running):
    assert "Unknown command" in running.mininet("frobnicate now")


def test_shells_start_only_when_asked_for():
    with fabric("noshell", domains=2, rails=2) as quiet:
        listed = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
        before = listed.count("mininet:d")
        quiet.mininet("d0r0 true")
        listed = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
        assert listed.count("mininet:d") == before + 1
