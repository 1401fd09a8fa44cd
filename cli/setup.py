"""``railbed setup``: done by the launcher; here only its help."""

from __future__ import annotations

import click

from cli.launcher import launcher_only


@click.command("setup")
@click.option("--ryu", is_flag=True, help="Also make the environment in which the controller runs on Ryu 4.34.")
def command(ryu: bool) -> None:
    """Install what is missing, and nothing else: Debian packages (as root) and the Python environment .venv."""
    launcher_only("setup")
