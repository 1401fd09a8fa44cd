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
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from emulator.errors import EmulatorError
from emulator.names import link_interfaces
from emulator.thinning import Thinned
from topologies.model import Fabric
from workloads.records import LinkSeries

DEFAULT_INTERVAL_S = 0.2
MOST_SAMPLES = 10_000
PRIORITY = -15
COUNTERS = Path("/proc/net/dev")
_SENT_BYTES_COLUMN = 8

Follow = Callable[[dict[str, Any]], None]


def sampled_links(fabric: Fabric) -> tuple[str, ...]:
    """Ids of the links whose counters are sampled, in the order of the samples."""
    return tuple(link.id for link in fabric.failure_targets())


class LinkSampler:
    """Samples every link's counters until :meth:`stop` is called; the first sample is taken before this returns.

    What an interface has sent is counted behind its shaper, so it is what the link really carried. Memory is bounded:
    the samples of a very long run are further apart. Raises EmulatorError if the reader does not start.
    """

    def __init__(self, fabric: Fabric, interval_s: float = DEFAULT_INTERVAL_S) -> None:
        self.link_ids = sampled_links(fabric)
        pairs = [link_interfaces(link) for link in fabric.failure_targets()]
        order = {"interfaces": [a for a, _ in pairs] + [b for _, b in pairs], "interval_s": interval_s}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "emulator.sampler", json.dumps(order)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self._samples: Thinned[tuple[float, list[int]]] = Thinned(MOST_SAMPLES)
        first = self._process.stdout.readline()
        if not first:
            raise EmulatorError(f"the link sampler ended with code {self._process.wait()} before its first sample")
        self._samples.add(_sample(first))
        self._start_s = 0.0
        self._follow: Follow = lambda _message: None
        self._reader = threading.Thread(target=self._read, daemon=True)

    def begin(self, start_s: float, follow: Follow) -> None:
        """Count time from the monotonic ``start_s``, and tell ``follow`` of every sample from now on."""
        self._start_s, self._follow = start_s, follow
        self._reader.start()

    def _read(self) -> None:
        count = len(self.link_ids)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            t_s, row = _sample(line)
            self._samples.add((t_s, row))
            self._follow(
                {"event": "links", "t_s": t_s - self._start_s, "a_to_b_bytes": row[:count], "b_to_a_bytes": row[count:]}
            )

    def stop(self) -> LinkSeries:
        """Take a last sample and return all; what was before the start counts as its beginning."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reader.join()
        self._process.wait()
        count = len(self.link_ids)
        samples = self._samples.samples()
        rows = np.array([row for _, row in samples], dtype=np.float64).reshape(-1, 2 * count)
        return LinkSeries(
            link_ids=self.link_ids,
            t_s=np.maximum(0.0, np.array([t_s for t_s, _ in samples], dtype=np.float64) - self._start_s),
            a_to_b_bytes=rows[:, :count],
            b_to_a_bytes=rows[:, count:],
        )


def _sample(line: bytes) -> tuple[float, list[int]]:
    t_s, row = json.loads(line)
    return t_s, row


def sent_bytes(text: str) -> dict[str, int]:
    """Bytes sent so far by interface, from the text of /proc/net/dev."""
    counters = {}
    for line in text.splitlines()[2:]:
        name, _, numbers = line.partition(":")
        counters[name.strip()] = int(numbers.split()[_SENT_BYTES_COLUMN])
    return counters


def _run(interfaces: list[str], interval_s: float) -> None:
    """Write a line per sample until standard input ends; times are monotonic, taken before the counters are read."""
    over = False
    due_s = time.monotonic()
    while True:
        now_s = time.monotonic()
        counters = sent_bytes(COUNTERS.read_text())
        print(json.dumps([now_s, [counters.get(name, 0) for name in interfaces]]), flush=True)
        if over:
            return
        due_s = max(due_s + interval_s, time.monotonic())
        over = bool(select.select([sys.stdin], [], [], max(0.0, due_s - time.monotonic()))[0])


if __name__ == "__main__":
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    _run(**json.loads(sys.argv[1]))
