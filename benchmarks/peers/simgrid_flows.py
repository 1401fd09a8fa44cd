"""Flows over links in SimGrid, for the interpreter that has its Python module (Debian: ``python3-simgrid``).

Reads one JSON object on standard input: ``capacity`` (bytes per second of every directed link) and ``flows``, each a
list ``[start_s, size_bytes, [links], change_s, resume_s, [new links]]``; the last three may be left out. At
``change_s`` such a flow stands still, and from ``resume_s`` on what is left of it takes its new links. Writes
``{"end_s": [...], "solve_s": ..., "version": ...}``. The network model is SimGrid's without its TCP corrections.
"""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any

import simgrid as sg

RAW_MODEL = (
    "network/model:CM02",
    "network/TCP-gamma:0",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/weight-S:0",
    "network/crosstraffic:0",
    "maxmin/precision:1e-9",
    "surf/precision:1e-9",
    "contexts/factory:thread",
)


def platform(zone: Any, capacity: list[float], routes: list[list[int]]) -> list[tuple[Any, Any]]:
    """A pair of hosts for every route; equal routes share theirs.

    A full zone has a table of all pairs of its hosts, so the routes are laid on a grid of few hosts.
    """
    links = [zone.create_link(f"l{number}", rate).seal() for number, rate in enumerate(capacity)]
    distinct = list(dict.fromkeys(map(tuple, routes)))
    side = math.isqrt(len(distinct)) + 1
    senders, receivers = (
        [zone.create_host(f"{end}{number}", 1e9).seal() for number in range(side)] for end in ("s", "d")
    )
    made: dict[tuple[int, ...], tuple[Any, Any]] = {}
    for number, route in enumerate(distinct):
        ends = senders[number // side], receivers[number % side]
        hops = [sg.LinkInRoute(links[one]) for one in route]
        zone.add_route(ends[0].netpoint, ends[1].netpoint, None, None, hops, False)
        made[route] = ends
    return [made[tuple(route)] for route in routes]


def main() -> None:
    work = json.load(sys.stdin)
    flows = work["flows"]
    engine = sg.Engine([sys.argv[0], *(f"--cfg={one}" for one in RAW_MODEL), "--log=root.thresh:error"])
    zone = sg.NetZone.create_full_zone("all")
    changed = [number for number, flow in enumerate(flows) if len(flow) > 3]
    pairs = platform(zone, work["capacity"], [flow[2] for flow in flows] + [flows[number][5] for number in changed])
    zone.seal()
    detour = dict(zip(changed, pairs[len(flows) :], strict=True))
    end_s: list[float | None] = [None] * len(flows)

    def drive() -> None:
        timers = [(flow[0], 0, number) for number, flow in enumerate(flows)]
        for number in changed:
            timers += [(flows[number][3], 1, number), (flows[number][4], 2, number)]
        running: dict[int, Any] = {}
        left: dict[int, float] = {}
        for at_s, what, number in sorted(timers):
            if at_s > sg.Engine.clock:
                sg.this_actor.sleep_until(at_s)
            if what == 0:
                running[number] = sg.Comm.sendto_async(*pairs[number], flows[number][1])
            elif what == 1:
                comm = running[number]
                if not comm.test():
                    left[number] = comm.remaining
                    comm.suspend()
            elif number in left and left[number] >= 1:
                running[number].cancel()
                running[number] = sg.Comm.sendto_async(*detour[number], round(left[number]))
        for number, comm in running.items():
            comm.wait()
            end_s[number] = comm.finish_time

    sg.Actor.create("drive", pairs[0][0], drive)
    start = time.perf_counter()
    engine.run()
    solve_s = time.perf_counter() - start
    version = sg.simgrid_version if isinstance(sg.simgrid_version, str) else str(sg.simgrid_version())
    print(json.dumps({"end_s": end_s, "solve_s": solve_s, "version": version}))


if __name__ == "__main__":
    main()
