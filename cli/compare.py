"""``railbed compare``: results side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.compare_log import compare_with_file
from cli.output import json_option, print_json, table
from cli.results_table import results_option

if TYPE_CHECKING:
    from experiments.compare import Side


@click.command("compare")
@click.argument("results", nargs=-1, required=True, metavar="RESULT RESULT...|LOG")
@click.option(
    "--figure",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the figure of a LOG goes (.svg, .png or .pdf).  [default: below the result's figures]",
)
@results_option
@json_option
def command(results: tuple[str, ...], figure: Path | None, results_root: Path, as_json: bool) -> int:
    """Compare stored results with the first one: medians, intervals over repetitions, and whether they differ at all.

    RESULT is the name of a folder, its path, or 'latest'; RESULT:FABRIC is one fabric of it, so that fabrics can be
    compared too. Results that are not alike are refused. With a LOG of nccl-tests in place of the second RESULT the bus
    bandwidths are put side by side.
    """
    from experiments.compare import compare
    from experiments.compare_tables import HEADINGS, comparison_notes, comparison_rows

    if len(results) < 2:
        raise click.UsageError("name at least two results to compare")
    if len(results) == 2 and Path(results[1]).is_file():
        compare_with_file(results[0], Path(results[1]), figure, results_root, as_json)
        return 0
    if figure is not None:
        raise click.UsageError("--figure belongs to a LOG of nccl-tests")
    comparisons = compare([_side(text, results_root) for text in results])
    if as_json:
        print_json([one.to_dict() for one in comparisons])
        return 0
    click.echo(table(HEADINGS, comparison_rows(comparisons)))
    for note in comparison_notes(comparisons):
        click.echo(note)
    return 0


def _side(text: str, results_root: Path) -> Side:
    """The result of that name, or one fabric of it."""
    from experiments.compare import Side
    from experiments.errors import NoSuchResultError, UnlikeResultsError
    from experiments.stored import find_result, is_sweep, read_result

    name, colon, fabric = text.rpartition(":")
    try:
        path = find_result(text, results_root)
        name, fabric = text, ""
    except NoSuchResultError:
        if not colon:
            raise
        path = find_result(name, results_root)
    if is_sweep(path):
        raise UnlikeResultsError(f"{path} is a sweep: compare results in its folder 'cases'")
    result = read_result(path)
    whole = Side(path.name, result.outcomes, result.planned_failures())
    return whole.only(fabric) if fabric else whole
