"""How fast a failed link is repaired, by the switches themselves and by the controller alone.

``python benchmarks/repair.py [--gpus 16|64] [--kind rail-only|rail-optimized] [--json]`` (root). Brings the fabric up
twice, with local repair and without, and fails NIC links, NVLinks and (where there are any) leaf-spine links under a
stream of 1,000 datagrams a second whose path crosses them. The figure of a failure is the stream's longest gap.
With ``--silent`` links swallow packets while their ports stay up, and BFD has to find them: seconds until the last
switch has confirmed the new rules, and what BFD costs the switches of an idle fabric (CPU seconds per second).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from controller.routing import Routes
from emulator import manager
from topologies.builders import build
from topologies.model import Fabric, FabricKind, FabricSpec, Gpu, LinkKind, fabric_kind

SIZES = {16: (4, 4), 64: (8, 8)}
RATE_PER_S = 1000
FABRIC = "bench-repair"
IDLE_S = 10.0
DEADLINE_S = 10.0
POLL_S = 0.02
CITED = {
    "spanning tree, 802.1D: listening and learning, 15 s each": 30.0,
    "link discovery by LLDP with the usual time-out": 10.0,
}
"""Seconds until traffic is back with other means; cited, not measured here."""


def victims(fabric: Fabric, count: int) -> list[tuple[str, Gpu, Gpu]]:
    """(link, source, destination): ``count`` links, kinds in turn, each with a pair whose path crosses it."""
    routes = Routes(fabric)
    by_kind: dict[LinkKind, list[str]] = {}
    for link in fabric.failure_targets():
        by_kind.setdefault(link.kind, []).append(link.id)
    found = []
    kinds = sorted(by_kind)
    for number in range(count):
        links = by_kind[kinds[number % len(kinds)]]
        link_id = links[number * 7 % len(links)]
        pairs = ((src, dst) for src in fabric.gpus for dst in fabric.gpus if src != dst)
        pair = next((pair for pair in pairs if (path := routes.path(*pair)) and link_id in path.links), None)
        if pair is not None:
            found.append((link_id, *pair))
    return found


def measure(spec: FabricSpec, local_repair: bool, count: int) -> list[dict[str, Any]]:
    running = manager.up(spec, name=FABRIC, local_repair=local_repair)
    try:
        return [
            running.measure_repair(link_id, src.id, dst.id, RATE_PER_S)
            for link_id, src, dst in victims(running.fabric, count)
        ]
    finally:
        manager.down(FABRIC)


def wait_for_repair(running: Any, since: int, links_down: list[str]) -> float:
    """The monotonic time at which the routes without ``links_down`` were in force."""
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        for event in running.events()[since:]:
            if event["event"] == "repaired" and event["links_down"] == links_down:
                return float(event["t_s"])
        time.sleep(POLL_S)
    raise SystemExit(f"no repair without {links_down or 'any link'} within {DEADLINE_S:g} s")


def switches_cpu_s(name: str) -> float:
    """CPU seconds that the Open vSwitch processes of a fabric have used."""
    used_s = 0.0
    for process in psutil.process_iter(["name", "cmdline", "cpu_times"]):
        if process.info["name"] == "ovs-vswitchd" and any(f"/{name}/" in word for word in process.info["cmdline"]):
            used_s += process.info["cpu_times"].user + process.info["cpu_times"].system
    return used_s


def measure_silent(spec: FabricSpec, count: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for bfd, what in ((False, "without"), (True, "with")):
        running = manager.up(spec, name=FABRIC, bfd=bfd)
        try:
            before_s = switches_cpu_s(FABRIC)
            time.sleep(IDLE_S)
            result[f"idle_switch_cpu_{what}_bfd"] = round((switches_cpu_s(FABRIC) - before_s) / IDLE_S, 3)
            took_s = []
            for link_id, _, _ in victims(running.fabric, count) if bfd else ():
                since, began_s = len(running.events()), time.monotonic()
                running.blackhole(link_id)
                took_s.append(wait_for_repair(running, since, [link_id]) - began_s)
                print(f"{link_id:<15} repaired after {milliseconds(took_s[-1])} ms")
                since = len(running.events())
                running.restore(link_id)
                wait_for_repair(running, since, [])
        finally:
            manager.down(FABRIC)
    return {**result, "silent_median_s": statistics.median(took_s), "silent_longest_s": max(took_s)}


def milliseconds(value_s: float | None) -> str:
    return "-" if value_s is None else f"{value_s * 1000:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, choices=sorted(SIZES), default=16)
    parser.add_argument("--kind", default="rail-only", help="rail-only, rail-optimized or spine-leaf")
    parser.add_argument("--failures", type=int, default=12, help="links that are failed, with and without (default 12)")
    parser.add_argument("--silent", action="store_true", help="links that swallow packets, found by BFD")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on the last line")
    parsed = parser.parse_args()
    domains, rails = SIZES[parsed.gpus]
    kind = fabric_kind(parsed.kind)
    spec = FabricSpec(kind, domains, rails, spines=None if kind is FabricKind.RAIL_ONLY else 4)
    result: dict[str, Any] = {"gpus": parsed.gpus, "kind": kind.value, "switches": len(build(spec).switches)}
    if parsed.silent:
        result.update(measure_silent(spec, parsed.failures))
        print(", ".join(f"{name} {value:.3f}" for name, value in result.items() if isinstance(value, float)))
        if parsed.json:
            print(json.dumps(result))
        return
    for local_repair, name in ((True, "local"), (False, "controller")):
        found = measure(spec, local_repair, parsed.failures)
        gaps = [each["failure"]["longest_gap_s"] for each in found]
        print(f"\n{'with' if local_repair else 'without'} local repair (milliseconds after the failure)")
        print("link            path            longest gap  detected  computed  rules  repaired  traffic back  lost"
              "  gap at restore  lost")  # fmt: skip
        for each in found:
            line = each["timeline"]
            print(
                f"{each['link']:<15} {each['src'] + ' ' + each['dst']:<15} "
                f"{milliseconds(each['failure']['longest_gap_s']):>11} {milliseconds(line['detected_s']):>9} "
                f"{milliseconds(line['computed_s']):>9} {line['rules_added']:>6} {milliseconds(line['repaired_s']):>9} "
                f"{milliseconds(line['traffic_back_s']):>13} "
                f"{each['failure']['lost']:>5} {milliseconds(each['restore']['longest_gap_s']):>15} "
                f"{each['restore']['lost']:>5}"
            )
        result[f"{name}_median_s"] = round(statistics.median(gaps), 6)
        result[f"{name}_longest_gap_s"] = round(max(gaps), 6)
        result[f"{name}_lost_at_restore"] = sum(each["restore"]["lost"] for each in found)
        result[f"{name}_reaction_median_s"] = round(
            statistics.median(each["timeline"]["reaction_s"] for each in found), 6
        )
    print(f"\nmedian gap: {milliseconds(result['local_median_s'])} ms with local repair, "
          f"{milliseconds(result['controller_median_s'])} ms by the controller alone")  # fmt: skip
    print("for contrast (cited, not measured): " + "; ".join(f"{name}: {value:g} s" for name, value in CITED.items()))
    if parsed.json:
        print(json.dumps({**result, "cited_s": CITED}))


if __name__ == "__main__":
    main()
