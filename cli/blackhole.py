"""``railbed blackhole``: a link that swallows packets while its ports stay up."""

from __future__ import annotations

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.impairing import blackhole_words, show_and_reset
from cli.output import json_option, print_json


@click.command("blackhole")
@click.argument("link")
@click.option(
    "--direction",
    type=click.Choice(["both", "out", "in"]),
    default="both",
    show_default=True,
    help="out: away from the GPU (or leaf), in: towards it.",
)
@show_and_reset
@name_option
@json_option
def command(link: str, direction: str, show: bool, reset: bool, name: str | None, as_json: bool) -> None:
    """Make LINK swallow all packets, silently: no port goes down, so nobody is told. --reset ends it."""
    if show and reset:
        raise click.UsageError("give --show or --reset, not both")
    need_root("blackhole")
    fabric = running_fabric(name)
    state = fabric.impairment(link) if show else fabric.blackhole(link, direction, on=not reset)
    if as_json:
        print_json(state)
    else:
        click.echo(f"{link}: {blackhole_words(state)}")
