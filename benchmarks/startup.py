"""How long a live fabric takes from ``up`` to verified, and down again; with ``--stock``, paired with stock Mininet.

Railbed's time has everything in it: devices, switches, shaping, routes, and the self-test of every pair. Stock
Mininet's has its ``build`` and ``start`` of the same switches and links only: no controller, no rules, no test, and
its Open vSwitch is started before the clock.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from emulator import manager
from topologies.builders import build
from topologies.model import Fabric, FabricSpec, LinkKind, fabric_kind
from topologies.scale import default_scale, link_rate_mbps

SHAPES = {16: (4, 4), 64: (8, 8), 256: (32, 8)}
NAME = "startup"
LARGEST_STOCK = 64
"""Above, stock Mininet takes minutes."""

# The namespaces end with the process, whatever happens to it, and all that it started ends with them.
PRIVATE = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]


def measure(fabric: Fabric, repeats: int) -> dict[str, Any]:
    """Medians over ``repeats`` of the times, with the stages of the middle run; memory is the largest seen."""
    runs = []
    for _ in range(repeats):
        started_s = time.monotonic()
        running = manager.up(fabric.spec, name=NAME)
        try:
            up_s = time.monotonic() - started_s
            status = running.status()
            memory_mb = processes_mb(running.state.supervisor_pid)
        finally:
            started_s = time.monotonic()
            manager.down(NAME)
        runs.append((up_s, time.monotonic() - started_s, memory_mb, status))
    runs.sort(key=lambda run: run[0])
    stages_s = runs[(len(runs) - 1) // 2][3]["stages_s"]
    return {
        "up_s": statistics.median(run[0] for run in runs),
        "down_s": statistics.median(run[1] for run in runs),
        "slowest_up_s": runs[-1][0],
        "memory_mb": max(run[2] for run in runs),
        "stages": stages_s,
        "self_test": runs[0][3]["self_test"],
    }


def processes_mb(supervisor_pid: int) -> float:
    """Memory of a fabric's processes in MB; what several of them share is counted once, in parts."""
    supervisor = psutil.Process(supervisor_pid)
    return sum(one.memory_full_info().pss for one in (supervisor, *supervisor.children(recursive=True))) / 1e6


def measure_stock(fabric: Fabric) -> dict[str, float]:
    """Times of stock Mininet, in namespaces of its own; raises CalledProcessError with its words on standard error."""
    command = [*PRIVATE, sys.executable, __file__, "--stock-child", json.dumps(fabric.spec.to_dict())]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def stock_child(fabric: Fabric) -> dict[str, float]:
    """Build, start and stop ``fabric`` with stock Mininet; to be called in a network namespace of its own."""
    import os

    from mininet.link import TCLink
    from mininet.log import setLogLevel
    from mininet.net import Mininet
    from mininet.node import OVSSwitch
    from mininet.topo import Topo

    from emulator.openvswitch import OpenVSwitch

    scale = default_scale(fabric)
    topo = Topo()
    for gpu in fabric.gpus:
        topo.addHost(gpu.id)
    for switch in fabric.switches:
        topo.addSwitch(switch.id, dpid=f"{switch.dpid:016x}")
    for link in fabric.links:
        shaped = {} if link.kind is LinkKind.HOST else {"bw": link_rate_mbps(link, scale)}
        topo.addLink(link.a, link.b, port1=link.a_port, port2=link.b_port, **shaped)
    setLogLevel("critical")  # it calls HTB's remark about its quantum an error, once per interface
    Mininet.inited = True  # else it would raise limits of the whole machine
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory(prefix="railbed-startup-") as directory:
        ovs = OpenVSwitch(Path(directory), kernel_datapath=False, instances=1)
        ovs.start()
        os.environ.update(ovs.environment)
        try:
            started_s = time.monotonic()
            switch = partial(OVSSwitch, datapath="user", failMode="secure")
            net = Mininet(topo, switch=switch, link=TCLink, controller=None, build=False)
            net.build()
            built_s = time.monotonic()
            net.start()
            up_s = time.monotonic()
            net.stop()
            down_s = time.monotonic()
        finally:
            ovs.stop()
    return {
        "stock_build_s": built_s - started_s,
        "stock_start_s": up_s - built_s,
        "stock_up_s": up_s - started_s,
        "stock_down_s": down_s - up_s,
    }


def growth_exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The exponent p of ``value ~ size ** p`` by least squares on logarithms; 1 is linear growth."""
    return statistics.linear_regression([math.log(one) for one in sizes], [math.log(one) for one in values]).slope


def show(fabric: Fabric, found: dict[str, Any], repeats: int) -> None:
    print(
        f"{len(fabric.gpus)} GPUs, {fabric.kind.value}: {len(fabric.switches)} switches, {len(fabric.links)} links; "
        f"{found['self_test']}"
    )
    print(f"{'up to verified':20}{found['up_s']:8.2f} s  (median of {repeats}, slowest {found['slowest_up_s']:.2f} s)")
    for stage, duration_s in found["stages"].items():
        print(f"  {stage:18}{duration_s:8.2f} s  {duration_s / sum(found['stages'].values()):4.0%} of the stages")
    print(f"{'down':20}{found['down_s']:8.2f} s\n{'memory':20}{found['memory_mb']:8.0f} MB")
    if "ratio" in found:
        print(
            f"stock Mininet: build {found['stock_build_s']:.1f} s + start {found['stock_start_s']:.1f} s = "
            f"{found['ratio']:.1f} times as long; stop {found['stock_down_s']:.1f} s"
        )


def measured(fabric: Fabric, repeats: int, stock: bool) -> dict[str, Any]:
    """One row: Railbed's figures and, paired with them, stock Mininet's."""
    found = measure(fabric, repeats)
    if stock:
        found |= measure_stock(fabric)
        found["ratio"] = found["stock_up_s"] / found["up_s"]
    show(fabric, found, repeats)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, choices=sorted(SHAPES), default=16)
    parser.add_argument("--fabric", type=fabric_kind, default="rail-only")
    parser.add_argument("--repeats", type=int, default=3, help="starts of Railbed's fabric (default 3)")
    parser.add_argument("--stock", action="store_true", help="also stock Mininet, once (half a minute at 64 GPUs)")
    parser.add_argument("--growth", action="store_true", help="16, 64 and 256 GPUs (stock Mininet: 16 and 64)")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--stock-child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stock_child:
        print(json.dumps(stock_child(build(FabricSpec.from_dict(json.loads(options.stock_child))))))
        return
    sizes = sorted(SHAPES) if options.growth else [options.gpus]
    rows = []
    for gpus in sizes:
        fabric = build(FabricSpec(options.fabric, *SHAPES[gpus]))
        stock = options.stock and (gpus <= LARGEST_STOCK or not options.growth)
        rows.append({"gpus": gpus, "fabric": fabric.kind.value, **measured(fabric, options.repeats, stock)})
    result = rows[0]
    if options.growth:
        result = {"sizes": rows}
        for key in ("up_s", "down_s", "memory_mb"):
            result[f"{key}_growth"] = growth_exponent(sizes, [row[key] for row in rows])
            print(f"{key} grows with the number of GPUs to the power of {result[f'{key}_growth']:.2f}")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
