"""``railbed flap``: a link that goes down and up again and again."""

from __future__ import annotations

import click

from cli.fabrics import name_option, need_root, running_fabric


@click.command("flap")
@click.argument("link")
@click.option("--down-s", type=float, default=1.0, show_default=True, help="Seconds down each time.")
@click.option("--up-s", type=float, default=1.0, show_default=True, help="Seconds up each time.")
@click.option("--count", type=int, default=5, show_default=True, help="How many times.")
@name_option
def command(link: str, down_s: float, up_s: float, count: int, name: str | None) -> None:
    """Take LINK down and up again and again, in the background. `railbed failures --reset` ends it early."""
    need_root("flap")
    running_fabric(name).flap(link, down_s, up_s, count)
    click.echo(f"{link} flaps {count} times: {down_s:g} s down, {up_s:g} s up")
