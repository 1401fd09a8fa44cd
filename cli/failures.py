"""``railbed failures``: what is wrong with the links of a running fabric, and how to end all of it."""

from __future__ import annotations

from typing import Any

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.impairing import netem_words
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
        click.echo(table(("link", "what is wrong"), [(one["link"], _words(one)) for one in found]))


def _words(one: dict[str, Any]) -> str:
    words = ["down"] if one["down"] else []
    if one["blackhole"]:
        words.append(f"swallows packets ({' and '.join(one['blackhole'])})")
    if one["rate_mbps"] is not None:
        words.append(f"{one['rate_mbps']:g} Mbit/s only")
    if one["delay_ms"] or one["loss_share"]:
        words.append(netem_words(one))
    return ", ".join(words)
