"""``railbed demo``: the main job."""

from __future__ import annotations

from pathlib import Path

import click

from cli.fabrics import need_root
from cli.output import progress
from cli.results_table import print_results


@click.command("demo")
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Folder that the results are written below.",
)
def command(results: Path) -> int:
    """Measure collectives on a rail-only and on a rail-optimized fabric of 16 GPUs while a link fails.

    Ends with a table, plots and a report. Takes a few minutes.
    """
    need_root("demo")

    from experiments.demo import run_demo

    with progress() as show:
        made = run_demo(results, show)
    print_results(made)
    return 0 if made.complete else 1
