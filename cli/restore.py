"""``railbed restore``: undo whatever is wrong with a link, a GPU or a switch."""

from __future__ import annotations

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json


@click.command("restore")
@click.argument("target")
@name_option
@json_option
def command(target: str, name: str | None, as_json: bool) -> None:
    """Bring TARGET back: up again, nothing swallowed, its own rate; traffic returns to its healthy paths.

    TARGET is named as for `railbed fail`. `railbed failures --reset` restores everything at once.
    """
    need_root("restore")
    result = running_fabric(name).restore(target)
    if as_json:
        print_json(result)
    else:
        left = f", but out of service; 'railbed drain {target} --undo' changes that" if result.get("drained") else ""
        click.echo(f"{target} is up{left}")
