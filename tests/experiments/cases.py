"""Small experiments that several tests use."""

from collections.abc import Callable
from dataclasses import replace

from experiments.diagnosis.summary import with_diagnosis
from experiments.outcome import FAILURE, Outcome, analyse, with_slowdown
from experiments.plan import PlannedRun, plan, simulator_backend
from experiments.scenario import Scenario, parse_scenario
from workloads.records import RunRecord

SMALL = """\
name: A <small> & quick one
question: Does <b>escaping</b> work?
fabrics:
  - {kind: rail-only, preset: dgx-h100, domains: 2, rails: 2}
  - {kind: rail-optimized, preset: dgx-h100, domains: 2, rails: 2}
workload:
  - {collective: all-reduce, size: 256MiB}
  - {collective: all-to-all, size: 64MiB}
failures:
  - {at: 40%, restore: 70%}
backend: simulator
seed: 3
"""


def small() -> Scenario:
    return parse_scenario(SMALL)


def one() -> Scenario:
    """The small scenario cut down to one fabric and one collective."""
    whole = small()
    return whole.model_copy(update={"fabrics": whole.fabrics[:1], "workload": whole.workload[:1]})


def quiet(share: float) -> None:
    assert 0 <= share <= 1


def made(scenario: Scenario) -> list[tuple[PlannedRun, RunRecord, Outcome]]:
    """Every run of the scenario on the simulator with its outcome."""
    done: list[tuple[PlannedRun, RunRecord, Outcome]] = []
    for run in plan(scenario):
        record = simulator_backend(run, scenario.seed, quiet)
        outcome = analyse(run.label, run.fabric, record, run.predicted, run.detours)
        outcome = replace(outcome, condition=run.condition)
        if scenario.diagnose:
            outcome = with_diagnosis(outcome, run, record)
        if run.condition == FAILURE:
            healthy = [
                other for _, _, other in done if (other.fabric, other.collective) == (run.label, run.schedule.name)
            ]
            outcome = with_slowdown(outcome, healthy[0])
        done.append((run, record, outcome))
    return done


Calls = list[tuple[str, str, bool]]


def failing_after(count: int, calls: Calls) -> Callable[..., RunRecord]:
    """A back end that breaks down after ``count`` runs and writes down each call."""

    def backend(run: PlannedRun, seed: int, progress: Callable[[float], None]) -> RunRecord:
        if len(calls) == count:
            raise KeyboardInterrupt
        calls.append((run.fabric.kind.value, run.schedule.name, bool(run.failures)))
        return simulator_backend(run, seed, progress)

    return backend
