"""``railbed uninstall``: done by the launcher; here only its help."""

from __future__ import annotations

import click

from cli.launcher import launcher_only


@click.command("uninstall")
@click.option(
    "--packages", is_flag=True, help="Remove too the Debian packages that setup brought and nothing else needs."
)
def command(packages: bool) -> None:
    """Remove the Python environments and caches from the checkout; results stay, and Debian packages unless asked."""
    launcher_only("uninstall")
