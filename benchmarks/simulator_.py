"""How fast the simulator is, against SimGrid on the same flows in the same run, up to the size that it finishes.

``python benchmarks/simulator_.py [--case NAME] [--gpus N] [--peer-s SECONDS] [--plot FILE] [--json]``. Every
measurement is a process of its own, so that its peak memory is its own. ``solve_s`` is the time of the whole
simulation, from the schedule to the record of every transfer; fabric, schedule and the compilation of the inner loops
(once a machine, kept on disk) come before. ``cpu_s`` is the processor time of the same, which other
programs disturb less. ``peer_s`` is the time SimGrid takes for its events alone, on the largest size of the case that
it finishes in ``--peer-s`` seconds; ``ratio`` is that over the simulator's time at the same size.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from simulator.fluid import simulate
from simulator.operations import simulate_operations
from simulator.paths import NO_LINK, link_positions, pair_links
from simulator.routes import controller_router
from topologies.builders import build
from topologies.model import NO_FAILURES, Fabric, FabricKind, FabricSpec
from topologies.scale import Scale
from workloads.algorithms import ALL_TO_ALL
from workloads.collectives import all_ranks, all_to_all
from workloads.families import Family
from workloads.models import find_model
from workloads.operations import Call, Operation, OperationSchedule
from workloads.schedule import Schedule, Tag, Transfer
from workloads.training import Plan, training_iteration

PEER = Path(__file__).resolve().parent / "peers" / "simgrid_flows.py"
PEER_PYTHON = "/usr/bin/python3"
RAILS = 8
REAL = Scale(1, 1)
BLOCK_BYTES = 10**6
RANDOM_FLOWS_PER_GPU = 64
MERGE = 0.001
EXPERT_GROUP = 64

CASES: dict[str, tuple[str, int, tuple[int, ...]]] = {
    "all-to-all": ("all-to-all on rail-only, all flows at once", 1024, (64, 128, 256)),
    "phased": ("all-to-all on rail-only, in shifted phases", 1024, ()),
    "hashed": ("all-to-all on hashed rail-optimized, at once, ends within 0.1 % merged", 1024, (64, 128)),
    "random": ("random pairs on rail-only, 64 flows of random sizes a GPU", 1024, (64, 128)),
    "iteration": ("one iteration of GPT-3 175B on rail-only, TP 8, PP 8, 16 micro-batches", 32768, ()),
    "experts": ("all-to-all of expert groups of 64 on rail-only", 32768, ()),
    "whole": ("one all-to-all of all GPUs on rail-only, by the turn of its domains", 32768, ()),
}
"""By case: what it is, its size, and the sizes to try with SimGrid."""

GROWTH = (128, 512, 2048, 8192, 32768)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def at_once(gpus: int) -> Schedule:
    tag = Tag(ALL_TO_ALL, ALL_TO_ALL, "all", 0)
    pairs = ((src, dst) for src in range(gpus) for dst in range(gpus) if src != dst)
    transfers = tuple(Transfer(number, *pair, BLOCK_BYTES, (), tag) for number, pair in enumerate(pairs))
    return Schedule(ALL_TO_ALL, ALL_TO_ALL, "at once", gpus, gpus, BLOCK_BYTES * gpus, "", 0, transfers)


def phased(gpus: int) -> Schedule:
    return all_to_all({"all": tuple(range(gpus))}, BLOCK_BYTES * gpus, gpus)


def random_pairs(gpus: int) -> Schedule:
    rng = np.random.default_rng(1)
    count = RANDOM_FLOWS_PER_GPU * gpus
    src = rng.integers(0, gpus, count)
    dst = (src + rng.integers(1, gpus, count)) % gpus
    sizes = rng.integers(1 << 20, 1 << 26, count)
    tag = Tag("send-recv", "send-recv", "all", 0)
    rows = enumerate(zip(src.tolist(), dst.tolist(), sizes.tolist(), strict=True))
    transfers = tuple(Transfer(number, one, other, size, (), tag) for number, (one, other, size) in rows)
    return Schedule("random", "send-recv", "direct", gpus, 2, 1, "", 0, transfers)


def iteration(gpus: int) -> OperationSchedule:
    plan = Plan(tp=8, pp=8, dp=gpus // 64, micro_batches=16, sequence_parallel=True)
    return training_iteration(find_model("gpt3-175b"), plan, ranks=gpus, domain_size=RAILS)


def exchange(gpus: int, group: int) -> OperationSchedule:
    family = Family("expert", ((group, 1),), ((gpus // group, group),))
    call = Call(family, ALL_TO_ALL, BLOCK_BYTES * group)
    return OperationSchedule("exchange", gpus, (Operation(0, "exchange", (call,)),))


SCHEDULES: dict[str, Callable[[int], Schedule]] = {
    "all-to-all": at_once, "phased": phased, "hashed": at_once, "random": random_pairs
}  # fmt: skip
OPERATIONS: dict[str, Callable[[int], OperationSchedule]] = {
    "iteration": iteration,
    "experts": lambda gpus: exchange(gpus, EXPERT_GROUP),
    "whole": lambda gpus: exchange(gpus, gpus),
}


def fabric_of(case: str, gpus: int) -> Fabric:
    kind = FabricKind.RAIL_OPTIMIZED if case == "hashed" else FabricKind.RAIL_ONLY
    return build(FabricSpec(kind, gpus // RAILS, RAILS))


def measure(case: str, gpus: int, fold: bool, merge: float) -> dict[str, Any]:
    """One simulation, timed in this process; a small one before it loads the compiled loops."""
    small = fabric_of(case, 16)
    simulate(small, all_to_all(all_ranks(small), 16 * 16, 16), controller_router(small), scale=REAL, fold=fold)
    fabric = fabric_of(case, gpus)
    if case in OPERATIONS:
        operations = OPERATIONS[case](gpus)
        start, busy = time.perf_counter(), time.process_time()
        found = simulate_operations(fabric, operations, controller_router(fabric), scale=REAL, goodput=1.0)
        solve_s, cpu_s = time.perf_counter() - start, time.process_time() - busy
        completion_s, flows = found.completion_s, found.transfers
    else:
        schedule = SCHEDULES[case](gpus)
        start, busy = time.perf_counter(), time.process_time()
        record = simulate(
            fabric, schedule, controller_router(fabric), scale=REAL, goodput=1.0, fold=fold, merge=merge
        )  # fmt: skip
        solve_s, cpu_s = time.perf_counter() - start, time.process_time() - busy
        completion_s = max(transfer.end_s or 0.0 for transfer in record.transfers)
        flows = len(record.transfers)
    return {"gpus": gpus, "flows": flows, "solve_s": solve_s, "cpu_s": cpu_s, "peak_mb": peak_mb(),
            "completion_s": completion_s}  # fmt: skip


def own_process(case: str, gpus: int, fold: bool, merge: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--case", case, "--gpus", str(gpus), "--merge", str(merge), "--measure"]
    done = subprocess.run([*command, *([] if fold else ["--no-fold"])], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def has_peer() -> bool:
    """Whether the system's Python has SimGrid."""
    if not Path(PEER_PYTHON).exists():
        return False
    return not subprocess.run([PEER_PYTHON, "-c", "import simgrid"], capture_output=True, check=False).returncode


def peer(case: str, gpus: int, limit_s: float) -> dict[str, Any] | None:
    """SimGrid on the same flows; None if it is not ready in time."""
    fabric, schedule = fabric_of(case, gpus), SCHEDULES[case](gpus)
    src, dst = (np.array([getattr(one, end) for one in schedule.transfers]) for end in ("src", "dst"))
    rows = pair_links(fabric, link_positions(fabric), controller_router(fabric)(NO_FAILURES), src, dst)
    sizes = [transfer.size_bytes for transfer in schedule.transfers]
    flows = [[0.0, size, row[row != NO_LINK].tolist()] for size, row in zip(sizes, rows, strict=True)]
    capacity = [link.rate_mbps * 1e6 / 8 for link in fabric.links for _ in (0, 1)]
    try:
        done = subprocess.run([PEER_PYTHON, str(PEER)], input=json.dumps({"capacity": capacity, "flows": flows}),
                              capture_output=True, text=True, check=True, timeout=limit_s)  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    found = json.loads(done.stdout.splitlines()[-1])
    return {"solve_s": found["solve_s"], "completion_s": max(found["end_s"])}


def run_case(case: str, gpus: int, peer_s: float) -> dict[str, Any]:
    text, _, peer_sizes = CASES[case]
    merge = MERGE if case == "hashed" else 0.0
    print(f"\n{text}")
    result: dict[str, Any] = {"case": case}
    for fold in (True,) if case in OPERATIONS else (True, False):
        row = own_process(case, gpus, fold, merge)
        name = "classes of groups" if case in OPERATIONS else f"folding {'on' if fold else 'off'}"
        print(f"  {gpus:>6} GPUs {row['flows']:>13,} flows  {name:<17} {row['solve_s']:8.2f} s ({row['cpu_s']:.2f} s of"
              f" one core) {row['peak_mb']:7.0f} MB   completion {row['completion_s']:.6g} s", flush=True)  # fmt: skip
        key = "folded" if fold and case not in OPERATIONS else "plain"
        result[key] = row
    best = result.get("plain", result.get("folded"))
    result.update(solve_s=best["solve_s"], peak_mb=best["peak_mb"], peer_s=None, ratio=None)
    if peer_sizes and not has_peer():
        print(f"  {PEER_PYTHON} has no SimGrid (Debian: python3-simgrid): nothing to compare with")
        peer_sizes = ()
    for size in peer_sizes:
        if size > gpus:
            break
        theirs = peer(case, size, peer_s)
        if theirs is None:
            print(f"  {size:>6} GPUs: SimGrid takes longer than {peer_s:g} s")
            break
        ours = own_process(case, size, False, 0.0)
        ratio = theirs["solve_s"] / ours["solve_s"]
        apart = abs(theirs["completion_s"] / ours["completion_s"] - 1)
        print(f"  {size:>6} GPUs {ours['flows']:>13,} flows  SimGrid {theirs['solve_s']:8.2f} s, the simulator "
              f"{ours['solve_s']:.2f} s: {ratio:.1f} times; completions {apart:.1e} apart", flush=True)  # fmt: skip
        result.update(peer_gpus=size, peer_s=theirs["solve_s"], ratio=ratio)
    return result


def growth(file: str | None) -> list[dict[str, Any]]:
    """One iteration, expert groups and one whole exchange from 128 to 32,768 GPUs."""
    rows = [{"case": case, **own_process(case, gpus, True, 0.0)} for case in OPERATIONS for gpus in GROWTH]
    for row in rows:
        print(f"  {row['case']:<10} {row['gpus']:>6} GPUs {row['flows']:>14,} flows {row['solve_s']:8.2f} s "
              f"{row['peak_mb']:7.0f} MB")  # fmt: skip
    if file:
        draw(rows, file)
    return rows


def draw(rows: Sequence[dict[str, Any]], file: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    names = {"iteration": "GPT-3 175B, one iteration", "experts": "all-to-all in groups of 64",
             "whole": "all-to-all of all GPUs"}  # fmt: skip
    for marker, (case, name) in zip("osD", names.items(), strict=True):
        own = [row for row in rows if row["case"] == case]
        for axis, key in zip(axes, ("solve_s", "peak_mb"), strict=True):
            axis.plot([row["gpus"] for row in own], [row[key] for row in own], marker=marker, label=name)
    for axis, label in zip(axes, ("time to simulate (s)", "peak memory (MB)"), strict=True):
        axis.set(xscale="log", yscale="log", xlabel="GPUs", ylabel=label, xticks=GROWTH, xticklabels=GROWTH)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[1].set(yscale="linear", ylim=(0, None))
    axes[0].legend(fontsize=8)
    figure.savefig(file, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=[*CASES, "growth", "all"], default="all", help="what to measure")
    parser.add_argument("--gpus", type=int, help="size of the case, a multiple of 64 (default: the case's own)")
    parser.add_argument("--peer-s", type=float, default=60.0, help="longest time for SimGrid at a size (default 60)")
    parser.add_argument("--plot", help="file for the figure of the case growth")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on the last line")
    parser.add_argument("--measure", action="store_true", help="measure once, in this process")
    parser.add_argument("--no-fold", action="store_true", help="with --measure: without folding")
    parser.add_argument("--merge", type=float, default=0.0, help="with --measure: share within which ends are merged")
    options = parser.parse_args()
    if options.gpus is not None and (options.gpus < 64 or options.gpus % 64):
        parser.error(f"--gpus is {options.gpus}; it must be a multiple of 64")
    if options.measure:
        print(json.dumps(measure(options.case, options.gpus, not options.no_fold, options.merge)))
        return
    names = list(CASES) if options.case == "all" else [options.case]
    results: Any
    if options.case == "growth":
        results = {"case": "growth", "rows": growth(options.plot)}
    else:
        found = [run_case(name, options.gpus or CASES[name][1], options.peer_s) for name in names]
        results = found[0] if options.case != "all" else {row["case"]: row for row in found}
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
