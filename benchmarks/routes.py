"""How long the controller computes, how much memory it takes, and how many rules each kind of switch gets.

``python benchmarks/routes.py [--gpus 16 ...] [--kind rail-only|rail-optimized|spine-leaf] [--json]``; no root. Figures
of a size come from a process of its own: ``full_s`` from the declared fabric to the rules of every family of switches,
``single_repair_s`` for the new routes and rules of one failed link (the median over NIC links and NVLinks).
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from controller.policy import RoutingPolicy
from controller.routing import Routes, forwarding
from controller.rules import families, version_rules
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec, Failures, fabric_kind

GPUS_PER_DOMAIN = 8
SMALL = {16: (4, 4)}
SPINES = 8
REPAIRS = 5


def measured(gpus: int, kind: FabricKind, local_repair: bool) -> dict[str, Any]:
    domains, rails = SMALL.get(gpus, (gpus // GPUS_PER_DOMAIN, GPUS_PER_DOMAIN))
    fabric = build(FabricSpec(kind, domains, rails, spines=None if kind is FabricKind.RAIL_ONLY else SPINES))
    policy = RoutingPolicy(local_repair=local_repair)
    started_s = time.perf_counter()
    forwarding(fabric, policy)
    found = families(fabric, policy)
    full_s = time.perf_counter() - started_s
    links = [link.id for link in fabric.failure_targets()]
    chosen = [links[number * (len(links) - 1) // REPAIRS] for number in range(REPAIRS + 1)]
    took_s, added = [], []
    for link_id in chosen:
        started_s = time.perf_counter()
        rules = version_rules(Routes(fabric, Failures(links=frozenset({link_id})), policy), 1)
        took_s.append(time.perf_counter() - started_s)
        added.append(sum(map(len, rules.values())))
    return {
        "gpus": gpus,
        "kind": kind.value,
        "local_repair": local_repair,
        "full_s": round(full_s, 4),
        "single_repair_s": round(statistics.median(took_s[1:]), 5),
        "single_repair_rules": max(added),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "rules": sum(family.switches * family.rules for family in found),
        "per_switch": [
            {"kind": family.kind.value, "switches": family.switches, "rules": family.rules, "groups": family.groups}
            for family in found
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, nargs="+", default=[16, 64, 1024, 32768])
    parser.add_argument("--kind", default="rail-only", help="rail-only, rail-optimized or spine-leaf")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on the last line")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    kind = fabric_kind(parsed.kind)
    if parsed.one:
        print(json.dumps(measured(parsed.gpus[0], kind, parsed.one == "with")))
        return
    sizes = []
    for gpus in parsed.gpus:
        for local_repair in ("without", "with"):
            command = [sys.executable, __file__, "--gpus", str(gpus), "--kind", kind.value, "--one", local_repair]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout)
            sizes.append(found)
            each = ", ".join(
                f"{family['switches']} {family['kind']}: {family['rules']} rules"
                + (f" and {family['groups']} groups" if family["groups"] else "")
                for family in found["per_switch"]
            )
            print(
                f"{gpus:>6} GPUs {local_repair} local repair: full {found['full_s']:.3f} s, one link "
                f"{found['single_repair_s'] * 1000:.1f} ms and at most {found['single_repair_rules']} rules, "
                f"peak {found['peak_mb']} MB; {each}"
            )
    if parsed.json:
        largest = sizes[-1]
        print(json.dumps({**largest, "sizes": sizes}))


if __name__ == "__main__":
    main()
