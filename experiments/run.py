"""From a scenario to results: every collective on every fabric, healthy and with failures, on either back end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.figures.board import fabric_figure
from experiments.figures.completion import completion_figure
from experiments.figures.style import figure_bytes
from experiments.figures.throughput import throughput_figure
from experiments.outcome import FAILURE, Outcome, analyse, with_slowdown
from experiments.plan import Backend, PlannedRun, plan
from experiments.report import FabricView, Report, RunFigures, render
from experiments.results import COMPLETE, INCOMPLETE, RUNNING, ResultsFolder, provenance, slug
from experiments.scenario import Scenario
from workloads.records import RunRecord

Progress = Callable[[str, float | None], None]
"""Told what is being done, and the share of the whole that is done (0 to 1; None where it is not known)."""


@dataclass(frozen=True)
class Results:
    """A finished experiment: where it is stored, and what came out."""

    folder: Path
    report: Path
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
    command: Sequence[str] = (),
    extra_provenance: Callable[[], Mapping[str, Any]] = dict,
) -> Results:
    """Make every run of a scenario, and store results, figures and the report under ``results_root``.

    Each run is on disk before the next one starts; ``summary.json`` says ``incomplete`` if the whole was cut short.
    ``extra_provenance`` is asked at the end for what the back end knows (versions); ``command`` is how to run this
    again. Raises RailbedError.
    """
    progress("planning", 0.0)
    runs = plan(scenario)
    folder = ResultsFolder(results_root, scenario.name)
    folder.write_text("scenario.yaml", scenario.to_yaml())
    origin = provenance(scenario.seed, command or sys.argv)
    folder.write_json("provenance.json", origin)
    outcomes: list[Outcome] = []
    records: list[RunRecord] = []
    status = INCOMPLETE
    folder.write_summary(RUNNING, scenario.name, outcomes)
    try:
        for number, run in enumerate(runs):
            record = _made(run, backend, scenario.seed, _part(progress, number, len(runs), run))
            outcome = analyse(run.label, run.fabric, record, run.predicted, run.detours, run.collision_free_s)
            if run.failures:
                outcome = with_slowdown(outcome, _healthy(outcomes, outcome))
            folder.write_run(run.label, record, outcome)
            outcomes.append(outcome)
            records.append(record)
            folder.write_summary(RUNNING, scenario.name, outcomes)
        status = COMPLETE
    finally:
        origin.update(extra_provenance())
        folder.write_json("provenance.json", origin)
        folder.write_summary(status, scenario.name, outcomes)
    progress("drawing figures", 1.0)
    report = _write_report(folder, scenario, runs, records, outcomes, origin)
    return Results(folder.path, report, tuple(outcomes))


def _made(run: PlannedRun, backend: Backend, seed: int, progress: Callable[[float], None]) -> RunRecord:
    progress(0.0)
    record = backend(run, seed, progress)
    progress(1.0)
    return record


def _part(progress: Progress, number: int, count: int, run: PlannedRun) -> Callable[[float], None]:
    stage = f"{run.label}: {run.schedule.name}" + (" with a failure" if run.failures else "")

    def told(share: float) -> None:
        progress(stage, (number + share) / count)

    return told


def _healthy(outcomes: Sequence[Outcome], outcome: Outcome) -> Outcome:
    return next(
        other for other in outcomes if other.fabric == outcome.fabric and other.collective == outcome.collective
    )


def _write_report(
    folder: ResultsFolder,
    scenario: Scenario,
    runs: Sequence[PlannedRun],
    records: Sequence[RunRecord],
    outcomes: Sequence[Outcome],
    origin: Mapping[str, Any],
) -> Path:
    """Write every figure as PNG and SVG, and the report that holds them."""

    def save(name: str, figure: Any) -> bytes:
        svg = figure_bytes(figure, "svg")
        folder.write_bytes(f"figures/{name}.svg", svg)
        folder.write_bytes(f"figures/{name}.png", figure_bytes(figure, "png"))
        return svg

    completion = save("completion", completion_figure(outcomes))
    views = []
    for label in dict.fromkeys(run.label for run in runs):
        of_fabric = [run for run in runs if run.label == label]
        failed = next((run for run in of_fabric if run.failures), of_fabric[0])
        links = [failure.link_id for failure in failed.failures]
        detour = [link_id for failed_id in links for link_id in failed.detours.get(failed_id, ())]
        drawn = save(f"fabric-{slug(label)}", fabric_figure(failed.fabric, label, links, detour))
        caption = f"Failed link and detour as in '{failed.schedule.name}'." if links else ""
        views.append(FabricView(label, failed.fabric, failed.scale, drawn, caption))
    figures = []
    for run, record, outcome in zip(runs, records, outcomes, strict=True):
        if outcome.condition == FAILURE or not scenario.failures:
            name = f"throughput-{slug(run.label)}-{slug(run.schedule.name)}"
            figures.append(RunFigures(outcome, save(name, throughput_figure(run.fabric, record, outcome))))
    text = render(Report(scenario, tuple(outcomes), tuple(views), completion, tuple(figures), origin))
    return folder.write_text("report.html", text)
