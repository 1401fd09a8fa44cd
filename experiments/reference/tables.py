"""The rows of reference experiments as tables to read: on a page, on the terminal, in a results folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.figures.lines import lines_figure
from experiments.figures.style import figure_bytes
from experiments.provenance import provenance
from experiments.reference.registry import find, run
from experiments.reference.row import Mark, Reference, ReferenceRow, Told
from experiments.results import COMPLETE, ResultsFolder

FILE = "reference"
FORMAT, VERSION = "railbed-reference", 1
HEADINGS = ("WHAT", "EXPECTED", "MARK", "MEASURED", "DIFFERENCE", "NOTE")
MARKS = "; ".join(f"{mark.value} {mark.meaning}" for mark in Mark)


def number_text(value: float | None) -> str:
    """A number to read with up to four digits; whole ones whole, a dash for none."""
    if value is None:
        return "-"
    if abs(value) >= 1000 or abs(value - round(value)) < 1e-9:
        return f"{value:,.0f}".replace("-0", "0") if abs(value) < 0.5 else f"{value:,.0f}"
    return f"{value:.4g}"


def cells(row: ReferenceRow) -> tuple[str, ...]:
    """A row's texts in the order of :data:`HEADINGS`."""
    unit = f" {row.unit}" if row.unit else ""
    expected, mark = "-", "-"
    if row.expected is not None:
        low, high = number_text(row.expected.low), number_text(row.expected.high)
        expected = f"{low}{unit}" if low == high else f"{low} to {high}{unit}"
        mark = row.expected.mark.value
    measured = "not shown" if row.measured is None else f"{number_text(row.measured)}{unit}"
    return row.label, expected, mark, measured, difference_text(row), row.note


def difference_text(row: ReferenceRow) -> str:
    """How far the measured value is from the expected one, in the row's unit and as a share of it."""
    if row.difference is None:
        return "-"
    if row.agrees:
        return "none" if abs(row.difference) < 1e-9 else f"rounding ({row.difference:+.2g})"
    share = "" if row.relative_difference is None else f" ({row.relative_difference:+.1%})"
    return f"{row.difference:+.3g}{share}"


def tally(rows: Sequence[ReferenceRow]) -> str:
    """How many rows agree with what was expected, in a sentence."""
    compared = [row for row in rows if row.agrees is not None]
    return f"{sum(row.agrees is True for row in compared)} of {len(compared)} expected numbers are met."


def markdown(references: Sequence[Reference], rows: Sequence[ReferenceRow]) -> str:
    """A page of one table for each experiment."""
    parts = [
        "# The papers' numbers, made again\n",
        "Made by `railbed run paper-tables`, which takes no root; `railbed run R3` makes one table. Every measured "
        "number comes from the same code that runs experiments: fabrics, routes, schedules, simulator, bills.\n",
        f"Marks: {MARKS}. A number marked U is never the paper's figure. {tally(rows)} Where one is not, the note says "
        "why.\n",
    ]
    for reference in references:
        own = [row for row in rows if row.experiment == reference.name]
        parts.append(f"## {reference.name}\n\n{reference.claim}\n\n{reference.method} {tally(own)}\n")
        lines = ["| " + " | ".join(heading.lower() for heading in HEADINGS) + " |", "| --- " * len(HEADINGS) + "|"]
        lines += ["| " + " | ".join(cells(row)) + " |" for row in own]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def figure_of(reference: Reference, rows: Sequence[ReferenceRow]) -> Figure | None:
    """The figure of an experiment that has one; None for others."""
    if reference.draw is not None:
        return reference.draw([row for row in rows if row.experiment == reference.name])
    if reference.axes is None:
        return None
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.experiment == reference.name and row.line and row.measured is not None:
            lines.setdefault(row.line, []).append((row.setting, row.measured))
    return lines_figure(*reference.axes, lines, reference.bands)


def run_and_store(
    names: Sequence[str], results_root: Path, told: Told, command: Sequence[str] = ()
) -> tuple[Path, tuple[ReferenceRow, ...]]:
    """Make the rows and store them as ``reference.json`` and ``reference.md``; gives the folder and the rows.

    Raises UnknownReferenceError, and ResultsError where nothing can be written.
    """
    references = find(names)
    rows = run(names, told)
    name = names[0] if len(names) == 1 else "-".join(reference.name for reference in references)
    with ResultsFolder(results_root, name) as folder:
        folder.write_json("provenance.json", provenance(0, command or sys.argv))
        folder.write_json(
            f"{FILE}.json",
            {
                "format": FORMAT,
                "version": VERSION,
                "experiments": {one.name: {"claim": one.claim, "method": one.method} for one in references},
                "rows": [row.to_dict() for row in rows],
            },
        )
        folder.write_text(f"{FILE}.md", markdown(references, rows))
        for reference in references:
            figure = figure_of(reference, rows)
            if figure is not None:
                for kind in ("svg", "png"):
                    folder.write_bytes(f"figures/{reference.name}.{kind}", figure_bytes(figure, kind))
        folder.write_summary(COMPLETE, name, (), 0)
    return folder.path, rows
