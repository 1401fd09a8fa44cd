"""How long and how much memory it takes to import a large PyTorch profiler trace.

Writes a synthetic trace of the wanted size into a temporary folder, imports it in a process of its own, and prints the
seconds and the peak memory of that process: ``python benchmarks/import_.py [--mb 1000] [--gzip] [--json]``.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RANKS = 64
STEP_LAYERS = 96

# What the measured process runs: it prints seconds, peak resident memory in MB, operations and records.
MEASURED = """
import json, resource, sys, time
from pathlib import Path
from workloads.importers.registry import import_files
started = time.perf_counter()
shares = []
found = import_files([Path(sys.argv[1])], progress=shares.append)
seconds = time.perf_counter() - started
peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"import_s": round(seconds, 2), "peak_mb": round(peak_mb), "operations": len(found.operations),
                  "events": found.report.facts["events"], "progress_steps": len(shares)}))
"""


def events(seed: int) -> Iterator[dict[str, Any]]:
    """Events without end, in the mix of a real trace: operators, Python calls, launches, kernels and collectives."""
    rng = random.Random(seed)
    ts = 1_000_000.0
    for number in itertools.count():
        tid, external = 7001, number * 8
        ts += rng.uniform(5, 50)
        yield {
            "ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 7000, "tid": tid, "ts": ts, "dur": 40.5,
            "args": {
                "External id": external, "Record function id": 0, "Ev Idx": number, "Input type": ["c10::BFloat16"] * 3,
                "Input Dims": [[4096, 8192], [8192, 8192], [8192]], "Concrete Inputs": ["", "", ""],
                "Input Strides": [[8192, 1], [8192, 1], [1]],
            },
        }  # fmt: skip
        yield {
            "ph": "X", "cat": "python_function", "name": f"model/layers.py({number % 900}): forward", "pid": 7000,
            "tid": tid, "ts": ts, "dur": 52.25, "args": {"Python parent id": number, "Python id": number + 1},
        }  # fmt: skip
        is_collective = number % STEP_LAYERS % 4 == 0
        yield {
            "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "pid": 7000, "tid": tid, "ts": ts + 20,
            "dur": 6.1, "args": {"External id": external, "cbid": 430, "correlation": external},
        }  # fmt: skip
        args: dict[str, Any] = {
            "External id": external, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": external,
            "registers per thread": 168, "shared memory": 213_248, "blocks per SM": 1.0, "warps per SM": 12.0,
            "grid": [132, 1, 1], "block": [384, 1, 1], "est. achieved occupancy %": 19,
        }  # fmt: skip
        name = "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNN"
        if is_collective:
            name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            args |= {
                "Collective name": "allreduce", "In msg nelems": 33_554_432, "Out msg nelems": 33_554_432,
                "Group size": 8, "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]",
                "Process Group Name": "3", "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
            }  # fmt: skip
        yield {
            "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts + 30, "dur": 4.0, "args": args,
        }  # fmt: skip
        yield {"ph": "s", "id": external, "pid": 7000, "tid": tid, "ts": ts + 20, "cat": "ac2g", "name": "ac2g"}
        yield {"ph": "f", "id": external, "pid": 0, "tid": 7, "ts": ts + 30, "cat": "ac2g", "name": "ac2g", "bp": "e"}


def write_trace(path: Path, size_mb: float, zipped: bool) -> float:
    """Write a trace of about ``size_mb`` MB of text and return the exact size in MB."""
    header = {
        "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "synthetic"}],
        "distributedInfo": {
            "backend": "nccl", "rank": 0, "world_size": RANKS,
            "pg_config": [{"pg_name": "3", "pg_size": 8, "ranks": list(range(8))}],
        },
    }  # fmt: skip
    wanted = int(size_mb * 1e6)
    with gzip.open(path, "wb", 1) if zipped else path.open("wb") as file:
        written = file.write((json.dumps(header)[:-1] + ', "traceEvents": [\n').encode())
        source = events(seed=1)
        separator = b""
        while written < wanted:
            block = ",\n".join(json.dumps(event) for event in itertools.islice(source, 6000)).encode()
            written += file.write(separator + block)
            separator = b",\n"
        written += file.write(b"\n]}\n")
    return written / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=1000.0, help="size of the trace in MB of text (default 1000)")
    parser.add_argument("--gzip", action="store_true", help="compress the trace")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="railbed-import-") as folder:
        path = Path(folder) / ("trace.json.gz" if options.gzip else "trace.json")
        size_mb = write_trace(path, options.mb, options.gzip)
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
        )
    result = {"size_mb": round(size_mb, 1), "gzip": options.gzip, **json.loads(done.stdout)}
    result["mb_per_s"] = round(result["size_mb"] / result["import_s"], 1)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:>16}  {value}")


if __name__ == "__main__":
    main()
