"""``railbed bench``: a benchmark of the checkout, by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from topologies.near import did_you_mean

CHECKOUT = Path(__file__).resolve().parent.parent


@click.command("bench", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("name")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(context: click.Context, name: str, arguments: tuple[str, ...]) -> int:
    """Run the benchmark NAME with its own ARGUMENTS; `--help` after the name shows them."""
    if name in ("-h", "--help"):
        click.echo(context.get_help())
        return 0
    scripts = {path.stem.rstrip("_"): path for path in sorted((CHECKOUT / "benchmarks").glob("[a-z]*.py"))}
    if not scripts:
        raise click.UsageError("benchmarks come with the checkout, not with the installed package")
    if name not in scripts:
        hint = did_you_mean(name, scripts).rstrip() or f"there are {', '.join(scripts)}"
        raise click.UsageError(f"there is no benchmark '{name}': {hint}")
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    return subprocess.run([sys.executable, str(scripts[name]), *arguments], env=environment, check=False).returncode
