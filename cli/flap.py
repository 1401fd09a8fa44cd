"""``railbed flap``: a link that goes down and up again and again."""

from __future__ import annotations

from typing import Any

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.impairing import show_and_reset
from cli.output import json_option, print_json


@click.command("flap")
@click.argument("link")
@click.option("--down-s", type=float, default=1.0, show_default=True, help="Seconds down each time.")
@click.option("--up-s", type=float, default=1.0, show_default=True, help="Seconds up each time.")
@click.option("--count", type=int, default=5, show_default=True, help="How many times.")
@show_and_reset
@name_option
@json_option
def command(
    link: str, down_s: float, up_s: float, count: int, show: bool, reset: bool, name: str | None, as_json: bool
) -> None:
    """Take LINK down and up again and again, in the background. --reset ends it early; the link is up then."""
    if show and reset:
        raise click.UsageError("give --show or --reset, not both")
    need_root("flap")
    fabric = running_fabric(name)
    if show:
        state = fabric.flapping(link)
    elif reset:
        state = fabric.stop_flap(link)
    else:
        state = fabric.flap(link, down_s, up_s, count)
    if as_json:
        print_json(state)
    else:
        click.echo(f"{link} {_words(state)}")


def _words(state: dict[str, Any]) -> str:
    if not state["flapping"]:
        return "does not flap"
    return (
        f"flaps: {state['down_s']:g} s down, {state['up_s']:g} s up, {state['remaining']} of {state['count']} to come"
    )
