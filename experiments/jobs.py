"""The runs to make for a scenario, each with its repetitions, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.files import slug
from experiments.outcome import FAILURE
from experiments.plan import PlannedRun
from experiments.scenario import EMULATOR, Scenario


@dataclass(frozen=True)
class Job:
    """One run to make, in one repetition; ``name`` is that of its folder, ``weight`` its share of the whole."""

    name: str
    run: PlannedRun
    repetition: int
    weight: float

    @property
    def stage(self) -> str:
        """What is being done, to read."""
        of = f", repetition {self.repetition}" if self.repetition > 1 else ""
        return (
            f"{self.run.label}: {self.run.schedule.name}"
            + (" with a failure" if self.run.condition == FAILURE else "")
            + of
        )


BETWEEN_RUNS_S = 4.0
"""What a live run takes beside its transfers, for the estimate of the time that is left."""


def jobs_of(scenario: Scenario, runs: Sequence[PlannedRun]) -> tuple[Job, ...]:
    """All runs of all repetitions. Repetitions of a fabric follow each other, so that it is brought up once.

    The simulator has no noise: every repetition would be the same, so it makes one.
    """
    is_live = scenario.backend == EMULATOR
    repetitions = scenario.repetitions if is_live else 1
    order = [
        (run, repetition)
        for label in dict.fromkeys(run.label for run in runs)
        for repetition in range(1, repetitions + 1)
        for run in runs
        if run.label == label
    ]
    digits = len(str(len(order)))
    jobs: list[Job] = []
    for number, (run, repetition) in enumerate(order, 1):
        name = f"{number:0{digits}d}-{slug(run.label)}--{slug(run.schedule.name)}--{run.condition}"
        name += f"--r{repetition}" if repetitions > 1 else ""
        jobs.append(Job(name, run, repetition, BETWEEN_RUNS_S + predicted_s(run) if is_live else 1.0))
    return tuple(jobs)


def predicted_s(run: PlannedRun) -> float:
    """Emulated seconds until the last transfer is predicted to end; 0 without transfers."""
    return max((transfer.end_s or 0.0 for transfer in run.predicted.transfers), default=0.0)
