"""How long the traffic planner takes, and how near its plans are to the optimum, at the sizes of C7 to C10.

``python benchmarks/planning.py [--case NAME ...] [--repeats N] [--json]``; no root. Per case: ``plan_s`` from the
demands to a plan made from nothing, ``replan_s`` from that plan to one without the failed links, ``optimum_s`` of the
linear program that it is held against (median CPU times), and ``quality``: the optimum's busiest link over the plan's,
for the whole fabric and (``quality_after``) for the one with the failed links; 1 is perfect, 0.98 the target.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from controller.planning.optimum import least_busiest_s
from controller.planning.planner import planned, replanned
from controller.planning.traffic import Demand
from controller.policy import RoutingPolicy
from experiments.reference.planning import BY_SERVER, ONE_NIC, eight_jobs, four_jobs, large_fabric
from topologies.builders import build
from topologies.model import Fabric, Failures

POLICY = RoutingPolicy()
TARGET = 0.98
Result = TypeVar("Result")


def with_jobs(fabric: Fabric) -> tuple[Fabric, list[Demand]]:
    """The fabric with eight jobs across its spines."""
    return fabric, eight_jobs(fabric)


def with_four(fabric: Fabric) -> tuple[Fabric, list[Demand]]:
    """The fabric with four jobs whose every edge crosses the spines."""
    return fabric, four_jobs(fabric, across=True)


CASES: dict[str, Callable[[], tuple[Fabric, list[Demand]]]] = {
    "16 GPUs, 1:1": lambda: with_jobs(build(ONE_NIC)),
    "C7 and C8, 128 GPUs, 1:1": lambda: with_jobs(build(BY_SERVER)),
    "C9, 128 GPUs, 2:1": lambda: with_jobs(build(replace(BY_SERVER, oversubscription=2.0, parallel_links=4))),
    "C10, 512 GPUs, dual-homed": lambda: with_four(build(large_fabric(2))),
}


def timed(call: Callable[[], Result], repeats: int) -> tuple[Result, float]:
    """The result, and the median CPU time of ``repeats`` calls."""
    taken = []
    for _ in range(repeats):
        began_s = time.process_time()
        result = call()
        taken.append(time.process_time() - began_s)
    return result, statistics.median(taken)


def measured(name: str, repeats: int) -> dict[str, Any]:
    """All figures of a case."""
    fabric, demands = CASES[name]()
    down = frozenset(link.id for link in fabric.links if {link.a, link.b} == {"leaf0", "spine0"})
    failures = Failures(links=down)
    plan, plan_s = timed(lambda: planned(fabric, demands, POLICY), repeats)
    after, replan_s = timed(lambda: replanned(plan, fabric, POLICY, failures), repeats)
    best_s, optimum_s = timed(lambda: least_busiest_s(fabric, demands, POLICY), 1)
    best_after_s = least_busiest_s(fabric, demands, POLICY, failures)
    return {
        "case": name,
        "connections": sum(demand.channels for demand in demands),
        "links": len(fabric.links),
        "plan_s": plan_s,
        "replan_s": replan_s,
        "optimum_s": optimum_s,
        "quality": best_s / plan.busiest_s(fabric),
        "quality_after": best_after_s / after.busiest_s(fabric),
    }


def main() -> int:
    """Print the table; exit code 1 if a plan is farther from the optimum than the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES), help="one of the cases; all if not given")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    arguments = parser.parse_args()
    found = []
    for name in arguments.case or CASES:
        one = measured(name, arguments.repeats)
        found.append(one)
        print(
            f"{name:26} {one['connections']:5} connections plan {one['plan_s']:6.2f} s, again {one['replan_s']:6.2f} s,"
            f" optimum {one['optimum_s']:6.2f} s  quality {one['quality']:.4f}, failed {one['quality_after']:.4f}",
            flush=True,
        )
    if arguments.json:
        print(json.dumps({"cases": found}))
    return int(any(min(one["quality"], one["quality_after"]) < TARGET for one in found))


if __name__ == "__main__":
    sys.exit(main())
