"""Injections on the simulator, scored; stored runs diagnosed; the command."""

import json

import pytest
from click.testing import CliRunner

from cli.main import railbed
from controller.diagnosis.verdict import Finding
from experiments.diagnosis.injections import LINK_FAULTS, WHATS, Setting, Traffic, injections, schedule_of
from experiments.diagnosis.summary import diagnose_stored
from experiments.diagnosis.trials import by, iteration_s, network_of, percentile, score, simulated
from experiments.diagnosis.watching import run_alarms
from experiments.errors import ResultsError
from experiments.plan import simulator_backend
from experiments.run import run_scenario
from experiments.scenario.reading import parse_scenario
from experiments.stored import read_result
from simulator.fluid import simulate
from simulator.routes import controller_router
from topologies.builders import build, preset_spec
from topologies.model import FabricKind
from topologies.scale import default_scale

KINDS = (FabricKind.RAIL_ONLY, FabricKind.SPINE_LEAF)
FABRICS = {kind: build(preset_spec("dgx-h100", kind, 4, 4)) for kind in KINDS}

SCENARIO = """
name: degraded
fabrics: [{kind: rail-only, preset: dgx-h100, domains: 4, rails: 4}]
workload: [{collective: all-to-all, size: 200MB}]
failures: [{link: d0r0-rail0, kind: degrade, rate: 25%, at: 40%}]
backend: simulator
report: false
"""


def test_injections_are_seeded_and_of_all_kinds():
    first, again = (list(injections(FABRICS, 36, seed=3)) for _ in range(2))
    assert first == again
    assert [one.what for one in first[:12]] == list(WHATS)
    assert first != list(injections(FABRICS, 36, seed=4))
    for one in first:
        assert one.what not in LINK_FAULTS or len(one.links) == 1
        assert one.setting.kind is FabricKind.SPINE_LEAF or "leaf-spine" not in one.what


def test_a_seeded_set_is_found():
    """One injection of every kind; the ring's is ambiguous by its nature."""
    trials = [
        simulated(one, FABRICS[one.setting.kind], 0, iteration_s(FABRICS[one.setting.kind], one.setting))
        for one in injections(FABRICS, 12)
    ]
    told = {one.what: (one.result, one.truths, one.told) for one in trials}
    assert {one.result for one in trials} <= {"correct", "ambiguous"}, told
    assert sum(one.result == "correct" for one in trials) >= 10, told
    assert [one.extra for one in trials if one.extra] == []
    assert all(0 < one.detected_s < 10 for one in trials)
    found = score(trials)
    assert found.trials == 12
    assert found.correct + found.ambiguous == pytest.approx(1.0)
    assert found.correct_of_located == 1.0
    assert set(by(trials, "what")) == set(WHATS)


@pytest.mark.parametrize("traffic", list(Traffic))
def test_a_healthy_run_beside_other_jobs_has_no_alarm(traffic):
    fabric = FABRICS[FabricKind.SPINE_LEAF]
    schedule = schedule_of(fabric, Setting(fabric.kind, traffic, True), iterations=5)
    record = simulate(fabric, schedule, controller_router(fabric), scale=default_scale(fabric), report_s=0.2)
    assert [alarm.verdict.text for _, news, _ in run_alarms(record, network_of(fabric)) for alarm in news] == []


def test_percentiles():
    assert percentile([], 0.95) is None
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert percentile([float(one) for one in range(1, 101)], 0.95) == 95.0


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    run_scenario(parse_scenario(SCENARIO), simulator_backend, lambda *_: None, results_root=root, report=False)
    return next(root.iterdir())


def test_a_stored_run_is_diagnosed(stored):
    result = read_result(stored)
    healthy, failed = (diagnose_stored(run, result.scenario()) for run in result.runs)
    assert (healthy.finding, healthy.alarms) == (Finding.HEALTHY, ())
    assert [alarm.verdict.text for alarm in failed.alarms] == ["communication slow: link d0r0-rail0"]


def test_a_run_that_the_scenario_no_longer_makes(stored):
    result = read_result(stored)
    other = parse_scenario(SCENARIO.replace("200MB}", "200MB, name: other}"))
    with pytest.raises(ResultsError, match="does not make 'all-to-all'"):
        diagnose_stored(result.runs[0], other)


def test_the_command_on_a_stored_result(stored):
    told = CliRunner().invoke(railbed, ["diagnose", str(stored)], standalone_mode=False)
    assert told.return_value == 1
    assert "1-rail-only--all-to-all--healthy: healthy" in told.output
    assert "communication slow: link d0r0-rail0" in told.output
    assert "times as long for a byte" in told.output


def test_the_command_gives_json(stored):
    told = CliRunner().invoke(railbed, ["diagnose", str(stored), "--run", "failure", "--json"], standalone_mode=False)
    (run,) = json.loads(told.output)["runs"]
    assert run["finding"] == "fault"
    assert run["alarms"][0]["verdict"]["component"] == {"kind": "link", "id": "d0r0-rail0", "direction": "both"}
    assert len(run["latest"]["cells"]) == 240


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["latest", "--name", "x"], "--name is for a running fabric"),
        (["--run", "x"], "--run is for a stored result"),
        (["nothing-there"], "there is no result 'nothing-there'"),
    ],
)
def test_wrong_use_of_the_command(words, error, tmp_path):
    told = CliRunner().invoke(railbed, ["diagnose", *words, "--results", str(tmp_path)], standalone_mode=False)
    assert error in str(told.exception)
