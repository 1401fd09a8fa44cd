"""``railbed down``: take fabrics down."""

from __future__ import annotations

import dataclasses

import click

from cli.fabrics import need_root
from cli.output import json_option, print_json


@click.command("down")
@click.argument("name", required=False, metavar="[FABRIC]")
@json_option
def command(name: str | None, as_json: bool) -> None:
    """Take FABRIC down, or every fabric of Railbed's when none is named.

    Also removes what a crashed run left behind. Nothing that is not Railbed's is touched.
    """
    need_root("down")

    from emulator.manager import down

    report = down(name)
    if as_json:
        print_json(dataclasses.asdict(report))
        return
    for what, names in (("taken down", report.removed), ("cleared away after a crash", report.stale)):
        if names:
            click.echo(f"{what}: {', '.join(names)}")
    if not report.removed and not report.stale:
        click.echo("nothing to do: no fabric is up and none left anything behind")
