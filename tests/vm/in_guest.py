"""Run inside the virtual machine, as root, from the checkout: what only a kernel with its own datapath and netem shows.

Brings a 2 x 2 fabric up, measures delay, jitter, loss and a failure with its repair, and prints one JSON object.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any

from emulator import manager
from topologies.model import FabricKind, FabricSpec

NAME = "vm"
NIC = "d0r0-rail0"
PAIR = ("d0r0", "d1r0")
DELAY_MS = 40.0
JITTER_MS = 10.0
LOSS_SHARE = 0.1
PINGS = 400


def ping(running: Any, count: int, interval_s: float) -> dict[str, float]:
    """``count`` echoes between the pair: what came back, and the fastest, mean and deviation of round trips in ms."""
    src, dst = PAIR
    said = running.mininet(f"{src} ping -q -c {count} -i {interval_s:g} -W 2 {dst}")
    sent, received = (int(one) for one in re.search(r"(\d+) packets transmitted, (\d+) received", said).groups())
    result: dict[str, float] = {"sent": sent, "received": received, "loss_share": 1 - received / sent}
    times = re.search(r"= ([\d.]+)/([\d.]+)/([\d.]+)/([\d.]+) ms", said)
    if times:
        result |= dict(zip(("min_ms", "mean_ms", "max_ms", "deviation_ms"), map(float, times.groups()), strict=True))
    return result


class Found(dict[str, Any]):
    """What was found so far; each value is shown as it comes, for whoever watches the console."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        print(f"{name}: {value}", flush=True)


def main() -> None:
    found = Found(kernel=os.uname().release)
    began_s = time.monotonic()
    running = manager.up(FabricSpec(FabricKind.RAIL_ONLY, 2, 2), name=NAME)
    try:
        found["up_s"] = time.monotonic() - began_s
        found["datapath"] = running.status()["datapath"]
        measure_impairments(running, found)
        measure_failure(running, found)
        found["rates_mbps"] = running.steady([PAIR, ("d0r1", "d1r1")], 5.0)["rates_mbps"]
    finally:
        began_s = time.monotonic()
        manager.down(NAME)
        found["down_s"] = time.monotonic() - began_s
    print(json.dumps(found))


def measure_impairments(running: Any, found: Found) -> None:
    """Delay, jitter and loss of a NIC link, each set and taken away again."""
    found["plain"] = ping(running, 20, 0.1)
    running.delay(NIC, DELAY_MS)
    found["delay"] = ping(running, 20, 0.2)
    running.delay(NIC, DELAY_MS, JITTER_MS)
    found["jitter"] = ping(running, 100, 0.1)
    found["read_back"] = running.impairment(NIC)
    running.delay(NIC, 0.0)
    running.lose(NIC, LOSS_SHARE)
    found["loss"] = ping(running, PINGS, 0.02)
    running.lose(NIC, 0.0)
    found["after"] = ping(running, 50, 0.02)
    found["impaired_at_the_end"] = running.impairments()


def measure_failure(running: Any, found: Found) -> None:
    """How long traffic was interrupted when that link failed, and where it went then."""
    found["repair"] = running.measure_repair(NIC, *PAIR)
    found["path_healthy"] = running.path(*PAIR)
    running.fail(NIC)
    found["path_failed"] = running.path(*PAIR)
    found["reach_failed"] = running.reach_all()
    running.restore(NIC)


if __name__ == "__main__":
    main()
