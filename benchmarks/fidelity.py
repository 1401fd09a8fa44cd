"""How close long flows come to their max-min fair share on the live fabric, per traffic pattern.

Share = receiver payload over a 10 s window in which all flows are active and which starts 1 s after the last began,
divided by the max-min rate times 1448/1514 (MTU 1500, TCP time stamps; no correction for acknowledgements).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from typing import Any

from emulator import manager
from simulator.routes import controller_router
from simulator.shares import fair_rates_mbps
from topologies.builders import build
from topologies.model import NO_FAILURES, Fabric, FabricSpec, fabric_kind
from topologies.scale import Scale, default_scale

SHAPES = {16: (4, 4), 64: (8, 8), 256: (32, 8)}
NAME = "fidelity"
HOST_LINK = re.compile(r"d\d+r\d+-s\d+r\d+\Z")


def patterns(fabric: Fabric) -> dict[str, list[tuple[int, int]]]:
    """Pairs of ranks by pattern; every GPU sends one flow and receives one."""
    domains, rails = fabric.spec.domains, fabric.spec.rails
    count = domains * rails

    def rank(domain: int, rail: int) -> int:
        return domain % domains * rails + rail % rails

    gpus = [(gpu.domain, gpu.rail) for gpu in fabric.gpus]
    return {
        "rail ring": [(rank(d, r), rank(d + 1, r)) for d, r in gpus],
        "cross-rail": [(rank(d, r), rank(d + 1, r + 1)) for d, r in gpus],
        "all-to-all phase": [(i, (i + count // 2 - 1) % count) for i in range(count)],
        "domain rings": [(rank(d, r), rank(d, r + 1)) for d, r in gpus],
    }


def measure(
    fabric: Fabric, wanted: list[str], window_s: float, repeats: int, times: float
) -> dict[str, dict[str, Any]]:
    """Shares per pattern over all repeats, on links ``times`` as fast as at the default scale."""
    paths = controller_router(fabric)(NO_FAILURES)
    default = default_scale(fabric)
    scale = Scale(default.rate / times, default.time)
    running = manager.up(fabric.spec, scale, NAME)
    try:
        found: dict[str, dict[str, Any]] = {}
        for name, pairs in patterns(fabric).items():
            if name not in wanted:
                continue
            fair = fair_rates_mbps(fabric, paths, pairs, scale)
            ids = [(fabric.gpu_of_rank(src).id, fabric.gpu_of_rank(dst).id) for src, dst in pairs]
            runs = [running.steady(ids, window_s) for _ in range(repeats)]
            shares = [rate / best for run in runs for rate, best in zip(run["rates_mbps"], fair, strict=True)]
            passes = [
                len(controller_path) + 1 for controller_path in (paths_between(paths, src, dst) for src, dst in pairs)
            ]
            gbps_passes = statistics.mean(
                sum(rate * count for rate, count in zip(run["rates_mbps"], passes, strict=True)) / 1000 for run in runs
            )
            core = statistics.mean(run["switch_cores"] for run in runs)
            found[name] = {
                "worst_share": min(shares),
                "median_share": statistics.median(shares),
                "best_share": max(shares),
                "gbps_passes": gbps_passes,
                "switch_cores": core,
                "gbps_passes_per_core": gbps_passes / core,
                "switch_wait_share": max(run["switch_wait_share"] for run in runs),
                "machine_share": statistics.mean(run["machine_share"] for run in runs),
                "loop_ms": max(run["loop_s"] for run in runs) * 1000,
                "saturated_share": min((run["saturated_share"] or 0.0) for run in runs),
                "dropped_packets": sum(run["dropped_packets"] for run in runs),
                "overload": next((run["overload"] for run in runs if run["overload"]), ""),
                "worst_by_run": [
                    min(shares[first : first + len(pairs)]) for first in range(0, len(shares), len(pairs))
                ],
            }
        return found
    finally:
        manager.down(NAME)


def paths_between(paths: Any, src: int, dst: int) -> list[str]:
    """Links between switches on a path (the host links at its ends are not among them)."""
    return [link_id for link_id in paths(src, dst) if not HOST_LINK.match(link_id)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, choices=sorted(SHAPES), default=16)
    parser.add_argument("--fabric", type=fabric_kind, default="rail-only")
    parser.add_argument("--pattern", action="append", help="only this pattern (several times for more)")
    parser.add_argument("--window", type=float, default=10.0, help="seconds")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--times", type=float, default=1.0, help="links so many times as fast, to find the ceiling")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args()
    fabric = build(FabricSpec(options.fabric, *SHAPES[options.gpus]))
    wanted = options.pattern or list(patterns(fabric))
    found = measure(fabric, wanted, options.window, options.repeats, options.times)
    print(
        f"{options.gpus} GPUs, {fabric.kind.value}, {options.repeats} run(s) of {options.window:g} s", file=sys.stderr
    )
    columns = ("worst", "median", "best", "Gbps*passes", "per core", "cores", "machine", "wait", "loop ms", "saturated")
    keys = ("worst_share", "median_share", "best_share", "gbps_passes", "gbps_passes_per_core", "switch_cores",
            "machine_share", "switch_wait_share", "loop_ms", "saturated_share")  # fmt: skip
    print(f"{'pattern':18}" + "".join(f"{column:>12}" for column in columns))
    for name, row in found.items():
        print(f"{name:18}" + "".join(f"{row[key]:12.3f}" for key in keys))
    if options.json:
        print(json.dumps({"gpus": options.gpus, "fabric": fabric.kind.value, "patterns": found}))


if __name__ == "__main__":
    main()
