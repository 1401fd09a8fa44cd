"""``railbed degrade``: a link with a lower rate."""

from __future__ import annotations

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.impairing import check_one_verb, rate_words, show_and_reset
from cli.output import json_option, print_json


@click.command("degrade")
@click.argument("link")
@click.argument("rate_mbps", metavar="[RATE_MBPS]", type=float, required=False)
@show_and_reset
@name_option
@json_option
def command(link: str, rate_mbps: float | None, show: bool, reset: bool, name: str | None, as_json: bool) -> None:
    """Give LINK the emulated rate RATE_MBPS in both directions; --reset gives it its own again."""
    check_one_verb(rate_mbps, show, reset, "RATE_MBPS")
    need_root("degrade")
    fabric = running_fabric(name)
    state = fabric.impairment(link) if show else fabric.degrade(link, rate_mbps)
    if as_json:
        print_json(state)
    else:
        click.echo(f"{link}: {rate_words(state)}")
