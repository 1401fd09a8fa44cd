"""``railbed delay``: a link that delays packets."""

from __future__ import annotations

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json


@click.command("delay")
@click.argument("link")
@click.argument("value", metavar="DELAY_MS", type=float)
@name_option
@json_option
def command(link: str, value: float, name: str | None, as_json: bool) -> None:
    """Delay all packets of LINK by DELAY_MS, each way, on kernels that can (netem).

    Where the kernel has no netem this is refused, as not emulated. `railbed restore LINK` ends it.
    """
    need_root("delay")
    state = running_fabric(name).delay_and_lose(link, value, 0.0)
    if as_json:
        print_json(state)
    else:
        click.echo(f"{link}: delay {state['delay_ms']:g} ms, loss {state['loss_share']:.1%}")
