"""Jobs that are cared for, on a live fabric: a GPU is lost, the rank moves, and nothing of the result changes."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from emulator.recovery import JobEvent, Step, recoveries
from tests.emulator.live import fabric, live

pytestmark = live

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ["/usr/bin/python3", str(ROOT / "docs" / "examples" / "train_with_checkpoints.py"), "--steps", "14",
         "--compute", "0.1", "--every", "4"]  # fmt: skip
MISSING = os.environ.get("RAILBED_PROGRAMS_MISSING", "")
WATCHDOG_S = 120


@pytest.fixture(scope="module")
def running():
    with fabric("cared", domains=2, rails=3) as up:
        yield up


def words(*rest: str) -> list[str]:
    return [sys.executable, "-m", "cli", "exec", "--name", "cared", "--timeout", "100", *rest]


def run(*rest: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(*rest), cwd=ROOT, capture_output=True, text=True, check=False, timeout=WATCHDOG_S)


def timeline(folder: Path) -> list[JobEvent]:
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [JobEvent(**{**line, "step": Step(line["step"])}) for line in lines]


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_job_that_loses_a_gpu_ends_as_if_it_had_not(running, tmp_path):
    plain = run("--nproc", "3", "--", *TRAIN, "--folder", str(tmp_path / "plain"))
    assert plain.returncode == 0, plain.stderr
    process = subprocess.Popen(
        words("--nproc", "3", "--spares", "2", "--restarts", "1", "--hang-after", "4",
              "--telemetry", str(tmp_path / "told"),
              "--", *TRAIN, "--folder", str(tmp_path / "cared")),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    errors: list[str] = []
    assert process.stdout is not None
    assert process.stderr is not None
    reading = threading.Thread(target=lambda: errors.append(process.stderr.read()), daemon=True)
    reading.start()
    output = []
    try:
        for line in process.stdout:
            output.append(line)
            if "[0] step 6:" in line and len(output) < 10:
                running.fail("d0r1")
        assert process.wait(WATCHDOG_S) == 0, errors
        assert set(running.drained()) == {"d0r1-nv0", "d0r1-rail1"}
    finally:
        process.kill()
        process.wait()
        reading.join()
        process.stdout.close()
        process.stderr.close()
        running.drain("d0r1", on=False)
        running.restore("d0r1")
    assert "[0] going on from step 4\n" in output
    losses = [(tmp_path / name / "loss.txt").read_text() for name in ("plain", "cared")]
    assert losses[0] == losses[1]
    assert len(losses[0].splitlines()) == 14
    events = timeline(tmp_path / "told")
    assert [event.step for event in events] == [
        Step.STARTED, Step.FAILED, Step.DETECTED, Step.DIAGNOSED, Step.ISOLATED, Step.RESTARTED, Step.BACK,
    ]  # fmt: skip
    assert {event.gpu for event in events[1:5]} == {"d0r1"}
    assert events[1].text == "the links of d0r1 went down, says the controller"
    assert events[4].details["spare"] == "d1r1", "the spare on the lost GPU's rail"
    assert [event.t_s for event in events] == sorted(event.t_s for event in events)
    (cost,) = recoveries(events)
    assert cost.total_s is not None
    told = [json.loads(line) for line in (tmp_path / "told" / "telemetry.jsonl").read_text().splitlines()]
    assert {one["layer"] for one in told} == {"communicator", "operation", "transport"}
    moved = {
        one["rank"] for one in told if one.get("communicator") == "restart 1: group 0" and one["layer"] == "operation"
    }
    assert moved == {0, 2, 4}


def test_a_killed_rank_moves_and_a_second_one_is_given_up(running, tmp_path):
    script = 'echo "$RANK on $RAILBED_GPU, start $TORCHELASTIC_RESTART_COUNT"; '
    killed = script + 'if [ "$RANK$TORCHELASTIC_RESTART_COUNT" = 10 ]; then kill -KILL $$; fi'
    try:
        done = run(
            "--nproc", "2", "--spares", "1", "--restarts", "2", "--telemetry", str(tmp_path), "--", "sh", "-c", killed
        )
        assert done.returncode == 0, done.stderr
        assert {"[1] 1 on d0r1, start 0", "[0] 0 on d0r0, start 1", "[1] 1 on d0r2, start 1"} <= set(
            done.stdout.splitlines()
        )
        assert re.search(r"diagnosed +rank 1 on d0r1 ended with exit code 137", done.stderr)
        assert "no rank told anything" in done.stderr
        again = run("--nproc", "2", "--spares", "1", "--restarts", "2", "--", "sh", "-c", 'exit "$RANK"')
        assert again.returncode == 1
        assert "rank 1 on d1r0 ended with exit code 1; no spare GPU is left, so the job was ended" in again.stderr
    finally:
        for gpu_id in ("d0r1", "d0r2"):
            running.drain(gpu_id, on=False)
    assert running.drained() == []


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (["--restarts", "1", "true"], "--restarts and --spares go together"),
        (["--spares", "1", "true"], "--restarts and --spares go together"),
        (["--restarts", "1", "--spares", "6", "true"], "--spares 6 is more than the 6 GPUs of fabric 'cared' allow"),
        (
            ["--nproc", "5", "--restarts", "1", "--spares", "2", "true"],
            "--nproc 5 with --spares 2 is more than the 6 GPUs",
        ),
        (["--mpi", "--telemetry", "x", "true"], "--mpi goes with neither --restarts nor --telemetry"),
        (["--telemetry", "/proc/nothing", "true"], "/proc/nothing cannot be written"),
    ],
)
def test_wrong_use(running, wrong, sentence):
    done = run(*wrong)
    assert done.returncode in (1, 2)
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
