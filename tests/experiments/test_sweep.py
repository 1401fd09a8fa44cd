"""Sweeps: their cases, where they are made, and what is left when something goes wrong."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from experiments.drawing import draw_sweep
from experiments.errors import InterruptedExperimentError, ScenarioError, SchedulerError
from experiments.executors import in_turn, on_dask, on_local_cores, simulated_files
from experiments.plan import simulator_backend
from experiments.scenario import Scenario, Setting, parse_scenario
from experiments.stored import read_any, read_sweep
from experiments.sweep import Axis, Made, SweepCase, parse_axis, resume_sweep, run_sweep, sweep_cases, write_case
from tests.experiments.cases import SMALL
from tests.experiments.test_run import files, silent

pytestmark = pytest.mark.timeout(120)


def load(settings: Sequence[Setting]) -> Scenario:
    return parse_scenario(SMALL, settings=settings)


def four() -> tuple[SweepCase, ...]:
    return sweep_cases(load, [Axis("fabrics.domains", (2, 3)), Axis("seed", (1, 2))])


def here(cases: Sequence[SweepCase], folder: Path) -> Iterator[Made]:
    """Makes the cases in this process."""
    for case in cases:
        write_case(folder / case.name, simulated_files(case, ["railbed"]))
        yield case, None


def test_an_axis_is_a_key_and_values_in_yaml() -> None:
    assert parse_axis("fabric.domains=2,4,8") == Axis("fabric.domains", (2, 4, 8))
    assert parse_axis("workload.size=64MiB, 1GB") == Axis("workload.size", ("64MiB", "1GB"))
    for wrong in ("", "x", "=1", "x=", "x=[", "x=a: b: c"):
        with pytest.raises(ScenarioError, match="KEY=VALUE"):
            parse_axis(wrong)


def test_every_combination_is_a_case_with_a_scenario_of_its_own() -> None:
    cases = four()
    assert [case.settings for case in cases] == [
        (("fabrics.domains", 2), ("seed", 1)), (("fabrics.domains", 2), ("seed", 2)),
        (("fabrics.domains", 3), ("seed", 1)), (("fabrics.domains", 3), ("seed", 2)),
    ]  # fmt: skip
    scenario = parse_scenario(cases[3].scenario_yaml)
    assert ([one.domains for one in scenario.fabrics], scenario.seed) == ([3, 3], 2)
    assert len({case.name for case in cases}) == 4


def test_wrong_values_are_all_told_with_their_case() -> None:
    with pytest.raises(ScenarioError) as found:
        sweep_cases(load, [Axis("sead", (1, 2))])
    assert [problem.text.split(":")[0] for problem in found.value.problems] == ["with sead=1", "with sead=2"]
    assert "did you mean 'seed'" in str(found.value)
    for axes in ([Axis("seed", (1,)), Axis("seed", (2,))], [Axis("seed", tuple(range(10_001)))]):
        with pytest.raises(ScenarioError, match=r"twice|10,001 cases"):
            sweep_cases(load, axes)


def test_local_cores_make_what_one_process_makes(tmp_path: Path) -> None:
    stages: list[float | None] = []
    one = run_sweep("s", four(), here, silent, results_root=tmp_path / "one")
    pool = run_sweep("s", four(), on_local_cores(["railbed"], 2), lambda stage, share: stages.append(share),
                     results_root=tmp_path / "pool")  # fmt: skip
    assert pool.complete
    assert files(one.path) == files(pool.path)
    assert stages == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_a_sweep_is_drawn_again_to_the_same_bytes(tmp_path: Path) -> None:
    made = run_sweep("s", four(), here, silent, results_root=tmp_path)
    report = draw_sweep(made)
    text, figure = report.read_bytes(), (made.path / "figures" / "sweep.svg").read_bytes()
    report.unlink()
    again = read_any(made.path)
    assert again == made
    assert draw_sweep(made).read_bytes() == text
    assert (made.path / "figures" / "sweep.svg").read_bytes() == figure
    assert b"fabrics.domains" in text
    assert b"http" not in text


def breaking(names: Sequence[str], error: BaseException) -> Callable[..., Iterator[Made]]:
    def execute(cases: Sequence[SweepCase], folder: Path) -> Iterator[Made]:
        for case in cases:
            if case.name in names:
                if not isinstance(error, Exception):
                    raise error
                yield case, str(error)
            else:
                yield from here([case], folder)

    return execute


def test_a_case_that_cannot_be_made_does_not_sink_the_others(tmp_path: Path) -> None:
    cases = four()
    made = run_sweep("s", cases, breaking([cases[1].name], ValueError("no memory")), silent, results_root=tmp_path)
    assert (made.status, made.complete, len(made.made)) == ("complete", False, 3)
    assert made.cases[1].reason == "no memory"
    assert "not made: no memory" in draw_sweep(made).read_text()
    again = resume_sweep(made.path, here, silent)
    assert again.complete


def test_an_interrupted_sweep_is_finished_and_equals_a_whole_one(tmp_path: Path) -> None:
    cases = four()
    with pytest.raises(InterruptedExperimentError, match="after 2 of 4 cases"):
        run_sweep("s", cases, breaking([cases[2].name], KeyboardInterrupt()), silent, results_root=tmp_path / "cut")
    (path,) = (tmp_path / "cut").iterdir()
    assert (read_sweep(path).status, len(read_sweep(path).made)) == ("interrupted", 2)
    assert resume_sweep(path, here, silent).complete
    whole = run_sweep("s", cases, here, silent, results_root=tmp_path / "whole")
    assert files(path) == files(whole.path)


def test_live_cases_follow_each_other_and_the_half_made_one_is_finished(tmp_path: Path) -> None:
    calls = 0

    def backend(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt
        return simulator_backend(*arguments)  # type: ignore[arg-type]

    execute = in_turn(backend, silent, ["railbed"], dict)  # type: ignore[arg-type]
    with pytest.raises(InterruptedExperimentError, match="after 0 of 4 cases"):
        run_sweep("s", four(), execute, silent, results_root=tmp_path)
    (path,) = tmp_path.iterdir()
    (case,) = read_sweep(path).made
    assert case.result
    assert len(case.result.runs) == 4
    assert resume_sweep(path, execute, silent).complete
    assert calls == 1 + 4 * 8


KILLED = """
import sys
from pathlib import Path
from experiments.executors import on_local_cores
from experiments.sweep import Axis, run_sweep, sweep_cases
from tests.experiments.test_sweep import load

if __name__ == "__main__":
    cases = sweep_cases(load, [Axis("seed", tuple(range(40)))])
    run_sweep("s", cases, on_local_cores(["railbed"], 2), lambda stage, share: print(share, flush=True),
              results_root=Path(sys.argv[1]))
"""


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    """Whether a process still does something; one that has ended and waits for init to take note of it does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_processes_of_a_sweep_end_with_it(tmp_path: Path, number: signal.Signals) -> None:
    root = Path(__file__).resolve().parents[2]
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(tmp_path / "results")]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        assert process.stdout
        assert [process.stdout.readline() for _ in range(3)].index(b"0.0\n") == 0
        workers = children(process.pid)
        assert len(workers) >= 2
        process.send_signal(number)
    deadline = time.monotonic() + 30
    while any(map(is_running, workers)):
        assert time.monotonic() < deadline, "workers outlived the sweep"
        time.sleep(0.02)
    (path,) = (tmp_path / "results").iterdir()
    stored = read_sweep(path)
    assert stored.status == ("interrupted" if number == signal.SIGINT else "incomplete")
    assert 2 <= len(stored.made) < 40


class Cluster:
    """A scheduler and workers of Dask, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "scheduler.json"
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(self.file))
        deadline = time.monotonic() + 60
        while not (self.file.exists() and self.file.read_text().rstrip().endswith("}")):
            assert time.monotonic() < deadline, "no scheduler"
            time.sleep(0.05)
        self.address = json.loads(self.file.read_text())["address"]

    def worker(self, name: str) -> subprocess.Popen[bytes]:
        words = ("--no-nanny", "--no-dashboard", "--nthreads", "1", "--name", name, "--local-directory",
                 str(self._folder / name), self.address)  # fmt: skip
        return self._start("worker", *words)

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        root = Path(__file__).resolve().parents[2]
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", words[0], "--host", "127.0.0.1", *words[1:]], cwd=self._folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(root)},
        )  # fmt: skip
        self._processes.append(process)
        return process

    def close(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    yield found
    found.close()


def test_a_cluster_that_loses_a_worker_makes_what_one_process_makes(tmp_path: Path, cluster: Cluster) -> None:
    from distributed import Client

    first = cluster.worker("first")
    cluster.worker("second")
    cases = sweep_cases(load, [Axis("seed", tuple(range(12)))])
    with Client(cluster.address) as client:
        client.wait_for_workers(2, timeout=60)
        addresses = {info["name"]: address for address, info in client.scheduler_info()["workers"].items()}
        held: list[int] = []

        def kill_once(stage: str, share: float | None) -> None:
            if share and not held:  # one case is there, others are under way
                held.append(len(client.processing()[addresses["first"]]))
                first.kill()
                first.wait()

        made = run_sweep("s", cases, on_dask(cluster.address, ["railbed"]), kill_once, results_root=tmp_path / "dask")
        assert held[0] > 0
        assert list(client.scheduler_info()["workers"]) == [addresses["second"]]
    assert made.complete
    whole = run_sweep("s", cases, here, silent, results_root=tmp_path / "here")
    assert files(made.path) == files(whole.path)


def test_no_scheduler_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.executors.CONNECT_S", 0.2)
    with pytest.raises(SchedulerError, match=r"no Dask scheduler answers at 127\.0\.0\.1:1"):
        run_sweep("s", four(), on_dask("127.0.0.1:1", []), silent, results_root=tmp_path)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match="distributed"):  # the command line names the extra
        run_sweep("s", four(), on_dask("127.0.0.1:1", []), silent, results_root=tmp_path)
