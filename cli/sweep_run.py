"""What ``railbed run --sweep`` does: the cases of a sweep, on this machine's cores, on a cluster, or live."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.fabrics import need_root
from cli.output import Progress, print_json, progress, table

if TYPE_CHECKING:
    from experiments.plan import Backend
    from experiments.scenario import Scenario, Setting
    from experiments.stored import StoredSweep
    from experiments.sweep import Executor, SweepCase


def sweep(
    load: Callable[[Sequence[Setting]], Scenario],
    sweeps: Sequence[str],
    jobs: int | None,
    scheduler: str | None,
    results_root: Path,
    report: bool,
    as_json: bool,
) -> int:
    """Run a scenario with every combination of the swept values; 0 if every transfer was made in full."""
    from experiments.sweep import parse_axis, run_sweep, sweep_cases

    axes = [parse_axis(text) for text in sweeps]
    cases = sweep_cases(load, axes)
    name = load([]).name
    with _executor(cases, jobs, scheduler) as (execute, show):
        made = run_sweep(name, cases, execute, show, results_root=results_root, command=sys.argv)
        return _told(made, show, report, as_json)


def finish_sweep(path: Path, jobs: int | None, scheduler: str | None, report: bool, as_json: bool) -> int:
    """Make the cases that a stored sweep lacks; 0 if every transfer of all was made in full."""
    from experiments.sweep import resume_sweep, stored_cases

    with _executor(stored_cases(path), jobs, scheduler) as (execute, show):
        return _told(resume_sweep(path, execute, show), show, report, as_json)


@contextmanager
def _executor(
    cases: Sequence[SweepCase], jobs: int | None, scheduler: str | None
) -> Iterator[tuple[Executor, Progress]]:
    """Where the cases are made, and a display. All cases are for the same back end, or the sweep is refused."""
    from experiments.executors import in_turn, on_dask, on_local_cores
    from experiments.sweep import sweep_scenario

    scenarios = [sweep_scenario(case) for case in cases]
    backends = {scenario.backend for scenario in scenarios}
    if len(backends) > 1:
        raise click.UsageError("a sweep runs on one back end: sweep other keys, and compare the two results")
    if backends == {"emulator"}:
        if jobs or scheduler:
            raise click.UsageError("--jobs and --scheduler are for the simulator: live cases run one after another")
        with backend_of(scenarios[0]) as (backend, show, provenance):
            yield in_turn(backend, show, sys.argv, provenance), show
        return
    with progress() as show:
        yield on_dask(scheduler, sys.argv) if scheduler else on_local_cores(sys.argv, jobs), show


def _told(made: StoredSweep, show: Progress, report: bool, as_json: bool) -> int:
    from experiments.drawing import draw_sweep
    from experiments.sweep_tables import HEADINGS, keys, sweep_rows

    drawn = None
    if report:
        show("drawing figures")
        drawn = draw_sweep(made)
    if as_json:
        outcomes = [
            {
                "settings": case.settings,
                "folder": made.path / "cases" / case.name,
                "reason": case.reason,
                "outcomes": [outcome.to_dict() for outcome in case.result.outcomes] if case.result else [],
            }
            for case in made.cases
        ]
        summary = json.loads((made.path / "summary.json").read_text())
        print_json({"folder": made.path, "summary": {**summary, "cases": outcomes}})
    else:
        click.echo(table((*keys(made), *HEADINGS), sweep_rows(made)))
        click.echo(f"results: {made.path}")
        if drawn is not None:
            click.echo(f"report: {drawn}")
    return 0 if made.complete else 1


@contextmanager
def backend_of(scenario: Scenario) -> Iterator[tuple[Backend, Progress, Callable[[], Mapping[str, Any]]]]:
    """The back end that the scenario names, a display for it, and what tells its provenance."""
    from experiments.plan import simulator_backend

    if scenario.backend != "emulator":
        with progress() as show:
            yield simulator_backend, show, dict
        return
    need_root("run")
    from experiments.emulated import check_essential, emulator_backend

    check_essential(scenario)
    with progress() as show, emulator_backend(show) as live:
        yield live, show, live.provenance_now
