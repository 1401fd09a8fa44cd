"""An all-reduce of real PyTorch (gloo) on live fabrics, beside the same all-reduce replayed.

``python benchmarks/program.py [--kinds rail-only,spine-leaf] [--domains 2] [--rails 2] [--bytes 4000000] [--repeats 5]
[--json]`` (root; PyTorch for ``--python``, default /usr/bin/python3). gloo's ring goes by rank, so the schedule is the
ring over the ranks in that order, of the same number of bytes. Medians over the repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from emulator import manager
from emulator.engines import Engine
from emulator.programs import Launch, run_programs
from emulator.rank_environment import rank_environment
from experiments.outcome import completion_s
from topologies.model import FabricSpec, fabric_kind
from workloads.algorithms import BULK, STEPWISE
from workloads.collectives import collective

NAME = "bench-prog"
REPLAYED = {"iperf3": (BULK, Engine.IPERF3), "agent": (BULK, Engine.AGENT), "stepwise": (STEPWISE, Engine.AGENT)}
"""Forms of the schedule and engines that replay it."""
PROGRAM = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
tensor = torch.ones(int(sys.argv[1]) // 4)
dist.all_reduce(tensor)
for _ in range(int(sys.argv[2])):
    dist.barrier()
    started_s = time.perf_counter()
    dist.all_reduce(tensor)
    took = torch.tensor([time.perf_counter() - started_s], dtype=torch.float64)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        print(took.item(), flush=True)
"""


def pytorch_s(running: manager.RunningFabric, python: str, size_bytes: int, repeats: int) -> tuple[list[float], str]:
    """Durations of the slowest rank of every all-reduce but the first, and what was said of the machine's load."""
    told: list[bytes] = []
    errors: list[bytes] = []
    fabric = running.fabric
    ranks = len(fabric.gpus)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(PROGRAM)
        script.flush()
        words = (python, script.name, str(size_bytes), str(repeats))
        launches = [
            Launch(gpu.id, words, rank_environment(fabric.gpus[:ranks], rank, os.environ))
            for rank, gpu in enumerate(fabric.gpus)
        ]
        ending = run_programs(
            running, launches, lambda _, is_error, line: (errors if is_error else told).append(line), timeout_s=120
        )
    if ending.first_failure:
        sys.exit(f"PyTorch failed: {b''.join(errors[-3:]).decode()}")
    return [float(line) for line in told], "; ".join(ending.notes)


def measure(spec: FabricSpec, options: argparse.Namespace) -> dict[str, Any]:
    running = manager.up(spec, name=NAME)
    try:
        ranks = len(running.fabric.gpus)
        real_bytes = round(options.bytes * running.scale.rate / running.scale.time)
        row: dict[str, Any] = {"fabric": spec.kind.value, "ranks": ranks, "size_bytes": options.bytes}
        times_s, row["note"] = pytorch_s(running, options.python, options.bytes, options.repeats)
        row["pytorch_s"] = statistics.median(times_s)
        row["pytorch_all_s"] = [round(one, 3) for one in times_s]
        for name, (form, engine) in REPLAYED.items():
            schedule = collective("all-reduce", {"all": range(ranks)}, real_bytes, ranks, form=form)
            found = [completion_s(running.run(schedule, engine=engine)) for _ in range(options.repeats)]
            row[f"{name}_s"] = statistics.median([one for one in found if one is not None])
            row[f"{name}_ratio"] = row["pytorch_s"] / row[f"{name}_s"]
        return row
    finally:
        manager.down(NAME)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default="rail-only,spine-leaf", help="fabrics (default rail-only,spine-leaf)")
    parser.add_argument("--domains", type=int, default=2, help="HB domains (default 2)")
    parser.add_argument("--rails", type=int, default=2, help="GPUs of a domain (default 2)")
    parser.add_argument("--bytes", type=int, default=4_000_000, help="bytes of the buffer (default 4,000,000)")
    parser.add_argument("--repeats", type=int, default=5, help="all-reduces of each kind (default 5)")
    parser.add_argument("--python", default="/usr/bin/python3", help="interpreter with PyTorch")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on the last line")
    options = parser.parse_args()
    rows = []
    print("fabric      ranks  PyTorch (s)   iperf3 (s)  ratio    agent (s)  ratio stepwise (s)  ratio")
    for kind in options.kinds.split(","):
        row = measure(FabricSpec(fabric_kind(kind), options.domains, options.rails), options)
        rows.append(row)
        cells = "".join(f"{row[f'{name}_s']:>13.3f} {row[f'{name}_ratio']:>6.2f}" for name in REPLAYED)
        print(f"{row['fabric']:<11} {row['ranks']:>5} {row['pytorch_s']:>12.3f} {cells}  {row['note']}", flush=True)
    if options.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
