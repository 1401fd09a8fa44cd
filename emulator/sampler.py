"""Byte counters of all links over time, read from the kernel while a run goes on.

The reader is a process of its own with a high priority (``python -m emulator.sampler``): a counter that is read late
looks like a link above its capacity.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from emulator.names import link_interfaces
from topologies.model import Fabric
from workloads.records import LinkSeries

DEFAULT_INTERVAL_S = 0.2
PRIORITY = -15
_COUNTERS = Path("/proc/net/dev")
_SENT_BYTES_COLUMN = 8


class LinkSampler:
    """Samples every link's counters until :meth:`stop` is called.

    ``start_s`` is the monotonic time that counts as 0. What an interface has sent is counted behind its shaper, so it
    is what the link really carried.
    """

    def __init__(self, fabric: Fabric, start_s: float, interval_s: float) -> None:
        self._links = tuple(fabric.failure_targets())
        self._start_s = start_s
        pairs = [link_interfaces(link) for link in self._links]
        order = {"interfaces": [a for a, _ in pairs] + [b for _, b in pairs], "interval_s": interval_s}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "emulator.sampler", json.dumps(order)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def stop(self) -> LinkSeries:
        """Take a last sample and return all."""
        output, _ = self._process.communicate()
        samples = json.loads(output)
        count = len(self._links)
        rows = np.array(samples["sent_bytes"], dtype=np.float64).reshape(-1, 2 * count)
        return LinkSeries(
            link_ids=tuple(link.id for link in self._links),
            t_s=np.array(samples["t_s"], dtype=np.float64) - self._start_s,
            a_to_b_bytes=rows[:, :count],
            b_to_a_bytes=rows[:, count:],
        )


def sent_bytes(text: str) -> dict[str, int]:
    """Bytes sent so far by interface, from the text of /proc/net/dev."""
    counters = {}
    for line in text.splitlines()[2:]:
        name, _, numbers = line.partition(":")
        counters[name.strip()] = int(numbers.split()[_SENT_BYTES_COLUMN])
    return counters


def _run(interfaces: list[str], interval_s: float) -> dict[str, list[object]]:
    """Sample until standard input ends; times are monotonic, taken before the counters are read."""
    times_s: list[object] = []
    rows: list[object] = []
    over = False
    due_s = time.monotonic()
    while True:
        times_s.append(time.monotonic())
        counters = sent_bytes(_COUNTERS.read_text())
        rows.append([counters.get(name, 0) for name in interfaces])
        if over:
            return {"t_s": times_s, "sent_bytes": rows}
        due_s = max(due_s + interval_s, time.monotonic())
        over = bool(select.select([sys.stdin], [], [], max(0.0, due_s - time.monotonic()))[0])


if __name__ == "__main__":
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    print(json.dumps(_run(**json.loads(sys.argv[1]))))
