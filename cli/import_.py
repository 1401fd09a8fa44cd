"""``railbed import``: read a trace, a workload, a log or a fabric that another tool wrote."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.files import check_matrix, matrix_option, write_json_file, write_matrix
from cli.output import json_option, print_json, progress, table

if TYPE_CHECKING:
    from topologies.importers.reading import FabricReading
    from workloads.importers.expand import Expansion
    from workloads.importers.model import ImportReport, Workload
    from workloads.importers.nccl_tests import NcclTestsLog

_SHOWN_LINES = 12


def _size(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    from experiments.units import parse_size_bytes

    try:
        return None if value is None else parse_size_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("import")
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the schedule (of a fabric: its description) to this JSON file.",
)
@click.option(
    "--gpus",
    type=click.IntRange(min=2),
    help="GPUs of the fabric it is for.  [default: as many as the files have ranks]",
)
@click.option("--strict", is_flag=True, help="Fail where a rank, a group or a size would have to be assumed.")
@click.option(
    "--unknown-size", metavar="SIZE", callback=_size, help="Size (64MiB) of operations whose size is not in the files."
)
@matrix_option
@click.option(
    "--domain-size",
    default=8,
    show_default=True,
    type=click.IntRange(min=1),
    help="GPUs of an HB domain, for --matrix.",
)
@click.option("--any-count", is_flag=True, help="Read a workload whose stated number of rows is wrong.")
@json_option
def command(
    files: tuple[Path, ...],
    output: Path | None,
    gpus: int | None,
    strict: bool,
    unknown_size: int | None,
    matrix: Path | None,
    domain_size: int,
    any_count: bool,
    as_json: bool,
) -> None:
    """Read FILE..., find out what it is by its content, and say what it holds.

    Reads PyTorch profiler (Kineto) and execution traces, Chakra traces, SimAI and AICB workloads, NCCL debug and
    nccl-tests logs, ibnetdiscover dumps, SimAI topologies, nvidia-smi topo -m and NCCL topology XML; gzip or not. Give
    the files of all ranks of a run together.
    """
    from topologies.importers.errors import ImportFileError
    from topologies.importers.reading import FabricReading
    from workloads.importers.model import Workload
    from workloads.importers.registry import Options, import_files
    from workloads.operations_file import operations_to_dict

    check_matrix(matrix)
    with progress() as show:
        found = import_files(files, Options(gpus, strict, any_count), lambda share: show("reading", share))
        if isinstance(found, Workload):
            expansion = None
            if output is not None or matrix is not None:
                show("making the schedule")
                expansion = _expanded(found, gpus, unknown_size, strict)
            if output is not None and expansion is not None:
                write_json_file(output, operations_to_dict(expansion.operations))
            if matrix is not None and expansion is not None:
                write_matrix(matrix, expansion.operations, domain_size)
        elif matrix is not None:
            raise ImportFileError(f"{files[0].name} is no workload, so there is nobody to draw in {matrix}")
        elif isinstance(found, FabricReading):
            if output is not None:
                if found.spec is None:
                    raise ImportFileError(
                        f"{found.file} does not tell enough for a fabric that can be built, so {output} is not written"
                    )
                write_json_file(output, found.spec.to_dict())
        elif output is not None:
            raise ImportFileError(
                f"{files[0].name} is an nccl-tests log, a measurement and no workload, so there is no schedule to write"
            )
    if isinstance(found, Workload):
        _show_workload(found, expansion, output, as_json)
    elif isinstance(found, FabricReading):
        _show_fabric(found, output, as_json)
    else:
        _show_log(files[0].name, found, as_json)


def _expanded(workload: Workload, gpus: int | None, unknown_size: int | None, strict: bool) -> Expansion:
    from workloads.importers.errors import StrictImportError
    from workloads.importers.expand import to_schedule

    expansion = to_schedule(workload, gpus=gpus, unknown_size_bytes=unknown_size)
    if strict and expansion.missing:
        missing = ", ".join(f"{count} x {reason}" for reason, count in expansion.missing.items())
        raise StrictImportError(f"--strict: the schedule would lack operations ({missing}); leave --strict out")
    return expansion


def _show_workload(workload: Workload, expansion: Expansion | None, output: Path | None, as_json: bool) -> None:
    report = workload.report
    if as_json:
        written = None
        if expansion is not None:
            written = {
                "file": output,
                "operations": expansion.used,
                "transfers": expansion.operations.transfer_count,
                "total_bytes": expansion.operations.sent_bytes,
                "left_out": expansion.left_out,
                "notes": expansion.notes,
            }
        print_json({**report.to_dict(), "operations": len(workload.operations), "schedule": written})
        return
    click.echo(_heading(report.title, report.files))
    ranks = "not in the file; give --gpus N" if report.ranks is None else str(report.ranks)
    known = f" ({report.known_ranks} in the files)" if report.ranks and report.known_ranks < report.ranks else ""
    click.echo(f"ranks: {ranks}{known}")
    click.echo(f"records: {report.read} read, {report.used} used, {report.read - report.used} set aside")
    for reason, count in report.set_aside.items():
        click.echo(f"  {count:>8} x {reason}")
    click.echo(f"operations: {len(workload.operations)}\n")
    click.echo(_totals(report))
    for name, value in report.facts.items():
        click.echo(f"{name.replace('_', ' ')}: {_short(value)}")
    _listed("assumed", report.rules)
    _listed("warning", report.warnings)
    if expansion is not None:
        made = expansion.operations
        click.echo(
            f"\nschedule: {output or 'not written'}: {made.transfer_count} transfers of {expansion.used} operations, "
            f"{_bytes(made.sent_bytes)}"
        )
        for reason, count in expansion.left_out.items():
            click.echo(f"  not in it: {count} x {reason}")
        _listed("note", expansion.notes)


def _totals(report: ImportReport) -> str:
    rows = [
        (
            total.kind.value,
            total.label or "-",
            total.calls,
            _bytes(total.size_bytes) if total.unknown < total.calls else "unknown",
            total.unknown or "-",
            f"{total.duration_s * 1e3:.3f}" if total.duration_s else "-",
            total.part or "used",
        )
        for total in report.totals
    ]
    return table(("OPERATION", "GROUP", "CALLS", "SIZE (sum)", "SIZE UNKNOWN", "TIME (ms)", ""), rows)


def _show_fabric(reading: FabricReading, output: Path | None, as_json: bool) -> None:
    if as_json:
        print_json({**reading.to_dict(), "written": output})
        return
    click.echo(_heading(reading.title, (reading.file,)))
    click.echo(f"pattern: {reading.pattern.value}: {reading.reason}")
    click.echo(", ".join(f"{count} {name.replace('_', ' ')}" for name, count in reading.counts.items()))
    for rail in list(reading.rails.items())[:_SHOWN_LINES]:
        click.echo(f"  {rail[0]}: {rail[1]}")
    if len(reading.rails) > _SHOWN_LINES:
        click.echo(f"  and {len(reading.rails) - _SHOWN_LINES} more (--json lists all)")
    _listed("cable that breaks the pattern", reading.odd_cables)
    _listed("warning", reading.warnings)
    if reading.preset:
        click.echo(f"nearest preset: {reading.preset}")
    if reading.spec is not None:
        fields = dataclasses.asdict(reading.spec)
        shown = ", ".join(f"{name} {_plain(value)}" for name, value in fields.items() if value is not None)
        click.echo(f"nearest fabric: {shown}")
        _listed("assumed", reading.assumed)
    if output is not None:
        click.echo(f"fabric: {output}")


def _show_log(name: str, log: NcclTestsLog, as_json: bool) -> None:
    if as_json:
        print_json({"kind": "nccl-tests", "files": [name], **dataclasses.asdict(log)})
        return
    click.echo(_heading("nccl-tests log", (name,)))
    click.echo("a measurement to compare runs with, no workload")
    ranks = f"{log.ranks} (from {log.ranks_from})" if log.ranks else "unknown"
    click.echo(f"ranks: {ranks}; collective, as busbw/algbw tells: {log.collective or 'unknown'}")
    click.echo(f"rows: {len(log.rows)}; lines that are no part of the table: {log.other_lines}\n")
    rows = [
        (row.size_bytes, row.count, row.dtype, *(cell for timing in (row.out_of_place, row.in_place)
         for cell in ((f"{timing.time_s * 1e6:.2f}", timing.algbw_gbytes_per_s, timing.busbw_gbytes_per_s)
                      if timing else ("-", "-", "-"))))
        for row in log.rows
    ]  # fmt: skip
    timing = ("TIME (us)", "ALGBW (GB/s)", "BUSBW (GB/s)")
    in_place = tuple(f"IN-PLACE {heading}" for heading in timing)
    click.echo(table(("SIZE (B)", "COUNT", "TYPE", *timing, *in_place), rows))
    if log.average_busbw_gbytes_per_s is not None:
        click.echo(f"\naverage busbw: {log.average_busbw_gbytes_per_s:g} GB/s")


def _heading(title: str, files: tuple[str, ...]) -> str:
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"{title}: {files[0]}{more}"


def _listed(word: str, lines: tuple[str, ...]) -> None:
    for line in lines:
        click.echo(f"{word}: {line}")


def _bytes(size_bytes: int) -> str:
    from experiments.units import size_text

    return f"{size_bytes:,} B" + (f" ({size_text(size_bytes)})" if size_bytes >= 1000 else "")


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {one:g}" if isinstance(one, float) else f"{key} {one}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(str(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(getattr(value, "value", value))
