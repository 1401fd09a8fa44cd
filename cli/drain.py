"""``railbed drain``: take a part of a running fabric out of service, or into it again."""

from __future__ import annotations

from typing import Any

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json


@click.command("drain")
@click.argument("target", required=False)
@click.option("--undo", is_flag=True, help="Take it into service again.")
@name_option
@json_option
def command(target: str | None, undo: bool, name: str | None, as_json: bool) -> None:
    """Take TARGET out of service: the controller leads all traffic around it, and no packet is lost by that.

    TARGET is named as for `railbed fail`. Its links stay up; a GPU that is drained is neither reached nor used as a
    relay. Without TARGET, the links out of service are listed.
    """
    need_root("drain")
    if target is None and undo:
        raise click.UsageError("--undo needs the TARGET that is to be in service again")
    fabric = running_fabric(name)
    if target is None:
        links = fabric.drained()
        if as_json:
            print_json({"drained": links})
        else:
            click.echo(f"out of service: {', '.join(links)}" if links else "everything is in service")
        return
    result = fabric.drain(target, not undo)
    if as_json:
        print_json(result)
    else:
        click.echo(f"{target} is {'in' if undo else 'out of'} service{_effect(result)}")


def _effect(result: dict[str, Any]) -> str:
    if not result["changed"]:
        return "; no route has changed by that"
    return f": new rules everywhere after {result['in_force_s'] * 1000:.0f} ms"
