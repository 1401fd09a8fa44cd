"""Files that commands write beside what they print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from workloads.operations import OperationSchedule

matrix_option = click.option(
    "--matrix",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Draw who talks to whom: an .svg, .png or .pdf file.",
)
_FORMATS = (".svg", ".png", ".pdf")


def write_json_file(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file whole; raises ResultsError where that cannot be."""
    from experiments.files import write_file

    write_file(path, json.dumps(content).encode())


def check_matrix(path: Path | None) -> None:
    """Raise a usage error unless a figure can be written under that name."""
    if path is not None and path.suffix not in _FORMATS:
        raise click.UsageError(f"--matrix {path} must end in {', '.join(_FORMATS)}")


def write_matrix(path: Path, schedule: OperationSchedule, rails: int) -> None:
    """Draw the bytes from every rank to every other, in HB domains of ``rails`` GPUs."""
    from experiments.figures.matrix import matrix_figure
    from experiments.figures.style import figure_bytes
    from experiments.files import write_file

    figure = matrix_figure(schedule.bytes_by_pair(), schedule.ranks, rails, schedule.name)
    write_file(path, figure_bytes(figure, path.suffix[1:]))
