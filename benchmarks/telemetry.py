"""What telemetry costs a PyTorch job: the same job on a live fabric with and without it, in turn.

``python benchmarks/telemetry.py [--domains 2] [--rails 2] [--bytes 200000] [--seconds 4] [--pairs 6] [--json]`` (root;
PyTorch for ``--python``, default /usr/bin/python3). Each run makes all-reduces for ``--seconds`` and tells the median
of their times at rank 0; the first of a pair is with telemetry in every second pair. With ``--json`` the last line has
``cost_share`` (the median over the pairs of time with over time without, less 1) and the same for tiny all-reduces.
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
from emulator.programs import Ending, Launch, run_programs
from emulator.rank_environment import rank_environment
from emulator.supervise import Care, run_supervised
from topologies.model import FabricKind, FabricSpec

NAME = "bench-tell"
TINY_BYTES = 64
PROGRAM = """
import statistics, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
for size_bytes in map(int, sys.argv[2:]):
    tensor = torch.ones(size_bytes // 4)
    for _ in range(3):
        dist.all_reduce(tensor)
    # All ranks make the same number of all-reduces: as many as rank 0 finds to fit.
    started_s = time.perf_counter()
    dist.all_reduce(tensor)
    count = torch.tensor([max(5, int(float(sys.argv[1]) / (time.perf_counter() - started_s)))])
    dist.broadcast(count, 0)
    times_s = []
    for _ in range(min(int(count), 2000)):
        started_s = time.perf_counter()
        dist.all_reduce(tensor)
        times_s.append(time.perf_counter() - started_s)
    if dist.get_rank() == 0:
        print(size_bytes, statistics.median(times_s), statistics.fmean(times_s), len(times_s), flush=True)
"""


def run(running: manager.RunningFabric, words: tuple[str, ...], folder: Path | None) -> dict[int, tuple[float, float]]:
    """(median, mean) seconds of an all-reduce by its bytes, with telemetry into ``folder`` or without any."""
    told: list[bytes] = []
    gpus = running.fabric.gpus

    def sink(_rank: int, _is_error: bool, line: bytes) -> None:
        told.append(line)

    def launches(_gpus: Any = None, _restarts: int = 0) -> list[Launch]:
        return [Launch(gpu.id, words, rank_environment(gpus, rank, os.environ)) for rank, gpu in enumerate(gpus)]

    ending: Ending
    if folder is None:
        ending = run_programs(running, launches(), sink, timeout_s=100)
    else:
        ending = run_supervised(running, launches, Care(gpus, folder=folder), sink, lambda _: None, timeout_s=100)
    if ending.first_failure:
        sys.exit(f"PyTorch failed: {b''.join(told[-3:]).decode()}")
    for note in ending.notes:
        print(f"  {note}", flush=True)
    lines = [line.split() for line in told]
    return {int(size): (float(median), float(mean)) for size, median, mean, _ in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--domains", type=int, default=2, help="HB domains (default 2)")
    parser.add_argument("--rails", type=int, default=2, help="GPUs of a domain (default 2)")
    parser.add_argument("--bytes", type=int, default=200_000, help="bytes of the buffer (default 200,000)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of all-reduces in a run (default 4)")
    parser.add_argument("--pairs", type=int, default=6, help="runs with and without (default 6)")
    parser.add_argument("--python", default="/usr/bin/python3", help="interpreter with PyTorch")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on the last line")
    options = parser.parse_args()
    running = manager.up(FabricSpec(FabricKind.RAIL_ONLY, options.domains, options.rails), name=NAME)
    pairs: list[dict[bool, dict[int, tuple[float, float]]]] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "job.py"
            script.write_text(PROGRAM)
            words = (options.python, str(script), str(options.seconds), str(options.bytes), str(TINY_BYTES))
            for number in range(options.pairs):
                pair = {}
                for telling in (True, False) if number % 2 else (False, True):
                    pair[telling] = run(running, words, Path(folder) / "told" if telling else None)
                pairs.append(pair)
                shown = "   ".join(
                    f"{size} bytes: {pair[False][size][0] * 1e3:.3f} / {pair[True][size][0] * 1e3:.3f} ms"
                    for size in pair[True]
                )
                print(f"pair {number + 1}, without / with: {shown}", flush=True)
    finally:
        manager.down(NAME)
    found: dict[str, Any] = {"ranks": options.domains * options.rails, "pairs": options.pairs}
    for name, size in (("", options.bytes), ("tiny_", TINY_BYTES)):
        shares = [pair[True][size][0] / pair[False][size][0] - 1 for pair in pairs]
        extra_s = [pair[True][size][0] - pair[False][size][0] for pair in pairs]
        found |= {
            f"{name}bytes": size,
            f"{name}without_s": statistics.median(pair[False][size][0] for pair in pairs),
            f"{name}cost_share": statistics.median(shares),
            f"{name}cost_s": statistics.median(extra_s),
            f"{name}cost_shares": [round(share, 5) for share in shares],
        }
        print(
            f"{size} bytes: {found[f'{name}without_s'] * 1e3:.3f} ms without; with telemetry "
            f"{found[f'{name}cost_share']:+.2%} ({found[f'{name}cost_s'] * 1e6:+.0f} us), median of {len(pairs)} pairs"
        )
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
