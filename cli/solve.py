"""``railbed solve``: judge who says which link a hidden fault is on."""

from __future__ import annotations

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.impairing import impairment_words
from cli.output import json_option, print_json


@click.command("solve")
@click.argument("component", required=False)
@click.option("--give-up", is_flag=True, help="Say where the fault is, and end the mystery.")
@name_option
@json_option
def command(component: str | None, give_up: bool, name: str | None, as_json: bool) -> int:
    """Judge the answer COMPONENT to `railbed mystery`: a link is right, close or wrong; a GPU or switch can be close.

    Close is a link of the same switch, GPU or rail, or one of these as a whole. Exit code 0 if it is right, 1 if not.
    """
    if (component is not None) == give_up:
        raise click.UsageError("give the COMPONENT that is at fault, or --give-up")
    need_root("solve")
    fabric = running_fabric(name)
    answer = fabric.solve(component) if component is not None else fabric.give_up()
    if as_json:
        print_json(answer)
    else:
        tries = f"after {answer['tries']} {'try' if answer['tries'] == 1 else 'tries'}"
        click.echo(f"{answer['sentence']} ({tries})")
        fault = answer["fault"]
        if fault is not None:
            click.echo(f"{fault['link']}: {impairment_words(fault)}; 'restore {fault['link']}' mends it")
    return 0 if answer["judgement"] in ("right", "given-up") else 1
