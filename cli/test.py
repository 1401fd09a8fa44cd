"""``railbed test``: done by the launcher; here only its help."""

from __future__ import annotations

import click

from cli.launcher import launcher_only


@click.command("test")
@click.option("--fast", is_flag=True, help="Only what needs no root and no live fabric.")
@click.option("--soak", is_flag=True, help="Also what runs longer than two minutes.")
@click.option("--vm", is_flag=True, help="Only the virtual machine: builds, starts, provisions and tries one.")
@click.argument("pytest_arguments", nargs=-1, metavar="[PYTEST ARGUMENTS]...")
def command(fast: bool, soak: bool, vm: bool, pytest_arguments: tuple[str, ...]) -> None:
    """Run lint, type and dependency checks, then all tests; fails if any fails. Without --fast it needs root."""
    launcher_only("test")
