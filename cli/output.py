"""What all commands print with: JSON for scripts, tables for people, progress on a terminal only."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import click


class Progress(Protocol):
    """Shows the stage that a command is in, and the share of the whole that is done (0 to 1) where it is known."""

    def __call__(self, text: str, share: float | None = None) -> None:
        """Show it."""


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value, for scripts.")


def print_json(value: Any) -> None:
    """Print ``value`` as one line of JSON; what JSON does not know (paths, enumerations) is printed as text."""
    click.echo(json.dumps(value, default=str))


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows under headings in columns as wide as needed, two blanks apart; no colour, so that it can be piped."""
    cells = [[str(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


@contextmanager
def progress() -> Iterator[Progress]:
    """A function that shows on stderr what a command is doing; it shows nothing where stderr is no terminal.

    The present stage has a turning wheel; a finished one stays on the screen with its duration.
    """
    if not sys.stderr.isatty():
        yield _show_nothing
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    stage = ""
    started_s = time.monotonic()

    def finish_stage() -> None:
        if stage:
            console.print(Text(f"{time.monotonic() - started_s:7.1f} s  {stage}"))

    with console.status(Text("starting")) as status:

        def show(text: str, share: float | None = None) -> None:
            nonlocal stage, started_s
            if text != stage:
                finish_stage()
                stage, started_s = text, time.monotonic()
            status.update(Text(text if share is None else f"{text} ({share:.0%} of the whole)"))

        yield show
        finish_stage()


def _show_nothing(text: str, share: float | None = None) -> None:
    """Stand in for the progress display where nobody would see it."""
