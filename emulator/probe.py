"""A steady stream of small datagrams between two GPUs: its longest silence is the outage that traffic saw.

Sender and receiver are a process of their own with a high priority (``python -m emulator.probe``), so that a busy
machine does not look like an outage.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from emulator.errors import EmulatorError
from emulator.kernel import inside_network_namespace
from topologies.addresses import ipv4
from topologies.model import Gpu

PORT = 5998
DEFAULT_RATE_PER_S = 100
PRIORITY = -15
START_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class ProbeResult:
    """What a probe saw: datagrams sent and received, and the longest time between two arrivals (None below two).

    ``gap_start_s`` is the monotonic time of the arrival before the longest gap.
    """

    sent: int
    received: int
    longest_gap_s: float | None
    gap_start_s: float | None


class GapProbe:
    """Sends ``rate_per_s`` numbered datagrams a second from ``src`` to ``dst`` until stopped."""

    def __init__(self, namespaces: dict[str, int], src: Gpu, dst: Gpu, rate_per_s: int = DEFAULT_RATE_PER_S) -> None:
        ends = (namespaces[src.id], namespaces[dst.id])
        order = {"src_fd": ends[0], "dst_fd": ends[1], "dst_ip": ipv4(dst.domain, dst.rail), "rate_per_s": rate_per_s}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "emulator.probe", json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=ends,
        )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_TIMEOUT_S)
        if not ready or self._process.stdout.readline() != b"started\n":
            self._process.kill()
            self._process.wait()
            raise EmulatorError(f"the probe from {src.id} to {dst.id} could not be started")

    def stop(self) -> ProbeResult:
        """End the stream and sum it up."""
        output, _ = self._process.communicate()
        return ProbeResult(**json.loads(output))


def _run(order: dict[str, Any]) -> ProbeResult:
    """Send and receive until standard input ends."""
    with inside_network_namespace(order["dst_fd"]):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("0.0.0.0", PORT))
    receiver.settimeout(0.1)
    with inside_network_namespace(order["src_fd"]):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setblocking(False)
    over = threading.Event()
    arrivals_s: list[float] = []

    def receive() -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                receiver.recv(64)
                arrivals_s.append(time.monotonic())

    thread = threading.Thread(target=receive)
    thread.start()
    print("started", flush=True)
    address = (order["dst_ip"], PORT)
    sent = 0
    due_s = time.monotonic()
    while not select.select([sys.stdin], [], [], max(0.0, due_s - time.monotonic()))[0]:
        with suppress(OSError):  # no room or no route at this moment: that is what the receiver will see
            sender.sendto(sent.to_bytes(8, "big"), address)
        sent += 1
        due_s += 1.0 / order["rate_per_s"]
    over.set()
    thread.join()
    gaps = [(after - before, before) for before, after in pairwise(arrivals_s)]
    longest_s, start_s = max(gaps) if gaps else (None, None)
    return ProbeResult(sent, len(arrivals_s), longest_s, start_s)


if __name__ == "__main__":
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    print(json.dumps(asdict(_run(json.loads(sys.argv[1])))))
