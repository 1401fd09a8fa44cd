"""``railbed diagnose``: which component is at fault, in a stored run or on a running fabric."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json, progress, table
from cli.results_table import results_option

if TYPE_CHECKING:
    from experiments.diagnosis.summary import RunDiagnosis

NO_RUN_S = 3.0
"""A fabric on which nothing is told for so long has no run."""


@click.command("diagnose")
@click.argument("result", required=False)
@click.option("--run", "run_name", metavar="RUN", help="Of a result: only the runs whose names hold this text.")
@name_option
@click.option("--seconds", type=click.FloatRange(1, 86_400), default=15.0, show_default=True, help="Of a fabric: how "
              "long its run is followed at most.")  # fmt: skip
@results_option
@json_option
def command(
    result: str | None, run_name: str | None, name: str | None, seconds: float, results_root: Path, as_json: bool
) -> int:
    """Say which component is at fault, and why: in the runs of a stored RESULT, or in the run of a running fabric.

    Exit code 1 if a fault is found.
    """
    if result is not None:
        if click.get_current_context().get_parameter_source("name") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--name is for a running fabric; leave RESULT out")
        found = _stored(result, run_name, results_root)
    else:
        if run_name is not None:
            raise click.UsageError("--run is for a stored result; give a RESULT")
        found = [_live(name, seconds)]
    if as_json:
        print_json({"runs": [one.to_dict() for one in found]})
    else:
        click.echo("\n\n".join(as_text(one) for one in found))
    return 1 if any(one.alarms for one in found) else 0


def as_text(found: RunDiagnosis) -> str:
    """The diagnosis of a run: its finding, and a line for each verdict with its evidence."""
    head = f"{found.name}: {found.finding.value}, watched for {found.watched_s:.1f} s"
    if found.reason:
        return f"{head}\n{found.reason}"
    if not found.alarms:
        return head
    rows = [(f"{one.t_s:.1f}", one.verdict.text, one.verdict.pattern.value) for one in found.alarms]
    evidence = [f"  {one.t_s:.1f} s: {one.verdict.evidence.text}" for one in found.alarms]
    return "\n".join((head, table(("TOLD AFTER S", "VERDICT", "PATTERN"), rows), "Evidence", *evidence))


def _stored(result: str, run_name: str | None, results_root: Path) -> list[RunDiagnosis]:
    from experiments.diagnosis.summary import diagnose_stored
    from experiments.errors import ResultsError
    from experiments.stored import find_result, read_result

    stored = read_result(find_result(result, results_root))
    runs = [run for run in stored.runs if run_name is None or run_name in run.path.name]
    if not runs:
        known = ", ".join(run.path.name for run in stored.runs) or "none"
        raise ResultsError(f"{stored.path} has no run '{run_name or ''}': it has {known}")
    scenario = stored.scenario()
    return [diagnose_stored(run, scenario) for run in runs if run.outcome.was_made]


def _live(name: str | None, seconds: float) -> RunDiagnosis:
    from experiments.diagnosis.live import live_alarms, network_now
    from experiments.diagnosis.summary import summed
    from experiments.errors import NoRunError

    need_root("diagnose")
    running = running_fabric(name)
    watched = []
    with progress() as show:
        began_s = time.monotonic()
        try:
            for seen in live_alarms(running, network_now(running), wait_s=NO_RUN_S):
                watched.append(seen)
                for alarm in seen[1]:
                    show(f"{alarm.t_s:.1f} s: {alarm.verdict.text}")
                if time.monotonic() - began_s > seconds:
                    break
        except KeyboardInterrupt:  # what has been seen until now is told
            pass
    if not watched:
        raise NoRunError(
            f"nothing is told on the fabric '{running.name}': the agent replays no schedule on it now; start a run, "
            "such as 'railbed run SCENARIO --engine agent', or give a stored RESULT"
        )
    return summed(running.name, watched)
