"""A steady stream of small datagrams between two GPUs: its longest silence is the outage that traffic saw."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from emulator.kernel import inside_network_namespace
from topologies.addresses import ipv4
from topologies.model import Gpu

PORT = 5998
DEFAULT_RATE_PER_S = 100


@dataclass(frozen=True)
class ProbeResult:
    """What a probe saw: datagrams sent and received, and the longest time between two arrivals (None below two)."""

    sent: int
    received: int
    longest_gap_s: float | None
    gap_start_s: float | None
    """Monotonic time of the arrival before the longest gap."""


class GapProbe:
    """Sends ``rate_per_s`` numbered datagrams a second from ``src`` to ``dst`` until stopped."""

    def __init__(self, namespaces: dict[str, int], src: Gpu, dst: Gpu, rate_per_s: int = DEFAULT_RATE_PER_S) -> None:
        self._interval_s = 1.0 / rate_per_s
        self._address = (ipv4(dst.domain, dst.rail), PORT)
        with inside_network_namespace(namespaces[dst.id]):
            self._receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._receiver.bind(("0.0.0.0", PORT))
        self._receiver.settimeout(0.2)
        with inside_network_namespace(namespaces[src.id]):
            self._sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sender.setblocking(False)
        self._sent = 0
        self._arrivals_s: list[float] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=target, name="gap-probe", daemon=True) for target in (self._send, self._receive)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> ProbeResult:
        """End the stream and sum it up; silence up to now counts as a gap."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._receiver.close()
        self._sender.close()
        arrivals = self._arrivals_s
        gaps = [(after - before, before) for before, after in pairwise(arrivals)]
        longest, start = max(gaps) if gaps else (None, None)
        return ProbeResult(self._sent, len(arrivals), longest, start)

    def _send(self) -> None:
        due_s = time.monotonic()
        while not self._stop.is_set():
            with suppress(OSError):  # no room or no route at this moment: that is what the receiver will see
                self._sender.sendto(self._sent.to_bytes(8, "big"), self._address)
            self._sent += 1
            due_s += self._interval_s
            self._stop.wait(max(0.0, due_s - time.monotonic()))

    def _receive(self) -> None:
        while not self._stop.is_set():
            with suppress(TimeoutError):
                self._receiver.recv(64)
                self._arrivals_s.append(time.monotonic())
