"""Small hand-made files of every kind."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from topologies.errors import RailbedError
from workloads.importers.model import Total, Workload
from workloads.importers.registry import Options, import_files


def workload(*paths: Path, **options: Any) -> Workload:
    found = import_files(paths, Options(**options))
    assert isinstance(found, Workload)
    report = found.report
    assert report.read == report.used + sum(report.set_aside.values())
    assert report.used == sum(total.calls for total in report.totals if not total.part)
    return found


def refusal(*paths: Path) -> RailbedError | None:
    """The error with which files are refused; None if they are read."""
    try:
        import_files(paths)
    except RailbedError as error:
        return error
    return None


def total(imported: Workload, kind: str, label: str | None = None, part: str = "") -> Total:
    """The total of a kind, over all labels where none is given."""
    rows = [
        row
        for row in imported.report.totals
        if row.kind.value == kind and row.part == part and (label is None or row.label == label)
    ]
    assert rows, f"no {kind} of group {label} ({part or 'used'})"
    return Total(
        rows[0].kind, label or "", part, sum(row.calls for row in rows), sum(row.size_bytes for row in rows),
        sum(row.in_bytes for row in rows), sum(row.out_bytes for row in rows), sum(row.unknown for row in rows),
        sum(row.duration_s for row in rows),
    )  # fmt: skip


def write_json(path: Path, value: object) -> Path:
    text = json.dumps(value).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def write_text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def event(category: str, name: str, start_us: float, duration_us: float = 10.0, tid: int = 1, **args: Any) -> Any:
    return {
        "ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": start_us, "dur": duration_us,
        "args": args,
    }  # fmt: skip


def nccl_kernel(
    start_us: float, collective: str, elements: int, ranks: Sequence[int], group: str = "0", duration_us: float = 10.0,
    dtype: str = "Float", **more: Any,
) -> Any:  # fmt: skip
    return event(
        "kernel", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", start_us, duration_us, tid=7,
        **{
            "Collective name": collective, "In msg nelems": elements, "Out msg nelems": elements,
            "Group size": len(ranks), "dtype": dtype, "Process Group Name": group,
            "Process Group Ranks": json.dumps(list(ranks)), **more,
        },
    )  # fmt: skip


def kineto(events: Sequence[Any], rank: int | None = 0, world: int | None = 4, **top: Any) -> dict[str, Any]:
    info = {"backend": "nccl", "rank": rank, "world_size": world}
    return {
        "schemaVersion": 1, "deviceProperties": [],
        "distributedInfo": {key: value for key, value in info.items() if value is not None},
        **top, "traceEvents": list(events),
    }  # fmt: skip
