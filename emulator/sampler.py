"""Byte counters of all links over time, read from the kernel while a run goes on."""

from __future__ import annotations

import threading
import time

import numpy as np
from pyroute2 import IPRoute

from emulator.devices import Devices, transmitted_bytes
from emulator.kernel import inside_network_namespace
from emulator.names import link_interfaces
from topologies.model import Fabric
from workloads.records import LinkSeries

DEFAULT_INTERVAL_S = 0.2


class LinkSampler:
    """Samples every link's counters in a thread of its own until :meth:`stop` is called.

    ``start_s`` is the monotonic time that counts as 0. What an interface has sent is counted behind its shaper, so it
    is what the link really carried.
    """

    def __init__(self, fabric: Fabric, devices: Devices, namespace_fd: int, start_s: float, interval_s: float) -> None:
        self._links = tuple(fabric.failure_targets())
        pairs = [link_interfaces(link) for link in self._links]
        self._a = [devices.index[a] for a, _ in pairs]
        self._b = [devices.index[b] for _, b in pairs]
        self._start_s = start_s
        self._interval_s = interval_s
        self._times: list[float] = []
        self._rows: list[tuple[list[int], list[int]]] = []
        self._stop = threading.Event()
        self.late_s = 0.0
        """Worst delay of a sample against its plan: how long the machine kept this thread waiting."""
        with inside_network_namespace(namespace_fd):
            self._netlink = IPRoute()
        self._thread = threading.Thread(target=self._run, name="link-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> LinkSeries:
        """Take a last sample and return all."""
        self._stop.set()
        self._thread.join()
        self._sample()
        self._netlink.close()
        return LinkSeries(
            link_ids=tuple(link.id for link in self._links),
            t_s=np.array(self._times, dtype=np.float64),
            a_to_b_bytes=np.array([a for a, _ in self._rows], dtype=np.float64),
            b_to_a_bytes=np.array([b for _, b in self._rows], dtype=np.float64),
        )

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stop.is_set():
            self._sample()
            due_s += self._interval_s
            now_s = time.monotonic()
            self.late_s = max(self.late_s, now_s - due_s)
            due_s = max(due_s, now_s)
            self._stop.wait(due_s - now_s)

    def _sample(self) -> None:
        # Stamped before the counters are read: what happens meanwhile then counts as later than this sample.
        self._times.append(time.monotonic() - self._start_s)
        sent = transmitted_bytes(self._netlink)
        self._rows.append(([sent.get(index, 0) for index in self._a], [sent.get(index, 0) for index in self._b]))
