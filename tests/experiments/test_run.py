"""Experiments that don't go as planned: interrupted, killed, with runs that can't be made."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from emulator.errors import CapacityError, NotRootError
from experiments.errors import InterruptedExperimentError, ResultsError, StageTimeoutError
from experiments.plan import PlannedRun, simulator_backend
from experiments.results import ResultsFolder, is_being_written
from experiments.run import resume_scenario, run_scenario
from experiments.scenario import Scenario
from experiments.stored import read_result
from experiments.watchdog import limited
from tests.experiments.cases import Calls, failing_after, small
from workloads.records import RunRecord


def silent(stage: str, share: float | None) -> None:
    assert stage


def live() -> Scenario:
    """The small scenario as the emulator would run it: with repetitions."""
    return small().model_copy(update={"backend": "emulator", "repetitions": 3})


def files(folder: Path, *unlike: str) -> dict[str, bytes]:
    """Every file but those whose content depends on when it was written."""
    dated = ("provenance.json", "journal.jsonl", "report.html", *unlike)
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in dated}  # fmt: skip


def interrupted(root: Path, after: int) -> Path:
    with pytest.raises(InterruptedExperimentError, match=f"after {after} of 8 runs"):
        run_scenario(small(), failing_after(after, []), silent, results_root=root, report=False)
    (folder,) = root.iterdir()
    return folder


def test_what_was_measured_before_ctrl_c_is_kept(tmp_path: Path) -> None:
    folder = interrupted(tmp_path, 3)
    stored = read_result(folder)
    assert (stored.status, stored.planned_runs, len(stored.runs)) == ("interrupted", 8, 3)
    assert len(json.loads((folder / "summary.json").read_text())["outcomes"]) == 3
    assert not is_being_written(folder)


@pytest.mark.parametrize("after", [0, 3, 7])
def test_a_resumed_result_equals_one_that_was_never_interrupted(tmp_path: Path, after: int) -> None:
    folder = interrupted(tmp_path / "cut", after)
    calls: Calls = []
    results = resume_scenario(folder, failing_after(99, calls), silent, report=False)
    assert len(calls) == 8 - after
    assert results.complete
    whole = run_scenario(small(), simulator_backend, silent, results_root=tmp_path / "whole", report=False).folder
    assert files(folder) == files(whole)
    assert len(json.loads((folder / "provenance.json").read_text())["resumed"]) == 1


def test_a_whole_result_has_nothing_to_resume(tmp_path: Path) -> None:
    folder = run_scenario(small(), simulator_backend, silent, results_root=tmp_path, report=False).folder
    calls: Calls = []
    assert resume_scenario(folder, failing_after(0, calls), silent, report=False).complete
    assert calls == []


def test_only_one_process_writes_a_result(tmp_path: Path) -> None:
    folder = interrupted(tmp_path, 3)
    with ResultsFolder.reopen(folder):
        assert is_being_written(folder)
        with pytest.raises(ResultsError, match="is being written by another railbed"):
            resume_scenario(folder, simulator_backend, silent, report=False)
    assert not is_being_written(folder)


class Breaking:
    """A back end that can't make the runs of these numbers, counted from 1."""

    def __init__(self, numbers: Sequence[int], error: Exception) -> None:
        self.numbers, self.error, self.count = numbers, error, 0

    def __call__(self, run: PlannedRun, seed: int, progress: Callable[[float], None]) -> RunRecord:
        self.count += 1
        if self.count in self.numbers:
            raise self.error
        return simulator_backend(run, seed, progress)


def test_a_failed_repetition_does_not_sink_the_others(tmp_path: Path) -> None:
    # Runs 1 and 3 are the all-reduce on rail-only, healthy and with the failure, in repetition 1.
    backend = Breaking((1,), CapacityError("no space left for ovsdb"))
    results = run_scenario(live(), backend, silent, results_root=tmp_path, report=False)
    assert backend.count == len(results.outcomes) == 3 * 8
    assert not results.complete
    (lost,) = [outcome for outcome in results.outcomes if not outcome.was_made]
    assert (lost.status, lost.problems, lost.repetition) == ("not made", ("no space left for ovsdb",), 1)
    assert not lost.faithful
    of_it = [outcome for outcome in results.outcomes if outcome.collective == lost.collective
             and outcome.fabric == lost.fabric and outcome.condition == "failure"]  # fmt: skip
    assert [outcome.slowdown is None for outcome in of_it] == [True, False, False]

    again = resume_scenario(results.folder, simulator_backend, silent, report=False)
    assert again.complete
    assert sum(not outcome.was_made for outcome in again.outcomes) == 0


def test_wrong_use_ends_at_the_first_run(tmp_path: Path) -> None:
    backend = Breaking(range(1, 99), NotRootError("needs root"))
    with pytest.raises(NotRootError):
        run_scenario(live(), backend, silent, results_root=tmp_path, report=False)
    assert backend.count == 1
    (folder,) = tmp_path.iterdir()
    assert read_result(folder).status == "incomplete"


def test_no_run_can_be_made_at_all(tmp_path: Path) -> None:
    results = run_scenario(live(), Breaking(range(1, 99), CapacityError("full")), silent, results_root=tmp_path)
    assert not results.complete
    assert {outcome.status for outcome in results.outcomes} == {"not made"}
    assert results.report
    assert "not made" in results.report.read_text()


def test_the_simulator_makes_one_repetition(tmp_path: Path) -> None:
    scenario = live().model_copy(update={"backend": "simulator"})
    assert len(run_scenario(scenario, simulator_backend, silent, results_root=tmp_path, report=False).outcomes) == 8


def test_a_stage_that_hangs_is_given_up() -> None:
    with pytest.raises(StageTimeoutError, match=r"drawing took longer than 0\.05 s"), limited("drawing", 0.05):
        time.sleep(30)
    with limited("drawing", 0.01):
        pass
    time.sleep(0.03)


WRITER = """
import sys, time
from pathlib import Path
from experiments.plan import simulator_backend
from experiments.run import run_scenario
from tests.experiments.cases import small

def backend(*arguments):
    if len(list(Path(sys.argv[1]).glob("*/runs/*/run.json"))) == 3:
        print("three", flush=True)
        time.sleep(60)
    return simulator_backend(*arguments)

run_scenario(small(), backend, lambda stage, share: None, results_root=Path(sys.argv[1]), report=False)
"""


def test_kill_9_leaves_what_was_measured_readable_and_marked(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
    ) as one:
        assert one.stdout
        assert one.stdout.readline() == b"three\n"
        (folder,) = tmp_path.iterdir()
        assert read_result(folder).status == "running"
        assert is_being_written(folder)
        one.send_signal(signal.SIGKILL)
    stored = read_result(folder)
    assert (stored.status, len(stored.runs)) == ("incomplete", 3)
    assert all(len(run.transfers()) for run in stored.runs)
    assert resume_scenario(folder, simulator_backend, silent, report=False).complete
    assert read_result(folder).status == "complete"
