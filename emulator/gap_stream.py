"""A steady stream of datagrams between two GPUs, sent and timed by a process of its own, so that nothing delays it.

Run as ``python -m emulator.gap_stream`` with the order as one line of JSON on standard input; it sends until standard
input is closed, then prints one object: ``sent`` and the ``arrivals`` as pairs of monotonic times (sent, received). The
kernel takes the time of an arrival, so a busy machine can delay the reading of it without making a gap.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import time
from contextlib import suppress
from typing import Any

from emulator.kernel import inside_network_namespace

SO_TIMESTAMPNS = 35
RECEIVE_BUFFER_BYTES = 4 << 20
LINGER_S = 0.1


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Send to ``address`` from ``src_namespace_fd``, receive in ``dst_namespace_fd``, ``rate_per_s`` times a second."""
    with inside_network_namespace(order["dst_namespace_fd"]):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    receiver.bind(("0.0.0.0", 0))
    receiver.setblocking(False)
    with inside_network_namespace(order["src_namespace_fd"]):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setblocking(False)
    offset_s = time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()
    interval_s = 1.0 / order["rate_per_s"]
    address = (order["address"], receiver.getsockname()[1])
    sent_s: list[float] = []
    arrivals: list[tuple[float, float]] = []
    due_s = time.monotonic()
    end_s = None
    print("{}", flush=True)
    while end_s is None or time.monotonic() < end_s:
        timeout_s = interval_s if end_s is not None else max(0.0, due_s - time.monotonic())
        ready, _, _ = select.select([receiver, *([] if end_s is not None else [sys.stdin])], [], [], timeout_s)
        if sys.stdin in ready:
            end_s = time.monotonic() + LINGER_S
        if receiver in ready:
            with suppress(BlockingIOError):
                while True:
                    data, ancillary, _, _ = receiver.recvmsg(64, 64)
                    seconds, nanoseconds = struct.unpack("qq", ancillary[0][2][:16])
                    arrivals.append((sent_s[int.from_bytes(data, "big")], seconds + nanoseconds / 1e9 - offset_s))
        if end_s is None and time.monotonic() >= due_s:
            number = len(sent_s).to_bytes(8, "big")
            sent_s.append(time.monotonic())
            with suppress(OSError):  # no room or no route at this moment: that is what the receiver will see
                sender.sendto(number, address)
            due_s = max(due_s + interval_s, time.monotonic() - interval_s)
    return {"sent": len(sent_s), "arrivals": arrivals}


if __name__ == "__main__":
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    json.dump(run(json.loads(sys.stdin.readline())), sys.stdout)
    sys.stdout.flush()
