"""``railbed report``: figures and report of a stored result, drawn again."""

from __future__ import annotations

from pathlib import Path

import click

from cli.output import json_option, print_json, progress
from cli.results_table import results_option


@click.command("report")
@click.argument("result")
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(["svg", "pdf", "png"]),
    default=("svg", "pdf"),
    show_default=True,
    help="Format of the figures; repeatable.",
)
@results_option
@json_option
def command(result: str, formats: tuple[str, ...], results_root: Path, as_json: bool) -> int:
    """Draw the figures and the report of a stored RESULT again, without running anything.

    RESULT is the name of a folder, its path, or 'latest'. Works for results that were cut short too.
    """
    from experiments.drawing import draw_any
    from experiments.stored import find_result, read_any

    path = find_result(result, results_root)
    with progress() as show:
        show(f"drawing {path.name}")
        report = draw_any(read_any(path), formats)
    if as_json:
        print_json({"report": report, "figures": sorted((path / "figures").glob("*"))})
    else:
        click.echo(f"report: {report}")
    return 0
