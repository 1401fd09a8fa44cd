"""What ``railbed run`` does with the name of a reference experiment: run it, print its table, store it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cli.output import print_json, progress, table


def run_reference(name: str, results_root: Path, as_json: bool, check: bool) -> int:
    """Make the rows of ``R3``, or all of ``paper-tables``; the exit code.

    A published number that is not met is a finding, so the code is 0, unless ``check`` asks for 1 then.
    """
    from experiments.reference.registry import find
    from experiments.reference.tables import HEADINGS, MARKS, cells, run_and_store, tally

    with progress() as show:
        folder, rows = run_and_store([name], results_root, show, sys.argv)
    code = 1 if check and any(row.agrees is False for row in rows) else 0
    if as_json:
        print_json({"folder": folder, "rows": [row.to_dict() for row in rows]})
        return code
    for reference in find([name]):
        own = [row for row in rows if row.experiment == reference.name]
        click.echo(f"{reference.name}: {reference.claim}\n{reference.method}\n")
        click.echo(table(HEADINGS, [cells(row) for row in own]))
        click.echo(f"\n{tally(own)}\n")
    click.echo(f"marks: {MARKS}\nresults: {folder}")
    return code
