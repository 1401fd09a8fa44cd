"""``railbed blackhole``: a link that swallows packets while its ports stay up."""

from __future__ import annotations

import click

from cli.fabrics import name_option, need_root, running_fabric
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
@name_option
@json_option
def command(link: str, direction: str, name: str | None, as_json: bool) -> None:
    """Make LINK swallow all packets, silently: no port goes down, so nobody is told. `railbed restore LINK` ends it."""
    need_root("blackhole")
    state = running_fabric(name).blackhole(link, direction)
    if as_json:
        print_json(state)
    else:
        click.echo(f"{link} swallows all packets ({' and '.join(state['blackhole'])}); its ports are up")
