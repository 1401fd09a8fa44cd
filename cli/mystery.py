"""``railbed mystery``: hide a fault in a running fabric for others to find."""

from __future__ import annotations

import secrets
from typing import Any

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json

_MOST_SEED = 1_000_000


@click.command("mystery")
@click.option("--seed", type=int, metavar="N", help="Which fault; the same again for the same seed.  [default: any]")
@click.option("--kinds", metavar="KIND,...", help="What it may be.  [default: blackhole,one-way,degrade]")
@click.option("--show", is_flag=True, help="Only show whether one is hidden, and how often people guessed.")
@name_option
@json_option
def command(seed: int | None, kinds: str | None, show: bool, name: str | None, as_json: bool) -> None:
    """Hide a fault on one link of a running fabric. No port goes down, and no list of failures shows it.

    KIND is blackhole, one-way (a black hole in one direction), degrade, delay or loss; the last two need netem in the
    kernel. `railbed solve` judges who finds it.
    """
    if show and (seed is not None or kinds is not None):
        raise click.UsageError("--show takes neither --seed nor --kinds")
    need_root("mystery")
    fabric = running_fabric(name)
    if show:
        state = fabric.mystery()
    else:
        wanted = [word.strip() for word in kinds.split(",")] if kinds is not None else []
        state = fabric.hide_fault(secrets.randbelow(_MOST_SEED) if seed is None else seed, wanted)
    if as_json:
        print_json(state)
    else:
        click.echo(_words(state))


def _words(state: dict[str, Any]) -> str:
    if not state["open"]:
        return "nothing is hidden"
    tries = f"; tries so far: {state['tries']}" if state["tries"] else ""
    return (
        f"a fault is hidden on one link (seed {state['seed']}; {' or '.join(state['kinds'])}){tries}: find it, "
        "and answer with 'solve LINK'"
    )
