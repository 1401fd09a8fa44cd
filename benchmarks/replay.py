"""How soon the resident agent starts a transfer, how many it makes a second, and how far it agrees with iperf3.

Start latency: from the arrival of the last byte that a transfer waits for (stamped by the receiver's kernel) to its own
first byte (given to the sender's TCP), over all steps of a ring all-reduce. Rate: small messages, one after the other
between every ordered pair of GPUs at the same time. Agreement: one ring per rail, so that every NIC is full.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from typing import Any

from emulator import manager
from emulator.engines import Engine
from experiments.outcome import completion_s
from simulator.fluid import simulate
from simulator.routes import controller_router
from topologies.model import FabricSpec, fabric_kind
from workloads.algorithms import ALL_REDUCE, STEPWISE
from workloads.collectives import all_ranks, collective, rail_rings, ring_all_reduce
from workloads.records import RunRecord
from workloads.schedule import Schedule, Tag, Transfer

SHAPES = {16: (4, 4), 64: (8, 8)}
NAME = "bench-replay"


def start_latencies_s(record: RunRecord) -> list[float]:
    """For every transfer that waits for others: from the end of the last of them to its own start."""
    made = {one.transfer_id: one for one in record.transfers}
    found = []
    for planned in record.schedule.transfers:
        start_s = made[planned.id].start_s
        ends = [made[before].end_s for before in planned.after]
        if ends and start_s is not None:
            found.append(start_s - max(end for end in ends if end is not None))
    return found


def chains(ranks: int, messages: int, size_bytes: int) -> Schedule:
    """``messages`` in a row from every rank to every other, all pairs at the same time."""
    tag = Tag("message", "send-recv", "pairs", 0)
    pairs = [(src, dst) for src in range(ranks) for dst in range(ranks) if src != dst]
    transfers = tuple(
        Transfer(
            row * len(pairs) + column, src, dst, size_bytes, ((row - 1) * len(pairs) + column,) if row else (), tag
        )
        for row in range(messages)
        for column, (src, dst) in enumerate(pairs)
    )
    return Schedule("chains", "send-recv", "chains", ranks, 2, size_bytes, "one message", 0, transfers)


def span_s(record: RunRecord) -> float:
    """From the first byte sent to the last one received."""
    if not record.complete:
        raise SystemExit(f"not every transfer was made: {next(one.reason for one in record.transfers if one.reason)}")
    return max(one.end_s or 0.0 for one in record.transfers) - min(one.start_s or 0.0 for one in record.transfers)


def measure(running: manager.RunningFabric, options: argparse.Namespace) -> dict[str, Any]:
    fabric, scale = running.fabric, running.scale
    found: dict[str, Any] = {}
    real_bytes = round(options.message_bytes * scale.rate / scale.time)
    if "latency" in options.parts:
        ranks = len(fabric.gpus)
        ring = collective(ALL_REDUCE, all_ranks(fabric), real_bytes * ranks, ranks, form=STEPWISE)
        latencies = [one for _ in range(options.repeats) for one in start_latencies_s(running.run(ring))]
        found["start_latency_median_s"] = statistics.median(latencies)
        found["start_latency_p99_s"] = statistics.quantiles(latencies, n=100)[98]
        found["start_latency_worst_s"] = max(latencies)
        found["latencies"] = len(latencies)
    if "rate" in options.parts:
        schedule = chains(len(fabric.gpus), options.messages, real_bytes)
        runs = [running.run(schedule, engine=Engine.AGENT) for _ in range(options.repeats)]
        found["transfers_per_s"] = statistics.median(len(schedule.transfers) / span_s(run) for run in runs)
        found["transfers"] = len(schedule.transfers)
        found["notes"] = list(runs[-1].notes)
    if "agreement" in options.parts:
        bulk = ring_all_reduce(rail_rings(fabric), options.bulk_mib << 20, len(fabric.gpus))
        for engine in Engine:
            durations = [completion_s(running.run(bulk, engine=engine)) for _ in range(options.repeats)]
            found[f"{engine.value}_s"] = statistics.median(one for one in durations if one is not None)
        found["expected_s"] = completion_s(simulate(fabric, bulk, controller_router(fabric), scale=scale))
        found["agent_over_iperf3"] = found["agent_s"] / found["iperf3_s"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, choices=sorted(SHAPES), default=16)
    parser.add_argument("--fabric", type=fabric_kind, default="rail-only")
    parser.add_argument("--parts", nargs="+", choices=["latency", "rate", "agreement"],
                        default=["latency", "rate", "agreement"])  # fmt: skip
    parser.add_argument("--message-bytes", type=int, default=1000, help="emulated bytes of a small message")
    parser.add_argument("--messages", type=int, default=50, help="small messages in a row for each pair of GPUs")
    parser.add_argument("--bulk-mib", type=int, default=256, help="size of the all-reduce per rail in real MiB")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args()
    running = manager.up(FabricSpec(options.fabric, *SHAPES[options.gpus]), name=NAME)
    try:
        found = measure(running, options)
    finally:
        manager.down(NAME)
    print(f"{options.gpus} GPUs, {running.spec.kind.value}, {options.repeats} run(s)", file=sys.stderr)
    for key, value in found.items():
        print(f"{key:24} {value:.6g}" if isinstance(value, float) else f"{key:24} {value}")
    if options.json:
        print(json.dumps({"gpus": options.gpus, "fabric": running.spec.kind.value, **found}))


if __name__ == "__main__":
    main()
