"""``railbed loss``: a link that loses packets."""

from __future__ import annotations

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json


@click.command("loss")
@click.argument("link")
@click.argument("value", metavar="LOSS_PERCENT", type=float)
@name_option
@json_option
def command(link: str, value: float, name: str | None, as_json: bool) -> None:
    """Lose LOSS_PERCENT of all packets of LINK, each way, on kernels that can (netem).

    Where the kernel has no netem this is refused, as not emulated. `railbed restore LINK` ends it.
    """
    need_root("loss")
    state = running_fabric(name).delay_and_lose(link, 0.0, value / 100)
    if as_json:
        print_json(state)
    else:
        click.echo(f"{link}: delay {state['delay_ms']:g} ms, loss {state['loss_share']:.1%}")
