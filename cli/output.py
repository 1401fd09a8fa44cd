"""What all commands print with: JSON for scripts, tables for people, progress on a terminal only."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

if TYPE_CHECKING:
    from rich.text import Text


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

    The present stage has a turning wheel, how long the command has run, and about how long it still will; a finished
    stage stays on the screen with its duration.
    """
    if not sys.stderr.isatty():
        yield _show_nothing
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    stage = ""
    begun_s = started_s = time.monotonic()
    left = Remaining()

    def finish_stage() -> None:
        if stage:
            console.print(Text(f"{time.monotonic() - started_s:7.1f} s  {stage}"))

    with console.status(Text("starting")) as status:

        def show(text: str, share: float | None = None) -> None:
            nonlocal stage, started_s
            if text != stage:
                finish_stage()
                stage, started_s = text, time.monotonic()
            now_s = time.monotonic() - begun_s
            left.update(share, now_s)
            status.update(_Line(text, share, begun_s, left))

        yield show
        finish_stage()


class Remaining:
    """Estimates how long a command still runs, from the share that is done and the time that took."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None
        self._end_s: float | None = None

    def update(self, share: float | None, now_s: float) -> None:
        """Take note that ``share`` is done at ``now_s``; what comes before the first share is not counted as work."""
        if share is None:
            return
        if self._first is None or share < self._first[0]:
            self._first = (share, now_s)
        first_share, first_s = self._first
        if share > first_share and now_s > first_s:
            self._end_s = first_s + (now_s - first_s) * (1 - first_share) / (share - first_share)

    def seconds(self, now_s: float) -> float | None:
        """Seconds that are left at ``now_s``; None while nothing can be said."""
        return None if self._end_s is None else max(0.0, self._end_s - now_s)


class _Line:
    """The line of the present stage; drawn anew while it stands, so that its clock runs."""

    def __init__(self, text: str, share: float | None, begun_s: float, left: Remaining) -> None:
        self._text, self._share, self._begun_s, self._left = text, share, begun_s, left

    def __rich__(self) -> Text:
        from rich.text import Text

        now_s = time.monotonic() - self._begun_s
        parts = [f"{clock(now_s)} elapsed"]
        left_s = self._left.seconds(now_s)
        if self._share is not None:
            parts.append(f"{self._share:.0%} done")
        if self._share is not None and left_s is not None:
            parts.append(f"about {clock(left_s)} left")
        return Text(f"{self._text} ({', '.join(parts)})")


def clock(duration_s: float) -> str:
    """A duration as minutes and seconds, with hours where there are some: ``2:05``, ``1:00:00``."""
    minutes, seconds = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _show_nothing(text: str, share: float | None = None) -> None:
    """Stand in for the progress display where nobody would see it."""
