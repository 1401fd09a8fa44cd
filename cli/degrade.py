"""``railbed degrade``: a link with a lower rate."""

from __future__ import annotations

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json


@click.command("degrade")
@click.argument("link")
@click.argument("rate_mbps", type=float)
@name_option
@json_option
def command(link: str, rate_mbps: float, name: str | None, as_json: bool) -> None:
    """Give LINK the emulated rate RATE_MBPS in both directions. `railbed restore LINK` gives it its own again."""
    need_root("degrade")
    state = running_fabric(name).degrade(link, rate_mbps)
    if as_json:
        print_json(state)
    else:
        click.echo(f"{link} has {state['rate_mbps'] or rate_mbps:g} Mbit/s (emulated)")
