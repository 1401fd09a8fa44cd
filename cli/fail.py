"""``railbed fail``: take a link, a GPU or a switch of a running fabric down."""

from __future__ import annotations

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json


@click.command("fail")
@click.argument("target")
@name_option
@json_option
def command(target: str, name: str | None, as_json: bool) -> None:
    """Take TARGET down at both ends, as a pulled cable does; traffic is rerouted.

    Links are named like d0r1-rail1 (NIC), d0r1-nv0 (NVLink) or leaf0-spine1#2 (the second of parallel links). A GPU
    (d0r1), an NVSwitch (nv0), a rail (rail1), a leaf or a spine goes down with all its links.
    """
    need_root("fail")
    result = running_fabric(name).fail(target)
    if as_json:
        print_json(result)
    elif not result["changed"]:
        click.echo(f"{target} was down already")
    else:
        links = f" ({result['links']} links)" if result["links"] > 1 else ""
        click.echo(
            f"{target} is down{links}: noticed after {result['detected_s'] * 1000:.0f} ms, "
            f"new rules everywhere after {result['repaired_s'] * 1000:.0f} ms"
        )
