"""How long the controller computes, how much memory it takes, and how many rules each kind of switch gets.

``python benchmarks/routes.py [--gpus 16 ...] [--kind rail-only|rail-clos|rail-optimized|spine-leaf] [--json]``; no
root. Figures of a size come from a process of its own: ``full_s`` from the declared fabric to the rules of every family
of switches. For every kind of link, with the median over several of it: ``single_repair_s`` from the failed link to the
new routes, the switches concerned, and the rules of one switch of every family of them; ``expanded_s`` to the rules of
all switches. Of more than 64 leaves (or spines) that lie alike to the failure, whose numbers of rules differ only by
what their hashes say, 16 are counted for all: ``rules`` then is an estimate and ``expanded_s`` is null. Times are CPU
times: those of the clock on a machine that does nothing else. The controller keeps the healthy tables of its switches,
so those of the switches concerned are there.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from controller.forwarding import LEAF_KINDS, SPINE_KINDS, forwarding
from controller.policy import RoutingPolicy
from controller.repairs import Repairs
from controller.routing import Routes
from controller.rules import families, healthy_rules
from topologies.builders import build
from topologies.model import Fabric, FabricKind, FabricSpec, Failures, fabric_kind

GPUS_PER_DOMAIN = 8
SMALL = {16: (4, 4)}
SPINES = 8
DOMAINS_PER_LEAF = 32
REPAIRS = 5
RAIL_CLOS = "rail-clos"
"""Rail-only with a leaf-spine Clos in every rail, as switches of 64 ports make it."""

HASHING = LEAF_KINDS | SPINE_KINDS
MANY_ALIKE, SAMPLED = 64, 16


def spec_of(kind: str, gpus: int) -> FabricSpec:
    domains, rails = SMALL.get(gpus, (gpus // GPUS_PER_DOMAIN, GPUS_PER_DOMAIN))
    if kind == RAIL_CLOS:
        per_leaf = min(DOMAINS_PER_LEAF, domains // 2)
        return FabricSpec(FabricKind.RAIL_ONLY, domains, rails, domains_per_leaf=per_leaf, spines=per_leaf)
    spines = None if fabric_kind(kind) is FabricKind.RAIL_ONLY else SPINES
    return FabricSpec(fabric_kind(kind), domains, rails, spines=spines)


def all_rules(fabric: Fabric, repairs: Repairs) -> tuple[float, int, bool]:
    """(rules of all switches, switches that have any, whether the first two are estimates)."""
    alike: dict[Any, list[str]] = {}
    for here in repairs.concerned:
        switch = fabric.switches[here]
        hashes = switch.kind in HASHING and not repairs.routes.alike.is_touched(switch)
        alike.setdefault((switch.kind, switch.rail) if hashes else here, []).append(switch.id)
    rules = switches = 0.0
    for members in alike.values():
        counted = members if len(members) <= MANY_ALIKE else members[:: len(members) // SAMPLED][:SAMPLED]
        counts = [len(repairs.get(switch_id, ())) for switch_id in counted]
        rules += sum(counts) * len(members) / len(counted)
        switches += sum(map(bool, counts)) * len(members) / len(counted)
    return rules, round(switches), any(len(members) > MANY_ALIKE for members in alike.values())


def repair_of(fabric: Fabric, policy: RoutingPolicy, link_id: str) -> dict[str, Any]:
    """Figures of one failed link."""
    warm = Repairs(Routes(fabric, Failures(links=frozenset({link_id})), policy), 1)
    for here in warm.families().values():
        if fabric.switches[here].kind in HASHING:
            assert healthy_rules(fabric, policy)[fabric.switches[here].id]
    del warm
    gc.collect()
    started_s = time.process_time()
    repairs = Repairs(Routes(fabric, Failures(links=frozenset({link_id})), policy), 1)
    families = repairs.families()
    rules_of = [len(repairs.get(fabric.switches[here].id, ())) for here in families.values()]
    single_repair_s = time.process_time() - started_s
    rules, switches, estimated = all_rules(fabric, repairs)
    return {
        "single_repair_s": single_repair_s,
        "expanded_s": None if estimated else time.process_time() - started_s,
        "rules": rules,
        "switches": switches,
        "families": len(rules_of),
    }


def median_of(figures: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of every figure of several failures; None where it was not taken."""
    return {
        name: None if figures[0][name] is None else statistics.median(each[name] for each in figures)
        for name in figures[0]
    }


def measured(gpus: int, kind: str, local_repair: bool) -> dict[str, Any]:
    fabric = build(spec_of(kind, gpus))
    policy = RoutingPolicy(local_repair=local_repair)
    started_s = time.process_time()
    forwarding(fabric, policy)
    found = families(fabric, policy)
    full_s = time.process_time() - started_s
    full_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    by_kind: dict[str, list[str]] = {}
    for link in fabric.failure_targets():
        by_kind.setdefault(link.kind.value, []).append(link.id)
    repairs = {}
    for link_kind, links in by_kind.items():
        chosen = [links[number * (len(links) - 1) // REPAIRS] for number in range(REPAIRS)]
        figures = [repair_of(fabric, policy, link_id) for link_id in chosen]
        repairs[link_kind] = median_of(figures)
    return {
        "gpus": gpus,
        "kind": kind,
        "local_repair": local_repair,
        "full_s": round(full_s, 4),
        "single_repair_s": round(max(each["single_repair_s"] for each in repairs.values()), 5),
        "peak_mb": round(full_mb),
        "rules": sum(family.switches * family.rules for family in found),
        "repairs": repairs,
        "per_switch": [
            {"kind": family.kind.value, "switches": family.switches, "rules": family.rules, "groups": family.groups}
            for family in found
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, nargs="+", default=[16, 64, 1024, 32768])
    parser.add_argument("--kind", default="rail-only", help="rail-only, rail-clos, rail-optimized or spine-leaf")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on the last line")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    if parsed.one:
        print(json.dumps(measured(parsed.gpus[0], parsed.kind, parsed.one == "with")))
        return
    sizes = []
    for gpus in parsed.gpus:
        for local_repair in ("without", "with"):
            command = [sys.executable, __file__, "--gpus", str(gpus), "--kind", parsed.kind, "--one", local_repair]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout)
            sizes.append(found)
            each = ", ".join(
                f"{family['switches']} {family['kind']}: {family['rules']} rules"
                + (f" and {family['groups']} groups" if family["groups"] else "")
                for family in found["per_switch"]
            )
            print(
                f"{gpus:>6} GPUs {local_repair} local repair: full {found['full_s']:.3f} s, {found['peak_mb']} MB, "
                f"{found['rules']} rules; {each}"
            )
            for link_kind, repair in found["repairs"].items():
                expanded_s = repair["expanded_s"]
                every = "about" if expanded_s is None else f"all switches {expanded_s * 1000:.1f} ms:"
                print(
                    f"       one {link_kind} link: {repair['single_repair_s'] * 1000:.1f} ms, {every} "
                    f"{repair['rules']:.0f} rules on {repair['switches']:.0f} switches"
                )
    if parsed.json:
        largest = sizes[-1]
        print(json.dumps({**largest, "sizes": sizes}))


if __name__ == "__main__":
    main()
