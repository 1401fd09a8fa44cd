"""``railbed delay``: a link that delays packets."""

from __future__ import annotations

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.impairing import check_one_verb, netem_words, show_and_reset
from cli.output import json_option, print_json


@click.command("delay")
@click.argument("link")
@click.argument("value", metavar="[DELAY_MS]", type=float, required=False)
@click.option("--jitter-ms", type=float, default=0.0, show_default=True, help="How much each packet's delay varies.")
@show_and_reset
@name_option
@json_option
def command(
    link: str, value: float | None, jitter_ms: float, show: bool, reset: bool, name: str | None, as_json: bool
) -> None:
    """Delay all packets of LINK by DELAY_MS, each way, on kernels that can (netem); the loss it has stays.

    Where the kernel has no netem this is refused, as not emulated.
    """
    check_one_verb(value, show, reset, "DELAY_MS")
    need_root("delay")
    fabric = running_fabric(name)
    state = fabric.impairment(link) if show else fabric.delay(link, value or 0.0, jitter_ms)
    if as_json:
        print_json(state)
    else:
        click.echo(f"{link}: {netem_words(state)}")
