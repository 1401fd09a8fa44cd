"""What a finished experiment prints, and where results are looked for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from experiments.run import Results

PIPE_WIDTH = 200

results_option = click.option(
    "--results",
    "results_root",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Folder that holds the results.",
)


def print_results(results: Results) -> None:
    """Print the table of outcomes, and where results and report are."""
    from rich.console import Console

    from experiments.tables import summary

    # In a pipe a table that is cut at 80 columns would be useless.
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(summary(results.outcomes))
    click.echo(f"results: {results.folder}")
    if results.report is not None:
        click.echo(f"report: {results.report}")
