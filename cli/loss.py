"""``railbed loss``: a link that loses packets."""

from __future__ import annotations

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.impairing import check_one_verb, netem_words, show_and_reset
from cli.output import json_option, print_json


@click.command("loss")
@click.argument("link")
@click.argument("value", metavar="[LOSS_PERCENT]", type=float, required=False)
@show_and_reset
@name_option
@json_option
def command(link: str, value: float | None, show: bool, reset: bool, name: str | None, as_json: bool) -> None:
    """Lose LOSS_PERCENT of all packets of LINK, each way, on kernels that can (netem); the delay it has stays.

    Where the kernel has no netem this is refused, as not emulated.
    """
    check_one_verb(value, show, reset, "LOSS_PERCENT")
    need_root("loss")
    fabric = running_fabric(name)
    state = fabric.impairment(link) if show else fabric.lose(link, (value or 0.0) / 100)
    if as_json:
        print_json(state)
    else:
        click.echo(f"{link}: {netem_words(state)}")
