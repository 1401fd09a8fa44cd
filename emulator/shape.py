"""What a link's rate means for traffic control: the rate, burst and queue bound at each end. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

FRAME_BYTES = 1514
"""An Ethernet frame of MTU 1500 as HTB counts it: no preamble, gap or checksum."""

PAYLOAD_BYTES = 1448
"""TCP payload of such a frame with time stamps."""

GOODPUT_SHARE = PAYLOAD_BYTES / FRAME_BYTES

QUEUE_S = 0.040
QUEUE_FLOOR_BYTES = 64_000


@dataclass(frozen=True)
class Shape:
    """What one end of a link is shaped to.

    ``rate_bytes_per_s`` is what the kernel is given (tc's own "mbit" words are avoided: they have more than one
    meaning); ``burst_bytes`` lets one super-packet through; ``queue_bytes`` bounds the waiting line.
    """

    rate_bytes_per_s: int
    burst_bytes: int
    queue_bytes: int
    quantum_bytes: int

    @property
    def rate_mbps(self) -> float:
        """The rate in Mbit/s."""
        return self.rate_bytes_per_s * 8 / 1e6


def shape(rate_mbps: float) -> Shape:
    """The shape of a link of ``rate_mbps``: the queue holds 40 ms of it, and never less than 64 kB.

    Below 64 kB a single TCP super-packet could find no room (docs/fidelity.md has the measurements).
    """
    rate_bytes_per_s = round(rate_mbps * 1e6 / 8)
    return Shape(
        rate_bytes_per_s=rate_bytes_per_s,
        burst_bytes=max(2 * FRAME_BYTES, math.ceil(rate_bytes_per_s * 0.001)),
        queue_bytes=max(QUEUE_FLOOR_BYTES, math.ceil(rate_bytes_per_s * QUEUE_S)),
        quantum_bytes=FRAME_BYTES * 4,
    )


def tc_batch(shapes: Mapping[str, Shape]) -> str:
    """Input for ``tc -batch`` that shapes interfaces by name, for where netlink's library is not at hand.

    Rates are given in bits per second without a prefix; tc's "bps" would mean bytes.
    """
    lines = []
    for name, one in shapes.items():
        lines += [
            f"qdisc replace dev {name} root handle 1: htb default 1",
            f"class replace dev {name} parent 1: classid 1:1 htb rate {one.rate_bytes_per_s * 8}bit "
            f"burst {one.burst_bytes} cburst {one.burst_bytes} quantum {one.quantum_bytes}",
            f"qdisc replace dev {name} parent 1:1 handle 2: bfifo limit {one.queue_bytes}",
        ]
    return "\n".join(lines) + "\n"
