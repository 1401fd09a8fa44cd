"""What ``railbed compare`` does with a log: a stored result beside a measurement."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from cli.output import print_json, table


def compare_with_file(result: str, other: Path, figure: Path | None, results_root: Path, as_json: bool) -> None:
    """Put the bus bandwidth of a stored result beside that of a log of nccl-tests: a table, and a figure of both."""
    from experiments.figures.nccl_log import nccl_log_figure
    from experiments.figures.style import figure_bytes
    from experiments.files import slug, write_file
    from experiments.nccl_compare import compare_with_log
    from experiments.stored import find_result, read_result
    from workloads.importers.nccl_tests import NcclTestsLog
    from workloads.importers.registry import Options, import_files

    log = import_files([other], Options())
    if not isinstance(log, NcclTestsLog):
        raise click.UsageError(f"{other} is no log of nccl-tests; 'railbed import {other}' says what it is")
    stored = read_result(find_result(result, results_root))
    compared = compare_with_log(stored.outcomes, log, other.name)
    target = figure or stored.path / "figures" / f"against-{slug(other.stem)}.svg"
    if target.suffix not in (".svg", ".png", ".pdf"):
        raise click.UsageError(f"--figure {target} must end in .svg, .png or .pdf")
    write_file(target, figure_bytes(nccl_log_figure(compared, other.name), target.suffix[1:]))
    if as_json:
        sizes = [{**asdict(one), "ratio": one.ratio} for one in compared.sizes]
        print_json({"result": stored.path, "log": other, "sizes": sizes, "notes": compared.notes, "figure": target})
        return
    rows = [
        (
            one.fabric, one.collective, f"{one.size_bytes:,}", one.ranks, one.backend, _number(one.run_gbytes_per_s),
            _number(one.expected_gbytes_per_s), _number(one.log_gbytes_per_s), _number(one.ratio),
        )
        for one in compared.sizes
    ]  # fmt: skip
    headings = ("FABRIC", "COLLECTIVE", "SIZE (B)", "RANKS", "BACK END", "BUSBW (GB/s)", "EXPECTED", "LOG", "RATIO")
    click.echo(table(headings, rows))
    for note in compared.notes:
        click.echo(f"note: {note}")
    click.echo(f"figure: {target}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
