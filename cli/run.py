"""``railbed run``: run a scenario file, or a table of the papers' numbers by its name."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cli.fabrics import need_root
from cli.output import Progress, json_option, print_json, progress
from cli.reference_table import run_reference
from cli.results_table import print_results, results_option
from cli.scenarios import loaded_scenario, set_option

if TYPE_CHECKING:
    from experiments.plan import Backend
    from experiments.run import Results
    from experiments.scenario import Scenario
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
    no_report: bool,
    results_root: Path,
    as_json: bool,
) -> int:
    """Run a SCENARIO, a file or an experiment of the catalogue by name: its workload, healthy and with its failures.

    Prints the table and writes results, figures and a report. Ctrl-C keeps what was measured. Exit code 1 if a transfer
    was not made in full. R1 to R9 in place of a file make one table of the papers' numbers, paper-tables all of them,
    on the simulator.
    """
    from experiments.reference.registry import is_reference

    if scenario is not None and is_reference(scenario):
        if backend == "emulator":
            raise click.BadParameter(f"{scenario} runs on the simulator only", param_hint="'--backend'")
        return run_reference(scenario, results_root, as_json)
    signal.signal(signal.SIGTERM, _interrupt)
    if resume is not None:
        if scenario is not None:
            raise click.UsageError("give either a SCENARIO or --resume, not both: a result knows its scenario")
        results = _resume(resume, results_root, not no_report)
    else:
        loaded = _loaded(scenario, settings, backend=backend, engine=engine, repetitions=repetitions)
        check = check or loaded.check
        if click.get_current_context().get_parameter_source("results_root") is ParameterSource.DEFAULT:
            results_root = Path(loaded.results)
        results = _run(loaded, results_root, loaded.report and not no_report)
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


def _loaded(scenario: str | None, settings: Sequence[str], **given: object) -> Scenario:
    if scenario is None:
        raise click.UsageError("give the SCENARIO to run, or --resume RESULT")
    return loaded_scenario(scenario, settings, **given)


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


def _run(scenario: Scenario, results_root: Path, report: bool) -> Results:
    from experiments.run import run_scenario

    with _backend(scenario) as (backend, show, provenance):
        return run_scenario(
            scenario, backend, show, results_root=results_root, command=sys.argv, extra_provenance=provenance,
            report=report,
        )  # fmt: skip


def _resume(name: str, results_root: Path, report: bool) -> Results:
    from experiments.run import resume_scenario
    from experiments.stored import find_result, read_result

    path = find_result(name, results_root)
    with _backend(read_result(path).scenario()) as (backend, show, provenance):
        return resume_scenario(path, backend, show, command=sys.argv, extra_provenance=provenance, report=report)


@contextmanager
def _backend(scenario: Scenario) -> Iterator[tuple[Backend, Progress, Callable[[], Mapping[str, Any]]]]:
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
