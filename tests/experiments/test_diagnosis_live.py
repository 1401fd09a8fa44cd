"""The diagnosis on live fabrics: faults injected into runs of the agent, and healthy minutes without an alarm."""

import json

import pytest
from click.testing import CliRunner

from cli.main import railbed
from controller.diagnosis.verdict import Syndrome
from emulator import manager
from experiments.diagnosis.injections import Injection, LinkFault, Setting, Traffic, Truth, schedule_of
from experiments.diagnosis.live import BackgroundRun, healthy_alarms, live_trial, network_now
from experiments.diagnosis.trials import iteration_s
from topologies.builders import build, preset_spec
from topologies.model import FabricKind
from workloads.failures import FailureKind
from workloads.repeated import RankFault, RankFaultKind

pytestmark = pytest.mark.live

FABRIC = build(preset_spec("dgx-h100", FabricKind.RAIL_ONLY, 4, 4))
SETTING = Setting(FabricKind.RAIL_ONLY, Traffic.TOGETHER, False)
HEALTHY_MINUTES = 30


@pytest.fixture(scope="module")
def running():
    """A fabric on which nothing but the diagnosis notices a blackhole."""
    up = manager.up(FABRIC.spec, name="test-diag", local_repair=False)
    yield up
    up.close()


@pytest.mark.parametrize(
    ("links", "ranks", "truth"),
    [
        (
            (LinkFault("d2r1-rail1", FailureKind.BLACKHOLE, "both", 1.0),),
            (),
            Truth(Syndrome.COMMUNICATION_HANG, "d2r1-rail1"),
        ),
        ((), (RankFault(6, RankFaultKind.ABSENT, 2),), Truth(Syndrome.NON_COMMUNICATION_HANG, "d1r2")),
    ],
    ids=["silent NIC", "absent rank"],
)
def test_an_injection_is_found(running, links, ranks, truth):
    injection = Injection(0, "by hand", SETTING, 2.5, links, ranks, (truth,))
    trial = live_trial(running, network_now(running), injection, 0, iteration_s(FABRIC, SETTING), "off")
    assert (trial.result, trial.extra) == ("correct", ()), trial


def test_the_command_follows_a_run(running):
    run = BackgroundRun(running, schedule_of(FABRIC, SETTING, iterations=4))
    told = CliRunner().invoke(railbed, ["diagnose", "--name", "test-diag", "--seconds", "4", "--json"],
                              standalone_mode=False)  # fmt: skip
    run.stop()
    (found,) = json.loads(told.output)["runs"]
    assert (found["finding"], found["alarms"], told.return_value) == ("healthy", [], 0)
    assert len(found["latest"]["cells"]) == 240


def test_a_fabric_without_a_run_is_told_so(running):
    told = CliRunner().invoke(railbed, ["diagnose", "--name", "test-diag"], standalone_mode=False)
    assert "nothing is told on the fabric 'test-diag'" in str(told.exception)


@pytest.mark.soak
def test_healthy_minutes_have_no_alarm(running):
    """Half of them beside other jobs, and a rail-only fabric throughout."""
    alarms = []
    for background in (False, True):
        setting = Setting(FabricKind.RAIL_ONLY, Traffic.TOGETHER, background)
        watched_s, found = healthy_alarms(running, network_now(running), setting, HEALTHY_MINUTES * 30)
        assert watched_s >= HEALTHY_MINUTES * 30
        alarms += [alarm.verdict.text for alarm in found]
    assert alarms == []
