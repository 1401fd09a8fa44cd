"""From a scenario to results: every collective on every fabric, healthy and with failures, on either back end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.diagnosis.summary import with_diagnosis
from experiments.drawing import draw_result
from experiments.errors import InterruptedExperimentError, ResultsError
from experiments.jobs import Job, jobs_of, predicted_s
from experiments.outcome import FAILURE, HEALTHY, Outcome, analyse, not_made, with_slowdown
from experiments.plan import Backend, plan
from experiments.provenance import provenance
from experiments.results import COMPLETE, INCOMPLETE, INTERRUPTED, RUNNING, ResultsFolder, RunFile
from experiments.scenario import EMULATOR, Scenario
from experiments.stored import read_result
from experiments.watchdog import STAGE_LIMIT_S, limited, live_limit_s
from topologies.errors import RailbedError

WRONG_USE = 2
"""Exit code of errors that are the user's to mend."""

Progress = Callable[[str, float | None], None]
"""Told what is being done, and the share of the whole that is done (0 to 1; None where it is not known)."""


@dataclass(frozen=True)
class Results:
    """A finished experiment: where it is stored, its report if one was drawn, and what came out."""

    folder: Path
    report: Path | None
    outcomes: tuple[Outcome, ...]

    @property
    def complete(self) -> bool:
        """Whether every transfer of every run was made in full."""
        return all(outcome.status == "complete" for outcome in self.outcomes)


def run_scenario(
    scenario: Scenario,
    backend: Backend,
    progress: Progress,
    *,
    results_root: Path,
    folder_name: str | None = None,
    command: Sequence[str] = (),
    extra_provenance: Callable[[], Mapping[str, Any]] = dict,
    report: bool = True,
) -> Results:
    """Make every run of a scenario, and store results, figures and the report in a folder below ``results_root``.

    The folder is ``folder_name``, which may be there already; None: a new one with the date and the scenario's name.
    Each run is on disk before the next one starts. One that the back end can't make is recorded as such, and the others
    go on. ``extra_provenance`` is asked at the end for what the back end knows (versions); ``command`` is how to run
    this again; without ``report`` nothing is drawn. Raises RailbedError; on Ctrl-C InterruptedExperimentError, with
    what was measured on disk.
    """
    jobs = _planned(scenario, progress)  # before there is a folder: what cannot be planned leaves none
    with (
        ResultsFolder(results_root, scenario.name) if folder_name is None
        else ResultsFolder.at(results_root / folder_name)
    ) as folder:  # fmt: skip
        folder.write_text("scenario.yaml", scenario.to_yaml())
        origin = provenance(scenario.seed, command or sys.argv)
        outcomes = _make_all(folder, scenario, jobs, {}, backend, progress, origin, extra_provenance)
        return Results(folder.path, _drawn(folder.path, progress) if report else None, outcomes)


def _planned(scenario: Scenario, progress: Progress) -> tuple[Job, ...]:
    progress("planning", 0.0)
    with limited("planning", STAGE_LIMIT_S):
        return jobs_of(scenario, plan(scenario))


def resume_scenario(
    path: Path,
    backend: Backend,
    progress: Progress,
    *,
    command: Sequence[str] = (),
    extra_provenance: Callable[[], Mapping[str, Any]] = dict,
    report: bool = True,
) -> Results:
    """Make the runs that the result in ``path`` lacks, those that could not be made included, and draw it anew.

    The back end must be the one that the scenario as run names. Raises what :func:`run_scenario` raises.
    """
    stored = read_result(path)
    scenario = stored.scenario()
    jobs = _planned(scenario, progress)
    made = {run.path.name: run.outcome for run in stored.runs if run.outcome.was_made}
    strangers = set(made) - {job.name for job in jobs}
    if strangers:
        raise ResultsError(
            f"{path} holds runs that this version of Railbed would not make ({min(strangers)}): "
            "finish it with the version that began it, or run the scenario again"
        )
    with ResultsFolder.reopen(path) as folder:
        now = provenance(scenario.seed, command or sys.argv)
        origin = dict(stored.provenance()) or now
        origin["resumed"] = [*origin.get("resumed", []), {key: now[key] for key in ("created", "git_commit")}]
        outcomes = _make_all(folder, scenario, jobs, made, backend, progress, origin, extra_provenance)
        return Results(folder.path, _drawn(folder.path, progress) if report else None, outcomes)


def _drawn(path: Path, progress: Progress) -> Path:
    progress("drawing figures", None)
    with limited("drawing figures", STAGE_LIMIT_S):
        return draw_result(read_result(path))


def _make_all(
    folder: ResultsFolder,
    scenario: Scenario,
    jobs: Sequence[Job],
    made: Mapping[str, Outcome],
    backend: Backend,
    progress: Progress,
    origin: dict[str, Any],
    extra_provenance: Callable[[], Mapping[str, Any]],
) -> tuple[Outcome, ...]:
    """Make the jobs that are not in ``made``; the outcomes of all, in the order of the jobs."""
    outcomes: list[Outcome] = []
    to_do = [job for job in jobs if job.name not in made]
    whole, done = sum(job.weight for job in to_do), 0.0
    status = INCOMPLETE
    folder.write_json("provenance.json", origin)
    folder.write_summary(RUNNING, scenario.name, [], len(jobs))
    folder.note("started", runs=len(to_do), of=len(jobs))
    try:
        for job in jobs:
            if job.name in made:
                outcomes.append(made[job.name])
                continue
            told = _part(progress, job, done, whole)
            outcomes.append(_make(folder, scenario, job, outcomes, backend, told))
            folder.write_summary(RUNNING, scenario.name, outcomes, len(jobs))
            done += job.weight
        status = COMPLETE
    except KeyboardInterrupt:
        status = INTERRUPTED
        raise InterruptedExperimentError(
            f"interrupted after {len(outcomes)} of {len(jobs)} runs, which are kept in {folder.path}: "
            f"'railbed run --resume {folder.path}' makes the others"
        ) from None
    finally:
        origin.update(extra_provenance())
        folder.write_json("provenance.json", origin)
        folder.write_summary(status, scenario.name, outcomes, len(jobs))
        folder.note("ended", status=status)
    return tuple(outcomes)


def _make(
    folder: ResultsFolder,
    scenario: Scenario,
    job: Job,
    before: Sequence[Outcome],
    backend: Backend,
    progress: Callable[[float], None],
) -> Outcome:
    """Make one run and store it; what goes wrong in the back end becomes its outcome."""
    run, predicted = job.run, job.run.predicted
    limit_s = live_limit_s(predicted_s(run)) if scenario.backend == EMULATOR else STAGE_LIMIT_S
    folder.note("run-started", run=job.name, limit_s=limit_s)
    progress(0.0)
    record = None
    try:
        with limited(job.stage, limit_s):
            record = backend(run, scenario.seed, progress)
    except RailbedError as error:
        if error.exit_code == WRONG_USE and not before:
            raise  # nothing of this can be made here: no root, no such tool
        outcome = not_made(run.label, predicted, scenario.backend, str(error))
    else:
        outcome = analyse(run.label, run.fabric, record, predicted, run.detours, run.collision_free_s)
    outcome = replace(outcome, repetition=job.repetition, condition=run.condition)
    if scenario.diagnose and record is not None:
        outcome = with_diagnosis(outcome, run, record)
    if run.condition == FAILURE:
        outcome = with_slowdown(outcome, _healthy(before, outcome))
    file = RunFile(
        run.fabric.spec, run.scale, scenario.seed, run.failures, run.schedule, outcome,
        engine=record.engine if record else None, last_computation_s=record.last_computation_s if record else None,
    )  # fmt: skip
    folder.write_run(job.name, file, record, predicted)
    folder.note("run-ended", run=job.name, status=outcome.status)
    progress(1.0)
    return outcome


def _part(progress: Progress, job: Job, done: float, whole: float) -> Callable[[float], None]:
    def told(share: float) -> None:
        progress(job.stage, (done + job.weight * share) / whole)

    return told


def _healthy(outcomes: Sequence[Outcome], outcome: Outcome) -> Outcome:
    def case(of: Outcome) -> tuple[object, ...]:
        return of.fabric, of.collective, of.repetition

    return next(other for other in outcomes if case(other) == case(outcome) and other.condition == HEALTHY)
