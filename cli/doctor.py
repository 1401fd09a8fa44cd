"""``railbed doctor``: what this machine can emulate, and what to do about what it cannot."""

from __future__ import annotations

import dataclasses

import click

from cli.output import json_option, print_json, table


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Check what this machine can emulate, and say what to do about what it can't.

    Exit code 0 if a fabric can be emulated, 1 if not.
    """
    from emulator.doctor import can_emulate, examine

    checks = examine()
    possible = can_emulate(checks)
    if as_json:
        print_json({"can_emulate": possible, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        rows = [
            (check.verdict.value, check.name, " -> ".join(filter(None, (check.found, check.remedy))))
            for check in checks
        ]
        click.echo(table(("", "CHECK", "FOUND -> REMEDY"), rows))
        click.echo("\nA fabric can be emulated here." if possible else "\nNo fabric can be emulated here yet.")
    return 0 if possible else 1
