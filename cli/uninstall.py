"""``railbed uninstall``: done by the launcher; here only its help."""

from __future__ import annotations

import click

from cli.launcher import launcher_only


@click.command("uninstall")
def command() -> None:
    """Remove the Python environments and caches from the checkout; results and Debian packages stay."""
    launcher_only("uninstall")
