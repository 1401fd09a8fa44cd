"""``railbed restore``: bring a failed link back up."""

from __future__ import annotations

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json


@click.command("restore")
@click.argument("link")
@name_option
@json_option
def command(link: str, name: str | None, as_json: bool) -> None:
    """Bring LINK back up; traffic returns to its healthy paths.

    Links are named like d0r1-rail1 (NIC), d0r1-nv0 (NVLink) or leaf0-spine1#2 (the second of parallel links).
    """
    need_root("restore")
    result = running_fabric(name).restore(link)
    if as_json:
        print_json(result)
    else:
        click.echo(f"link {link} is up again")
