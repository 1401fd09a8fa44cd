"""``railbed results``: stored results, listed and removed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.output import json_option, print_json, table
from cli.results_table import results_option

if TYPE_CHECKING:
    from experiments.stored import StoredResult, StoredSweep

STATUSES = ("running", "complete", "interrupted", "incomplete")


@click.command("results")
@click.argument("words", nargs=-1, metavar="[rm] [RESULT]...")
@click.option("--status", type=click.Choice(STATUSES), help="Only results of this status.")
@click.option("--backend", type=click.Choice(["emulator", "simulator"]), help="Only results of this back end.")
@results_option
@json_option
def command(words: tuple[str, ...], status: str | None, backend: str | None, results_root: Path, as_json: bool) -> int:
    """List the stored results, oldest first; with RESULT those whose name contains it.

    'rm RESULT...' removes results; a RESULT is the name of a folder, its path, or 'latest'. One that is being written
    is not removed.
    """
    if words[:1] == ("rm",):
        return _remove(words[1:], results_root, as_json)
    found, damaged = _stored(results_root)
    shown = [
        result
        for result in found
        if status in (None, result.status)
        and (backend is None or any(outcome.backend == backend for outcome in result.outcomes))
        and (not words or any(word in result.path.name for word in words))
    ]
    if as_json:
        print_json([_line(result) for result in shown])
    elif shown:
        click.echo(table(("RESULT", "STATUS", "BACK END", "MADE", "LOST"), [_cells(result) for result in shown]))
    else:
        click.echo("no results" if not found else "no results that fit", err=True)
    for sentence in damaged:
        click.echo(f"railbed: {sentence}", err=True)
    return 0


def _stored(results_root: Path) -> tuple[list[StoredResult | StoredSweep], list[str]]:
    """All results that can be read, and a sentence for every one that can't."""
    from experiments.errors import ResultsError
    from experiments.stored import read_any, result_folders

    found, damaged = [], []
    for path in result_folders(results_root):
        try:
            found.append(read_any(path))
        except ResultsError as error:
            damaged.append(str(error))
    return found, damaged


def _line(result: StoredResult | StoredSweep) -> dict[str, object]:
    from experiments.stored import StoredSweep

    line = {
        "path": result.path,
        "name": result.name,
        "status": result.status,
        "backends": sorted({outcome.backend for outcome in result.outcomes}),
        "lost_runs": sum(outcome.duration_s is None for outcome in result.outcomes),
    }
    if isinstance(result, StoredSweep):
        return {**line, "planned_cases": len(result.cases), "cases": len(result.made)}
    return {**line, "planned_runs": result.planned_runs, "runs": len(result.runs)}


def _cells(result: StoredResult | StoredSweep) -> tuple[object, ...]:
    line = _line(result)
    what = "cases" if "cases" in line else "runs"
    backends = ", ".join(sorted({outcome.backend for outcome in result.outcomes})) or "-"
    made = f"{line[what]} of {line[f'planned_{what}']} {what}"
    return result.path.name, result.status, backends, made, line["lost_runs"] or "-"


def _remove(names: tuple[str, ...], results_root: Path, as_json: bool) -> int:
    """Remove all of ``names`` or, if one of them is unknown or being written, none."""
    from experiments.errors import ResultsError
    from experiments.results import is_being_written
    from experiments.stored import find_result

    if not names:
        raise click.UsageError("name the results to remove: railbed results rm RESULT...")
    paths = list(dict.fromkeys(find_result(name, results_root) for name in names))
    for path in paths:
        if is_being_written(path):
            raise ResultsError(f"{path} is being written; nothing was removed: interrupt its run first")
    for path in paths:
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise ResultsError(f"{path} cannot be removed: {error.strerror}") from None
    if as_json:
        print_json({"removed": paths})
    else:
        for path in paths:
            click.echo(f"removed {path}")
    return 0
