"""``railbed run``: run a scenario file, or a table of the papers' numbers by its name."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from cli.output import json_option, print_json
from cli.reference_table import run_reference
from cli.results_table import print_results, results_option
from cli.scenarios import loaded_scenario, set_option
from cli.sweep_run import backend_of, finish_sweep, sweep

if TYPE_CHECKING:
    from experiments.run import Results
    from experiments.scenario import Scenario, Setting
    from experiments.verdicts import Verdict


@click.command("run")
@click.argument("scenario", required=False)
@set_option
@click.option(
    "--backend",
    type=click.Choice(["emulator", "simulator"]),
    help="Where it runs; the emulator needs root.  [default: what the scenario says]",
)
@click.option(
    "--engine",
    type=click.Choice(["iperf3", "agent"]),
    help="What replays the traffic on live fabrics.  [default: what the scenario says, else what suits each schedule]",
)
@click.option("--repetitions", type=click.IntRange(1, 1000), help="How often each live run is made.")
@click.option(
    "--check", is_flag=True, help="Hold the results against the scenario's expected values; else exit code 1."
)
@click.option("--resume", metavar="RESULT", help="Make the runs that an interrupted result lacks.")
@click.option("--sweep", "sweeps", multiple=True, metavar="KEY=A,B,...", help="Run with each value; repeatable.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes of a sweep on the simulator.  [default: all cores]")
@click.option("--scheduler", metavar="ADDRESS", help="Make a sweep's cases on the Dask cluster of this scheduler.")
@click.option("--no-report", is_flag=True, help="Draw neither figures nor report.")
@results_option
@json_option
def command(
    scenario: str | None,
    settings: tuple[str, ...],
    backend: str | None,
    engine: str | None,
    repetitions: int | None,
    check: bool,
    resume: str | None,
    sweeps: tuple[str, ...],
    jobs: int | None,
    scheduler: str | None,
    no_report: bool,
    results_root: Path,
    as_json: bool,
) -> int:
    """Run a SCENARIO, a file or an experiment of the catalogue by name: its workload, healthy and with its failures.

    Prints the table and writes results, figures and a report. Ctrl-C keeps what was measured. Exit code 1 if a transfer
    was not made in full. R1 to R9 or C6 to C11 in place of a file make one table of the papers' numbers on the
    simulator; paper-tables all of R, planning-tables those of traffic planning, c4-downtime that of downtime.
    """
    from experiments.reference.registry import is_reference

    if scenario is not None and is_reference(scenario):
        if backend == "emulator":
            raise click.BadParameter(f"{scenario} runs on the simulator only", param_hint="'--backend'")
        return run_reference(scenario, results_root, as_json, check)
    signal.signal(signal.SIGTERM, _interrupt)
    given = {"backend": backend, "engine": engine, "repetitions": repetitions}
    if resume is not None:
        if scenario is not None or sweeps or settings or any(value is not None for value in given.values()):
            raise click.UsageError("--resume takes neither a SCENARIO nor what belongs to one: a result knows its own")
        path = _found(resume, results_root)
        if _is_sweep(path):
            return finish_sweep(path, jobs, scheduler, not no_report, as_json)
        results = _resume(path, not no_report)
    elif scenario is None:
        raise click.UsageError("give the SCENARIO to run, or --resume RESULT")
    elif sweeps:
        if check:
            raise click.UsageError("--check holds one result against its scenario; run the cases one by one for it")
        load = partial(_with_swept, scenario, settings, given)
        loaded = load(())
        report = loaded.report and not no_report
        return sweep(load, sweeps, jobs, scheduler, _root(loaded, results_root), report, as_json)
    else:
        if jobs or scheduler:
            raise click.UsageError("--jobs and --scheduler belong to --sweep")
        loaded = _with_swept(scenario, settings, given, ())
        check = check or loaded.check
        results = _run(loaded, _root(loaded, results_root), loaded.report and not no_report)
    found = _verdicts(results) if check else ()
    if as_json:
        summary = json.loads((results.folder / "summary.json").read_text())
        checked = {"check": [verdict.to_dict() for verdict in found]} if check else {}
        print_json({"folder": results.folder, "summary": summary, **checked})
    else:
        print_results(results)
        for verdict in found:
            click.echo(verdict.sentence)
    return 0 if results.complete and all(verdict.ok for verdict in found) else 1


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _verdicts(results: Results) -> tuple[Verdict, ...]:
    """What became of the expected values of the scenario as run; a scenario without any cannot be checked."""
    from experiments.errors import NothingExpectedError
    from experiments.stored import read_result
    from experiments.verdicts import verdicts

    scenario = read_result(results.folder).scenario()
    found = verdicts(scenario, results.outcomes)
    if not found:
        raise NothingExpectedError(
            f"--check: the scenario '{scenario.name}' expects nothing of the {scenario.backend}; add 'expect'"
        )
    return found


def _with_swept(
    scenario: str, settings: Sequence[str], given: Mapping[str, object], swept: Sequence[Setting]
) -> Scenario:
    """The scenario with the settings of the command line, and those of a case of a sweep over them."""
    return loaded_scenario(scenario, settings, swept, **given)


def _root(scenario: Scenario, given: Path) -> Path:
    """The folder for results: as given on the command line, else as the scenario says."""
    is_default = click.get_current_context().get_parameter_source("results_root") is ParameterSource.DEFAULT
    return Path(scenario.results) if is_default else given


def _found(name: str, results_root: Path) -> Path:
    from experiments.stored import find_result

    return find_result(name, results_root)


def _is_sweep(path: Path) -> bool:
    from experiments.stored import is_sweep

    return is_sweep(path)


def _run(scenario: Scenario, results_root: Path, report: bool) -> Results:
    from experiments.run import run_scenario

    with backend_of(scenario) as (backend, show, provenance):
        return run_scenario(
            scenario, backend, show, results_root=results_root, command=sys.argv, extra_provenance=provenance,
            report=report,
        )  # fmt: skip


def _resume(path: Path, report: bool) -> Results:
    from experiments.run import resume_scenario
    from experiments.stored import read_result

    with backend_of(read_result(path).scenario()) as (backend, show, provenance):
        return resume_scenario(path, backend, show, command=sys.argv, extra_provenance=provenance, report=report)
