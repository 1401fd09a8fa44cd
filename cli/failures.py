"""``railbed failures``: what is wrong with the links of a running fabric, and how to end all of it."""

from __future__ import annotations

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.impairing import impairment_words
from cli.output import json_option, print_json, table


@click.command("failures")
@click.option("--reset", is_flag=True, help="Undo everything that is wrong.")
@name_option
@json_option
def command(reset: bool, name: str | None, as_json: bool) -> None:
    """Show the links that something is wrong with, as the kernel holds it; or restore them all with --reset."""
    need_root("failures")
    fabric = running_fabric(name)
    if reset:
        mended = fabric.reset_impairments()
        if as_json:
            print_json({"restored": mended})
        else:
            click.echo(f"restored: {', '.join(mended)}" if mended else "nothing was wrong")
        return
    found = fabric.impairments()
    if as_json:
        print_json(found)
    elif not found:
        click.echo("nothing is wrong")
    else:
        click.echo(table(("link", "what is wrong"), [(one["link"], impairment_words(one)) for one in found]))
