"""All figures of a stored result, and its report: drawn from what is on disk, so that they can be drawn again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.columns import bytes_by_pair
from experiments.diagnosis.summary import diagnose_stored
from experiments.figures.board import fabric_figure
from experiments.figures.completion import completion_figure
from experiments.figures.delays import delay_figure
from experiments.figures.heat import heat_figure
from experiments.figures.matrix import matrix_figure
from experiments.figures.outages import outage_figure
from experiments.figures.planning import shares_figure, uplink_figure
from experiments.figures.prediction import prediction_figure
from experiments.figures.style import figure_bytes
from experiments.figures.sweep import SweptCase, sweep_figure
from experiments.figures.throughput import throughput_figure
from experiments.files import slug, write_file
from experiments.outcome import FAILURE
from experiments.planned_runs import planned_shares, uplink_load
from experiments.report import DiagnosisView, FabricView, Picture, Report, RunView, render, render_sweep
from experiments.scenario import EMULATOR
from experiments.statistics import cases
from experiments.stored import StoredResult, StoredRun, StoredSweep
from experiments.units import size_text

VECTOR_FORMATS = ("svg", "pdf")
FORMATS = (*VECTOR_FORMATS, "png")

MOST_RUNS = 12
"""Runs whose throughput and links are drawn one by one; of more, the first with and without failures are."""


def draw_result(result: StoredResult, formats: Sequence[str] = VECTOR_FORMATS) -> Path:
    """Write every figure below ``figures/`` and the report that holds them; the path of the report.

    The same result gives the same bytes. A result without a run that was made has a report without figures. Raises
    ResultsError for files that can't be read or written.
    """

    def save(name: str, figure: Figure) -> Picture:
        return _saved(result.path, name, figure, formats)

    made = [run for run in result.runs if run.outcome.was_made]
    failed = [run.outcome for run in made if run.outcome.outages]
    report = Report(
        scenario=result.scenario(),
        status=result.status,
        planned_runs=result.planned_runs,
        outcomes=result.outcomes,
        fabrics=tuple(_fabric_views(made, save)),
        completion=save("completion", completion_figure(result.outcomes)) if result.outcomes else None,
        prediction=save("prediction", prediction_figure(result.outcomes)) if _is_measured(result) else None,
        outages=save("outages", outage_figure(failed)) if failed else None,
        planning=tuple(_planning(result, made, save)),
        matrices=tuple(_matrices(made, save)),
        runs=tuple(_run_views(made, save)),
        diagnoses=tuple(_diagnoses(result, made, save)),
        provenance=result.provenance(),
    )
    return write_file(result.path / "report.html", render(report).encode())


def draw_sweep(sweep: StoredSweep, formats: Sequence[str] = VECTOR_FORMATS) -> Path:
    """Write the figure of a sweep and the report that holds it; the path of the report.

    The same sweep gives the same bytes. Its cases are drawn one by one with :func:`draw_result`.
    """
    swept = [
        SweptCase(tuple(one.settings.items()), case)
        for one in sweep.made
        if one.result is not None
        for case in cases(one.result.outcomes)
    ]
    picture, question = None, ""
    if swept:
        figure = sweep_figure(swept, f"{sweep.name}: {len(sweep.made)} cases")
        picture = _saved(sweep.path, "sweep", figure, formats)
        question = next(one.result for one in sweep.made if one.result).scenario().question
    text = render_sweep(sweep, picture, question, sweep.provenance())
    return write_file(sweep.path / "report.html", text.encode())


def draw_any(stored: StoredResult | StoredSweep, formats: Sequence[str] = VECTOR_FORMATS) -> Path:
    """Draw a result or a sweep; the path of its report."""
    return draw_sweep(stored, formats) if isinstance(stored, StoredSweep) else draw_result(stored, formats)


def _saved(folder: Path, name: str, figure: Figure, formats: Sequence[str]) -> Picture:
    drawn = {one: figure_bytes(figure, one) for one in dict.fromkeys(("svg", *formats))}
    for one in formats:
        write_file(folder / "figures" / f"{name}.{one}", drawn[one])
    return Picture(name, drawn["svg"])


_Save = Callable[[str, Figure], Picture]


def _is_measured(result: StoredResult) -> bool:
    return any(outcome.backend == EMULATOR for outcome in result.outcomes)


def _planning(result: StoredResult, made: Sequence[StoredRun], save: _Save) -> Iterator[Picture]:
    """Planned traffic: what the jobs got, and the load of the links to the spines, in the first repetition."""
    scenario = result.scenario()
    loads, shares = [], []
    for run in made:
        outcome, planning = run.outcome, scenario.planning_of(run.outcome.fabric)
        if planning is None or outcome.repetition != made[0].outcome.repetition:
            continue
        failed = frozenset(outage.link_id for outage in outcome.outages)
        since_s = max((outage.down_s for outage in outcome.outages), default=0.0)
        load = uplink_load(run.fabric, run.links(), outcome.fabric, outcome.condition, failed)
        loads += [load] if load is not None else []
        share = planned_shares(
            run.fabric, run.scale, run.transfers().to_pylist(), outcome.fabric, outcome.condition,
            planning.mode.value, failed, since_s,
        )  # fmt: skip
        shares += [share] if share is not None else []
    if shares:
        yield save("planning-shares", shares_figure(shares))
    if loads:
        yield save("planning-uplinks", uplink_figure(loads))


def _fabric_views(made: Sequence[StoredRun], save: _Save) -> Iterator[FabricView]:
    for label in dict.fromkeys(run.outcome.fabric for run in made):
        of_fabric = [run for run in made if run.outcome.fabric == label]
        run = next((one for one in of_fabric if one.outcome.outages), of_fabric[0])
        links = [outage.link_id for outage in run.outcome.outages]
        detour = [link.link_id for outage in run.outcome.outages for link in outage.detour]
        drawn = save(f"fabric-{slug(label)}", fabric_figure(run.fabric, label, links, detour))
        caption = f"Failed link and detour as in '{run.outcome.collective}'." if links else ""
        yield FabricView(label, run.fabric, run.scale, drawn, caption)


def _run_views(made: Sequence[StoredRun], save: _Save) -> Iterator[RunView]:
    """Of every fabric and collective the first run, with a failure where there is one."""
    first = [run for run in made if run.outcome.repetition == made[0].outcome.repetition]
    shown = [run for run in first if run.outcome.condition == FAILURE] or first
    for run in shown[:MOST_RUNS]:
        links = run.links()
        if len(links.t_s) < 2:
            continue
        name = f"{slug(run.outcome.fabric)}-{slug(run.outcome.collective)}"
        over_time = save(f"throughput-{name}", throughput_figure(run.fabric, links, run.scale, run.outcome))
        heat = save(f"links-{name}", heat_figure(run.fabric, links, run.scale, run.outcome))
        yield RunView(run.outcome, run.fabric, over_time, heat)


def _diagnoses(result: StoredResult, made: Sequence[StoredRun], save: _Save) -> Iterator[DiagnosisView]:
    """Where the scenario asks for it, the delay matrix of every run in which the diagnosis told something."""
    scenario = result.scenario()
    told = [run for run in made if run.outcome.verdicts] if scenario.diagnose else []
    for run in told[:MOST_RUNS]:
        found = diagnose_stored(run, scenario)
        if not found.alarms:
            continue
        outcome = run.outcome
        title = f"{outcome.collective} on {outcome.fabric}: who waits for whom"
        figure = delay_figure(run.fabric, found.alarms[0].diagnosis, found.alarms, title)
        picture = save(f"delays-{slug(outcome.fabric)}-{slug(outcome.collective)}-{outcome.condition}", figure)
        verdicts = tuple((one.t_s, one.verdict.text, one.verdict.evidence.text) for one in found.alarms)
        yield DiagnosisView(outcome, picture, verdicts)


def _matrices(made: Sequence[StoredRun], save: _Save) -> Iterator[Picture]:
    """Who talks to whom, of every collective once: the flows are the same on all fabrics."""
    for collective in dict.fromkeys(run.outcome.collective for run in made):
        run = next(one for one in made if one.outcome.collective == collective)
        title = f"{collective}, {size_text(run.outcome.size_bytes)}: who sends how much to whom"
        pairs = bytes_by_pair(run.transfers())
        figure = matrix_figure(pairs, run.outcome.ranks, run.fabric.spec.rails, title)
        yield save(f"matrix-{slug(collective)}", figure)
