"""What a lost GPU costs a PyTorch job that is cared for, second by second, beside waiting for a time-out.

``python benchmarks/reaction.py [--domains 2] [--rails 4] [--ranks 6] [--repeats 3] [--hang-after 3] [--json]`` (root;
PyTorch for ``--python``, default /usr/bin/python3). The job is docs/examples/train_with_checkpoints.py; in the middle
all links of one of its GPUs go down. Nobody does anything then. The losses must be those of an undisturbed run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from emulator import manager
from emulator.programs import Launch, run_programs
from emulator.rank_environment import rank_environment
from emulator.recovery import TIME_OUT_S, JobEvent, recoveries
from emulator.supervise import Care, run_supervised
from simulator.economics.downtime import DAY_S, default_inputs, seconds_per_failure
from topologies.model import FabricKind, FabricSpec, Gpu

ROOT = Path(__file__).resolve().parent.parent
NAME = "bench-react"
STEPS, EVERY, COMPUTE_S = 30, 5, 0.1
FAIL_AFTER = 13
"""The step after which the GPU fails."""


class Job:
    """One run of the example; ``lines`` are (monotonic seconds, line) of rank 0."""

    def __init__(self, running: manager.RunningFabric, options: argparse.Namespace, folder: Path) -> None:
        self.running = running
        self.folder = folder
        self.lines: list[tuple[float, str]] = []
        self.words = (
            options.python, str(ROOT / "docs" / "examples" / "train_with_checkpoints.py"), "--folder", str(folder),
            "--steps", str(STEPS), "--every", str(EVERY), "--compute", str(COMPUTE_S),
        )  # fmt: skip

    def launches(self, gpus: Any, restarts: int) -> list[Launch]:
        return [
            Launch(gpu.id, self.words, rank_environment(gpus, rank, os.environ, restarts=restarts))
            for rank, gpu in enumerate(gpus)
        ]

    def note(self, rank: int, is_error: bool, line: bytes) -> None:
        if rank == 0 and not is_error:
            self.lines.append((time.monotonic(), line.decode().strip()))

    def losses(self) -> str:
        return (self.folder / "loss.txt").read_text()

    def redone_s(self, failed_s: float) -> float:
        """From the newest checkpoint before the failure until it: the work that is done again."""
        saved = [
            at_s for at_s, line in self.lines
            if line.startswith("step ") and int(line.split()[1].rstrip(":")) % EVERY == 0 and at_s < failed_s
        ]  # fmt: skip
        return failed_s - max(saved)


def disturbed(job: Job, gpus: tuple[Gpu, ...], spares: tuple[Gpu, ...], lost: Gpu, hang_s: float) -> dict[str, float]:
    """Run the job, take the GPU ``lost`` away in the middle; seconds of the parts."""
    events: list[JobEvent] = []
    failed = False

    def sink(rank: int, is_error: bool, line: bytes) -> None:
        nonlocal failed
        job.note(rank, is_error, line)
        if not failed and rank == 0 and line.startswith(f"step {FAIL_AFTER}:".encode()):
            failed = True
            job.running.fail(lost.id)

    began_s = time.monotonic()
    ending = run_supervised(
        job.running, job.launches, Care(gpus, spares, 1, hang_s), sink, events.append, timeout_s=100
    )
    job.running.drain(lost.id, on=False)
    job.running.restore(lost.id)
    for note in ending.notes:
        print(f"  {note}")
    if ending.first_failure or not recoveries(events):
        sys.exit("the job did not survive: " + "; ".join(event.line for event in events))
    (cost,) = recoveries(events)
    assert cost.total_s is not None
    assert cost.diagnosis_s is not None
    assert cost.restart_s is not None
    failed_s = next(event.t_s for event in events if event.step.value == "failed")
    return {
        "redone_s": job.redone_s(began_s + failed_s), "detection_s": cost.detection_s,
        "diagnosis_s": cost.diagnosis_s, "restart_s": cost.restart_s,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--domains", type=int, default=2, help="HB domains (default 2)")
    parser.add_argument("--rails", type=int, default=4, help="GPUs of a domain (default 4)")
    parser.add_argument("--ranks", type=int, default=6, help="ranks of the job; the other GPUs are spares (default 6)")
    parser.add_argument("--repeats", type=int, default=3, help="lost GPUs (default 3)")
    parser.add_argument("--hang-after", type=float, default=3.0, help="seconds (default 3)")
    parser.add_argument("--python", default="/usr/bin/python3", help="interpreter with PyTorch")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on the last line")
    options = parser.parse_args()
    running = manager.up(FabricSpec(FabricKind.RAIL_ONLY, options.domains, options.rails), name=NAME)
    rows: list[dict[str, float]] = []
    try:
        gpus, spares = running.fabric.gpus[: options.ranks], running.fabric.gpus[options.ranks :]
        with tempfile.TemporaryDirectory() as folder:
            plain = Job(running, options, Path(folder) / "plain")
            run_programs(running, plain.launches(gpus, 0), plain.note, timeout_s=100)
            print("redone (s)  detection (s)  diagnosis and isolation (s)  restart (s)   losses")
            for number in range(options.repeats):
                job = Job(running, options, Path(folder) / f"lost{number}")
                # Rank 0, where the ranks meet, comes first.
                row = disturbed(job, gpus, spares, gpus[number % len(gpus)], options.hang_after)
                same = job.losses() == plain.losses()
                if not same:
                    sys.exit("the losses differ from those of the undisturbed run")
                rows.append(row)
                print("".join(f"{row[key]:>{width}.2f}" for key, width in
                              zip(row, (10, 15, 29, 13), strict=True)) + "   the same", flush=True)  # fmt: skip
    finally:
        manager.down(NAME)
    medians = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    inputs = default_inputs()
    before = inputs.cases["before"]
    failures, period_s = before.failures.value, inputs.period_days.value * DAY_S
    print("\nmedian    " + ", ".join(f"{key} {value:.2f}" for key, value in medians.items()))
    print(
        f"time-out  detection by torch.distributed's default: {TIME_OUT_S:g} s, "
        f"{TIME_OUT_S / medians['detection_s']:,.0f} times as long"
    )
    known = seconds_per_failure(before)
    parts = zip(known, medians.items(), strict=True)
    print(f"{failures:g} failures in {inputs.period_days.value:g} days, % of the time: measured here, and 'before'")
    for part, (_, seconds) in parts:
        print(f"  {part:<24} {100 * failures * seconds / period_s:8.4f} {100 * failures * known[part] / period_s:8.2f}")
    if options.json:
        print(json.dumps({"ranks": options.ranks, "time_out_s": TIME_OUT_S, "rows": rows, **medians}))


if __name__ == "__main__":
    main()
