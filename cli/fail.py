"""``railbed fail``: take a link of a running fabric down."""

from __future__ import annotations

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json


@click.command("fail")
@click.argument("link")
@name_option
@json_option
def command(link: str, name: str | None, as_json: bool) -> None:
    """Take LINK down at both ends, as a pulled cable does; traffic is rerouted.

    Links are named like d0r1-rail1 (NIC), d0r1-nv0 (NVLink) or leaf0-spine1#2 (the second of parallel links).
    """
    need_root("fail")
    result = running_fabric(name).fail(link)
    if as_json:
        print_json(result)
    else:
        click.echo(f"link {link} is down")
