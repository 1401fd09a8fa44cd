"""What a link's rate means for traffic control: the rate, burst and queue bound at each end. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

FRAME_BYTES = 1514
"""An Ethernet frame of MTU 1500 as HTB counts it: no preamble, gap or checksum."""

PAYLOAD_BYTES = 1448
"""TCP payload of such a frame with time stamps."""


WINDOW_S = 0.060
UNSCALED_WINDOW_BYTES = 65_535
LARGEST_WINDOW_SCALE = 3
WINDOWS_PER_QUEUE = 8
BURST_S = 0.020
SMALL_PACKET_SHARE = 0.1
PROBE_SHARE = 0.01
QUEUES = (2, 3, 4)
"""Classes of a link that have a queue: data, small packets, the probes of BFD."""


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


def window_bytes(rate_mbps: float) -> int:
    """The largest TCP window for flows over a link of that rate: about 60 ms of it, 64 kB at least, 512 kB at most.

    A flow that is alone on its links keeps them busy with that, and no queue ever overflows. The kernel keeps only a
    window's scale, so the result is 65,535 times a power of two.
    """
    scale = math.log2(rate_mbps * 1e6 / 8 * WINDOW_S / UNSCALED_WINDOW_BYTES)
    return UNSCALED_WINDOW_BYTES << min(LARGEST_WINDOW_SCALE, max(0, math.floor(scale)))


def shape(rate_mbps: float) -> Shape:
    """The shape of a link of ``rate_mbps``.

    The queue has room for the windows of eight flows: as long as no more share a link, nothing is lost, and equal
    windows get equal shares, which is what max-min fairness asks for. The burst is 20 ms of the rate: so much lateness
    of the kernel's timer and of a busy switch is made up for; with 1 ms, flows lost up to half of an NVLink's rate
    (docs/fidelity.md).
    """
    rate_bytes_per_s = round(rate_mbps * 1e6 / 8)
    return Shape(
        rate_bytes_per_s=rate_bytes_per_s,
        burst_bytes=max(2 * FRAME_BYTES, math.ceil(rate_bytes_per_s * BURST_S)),
        queue_bytes=WINDOWS_PER_QUEUE * window_bytes(rate_mbps),
        quantum_bytes=FRAME_BYTES * 4,
    )


def tc_batch(shapes: Mapping[str, Shape]) -> str:
    """Input for ``tc -batch`` that shapes unshaped interfaces by name.

    One HTB class has the link's rate; its three children share it. Packets below 128 bytes (acknowledgements, probes)
    go first: waiting behind the data of the other direction they would throttle flows that are not limited by this
    link. The probes of BFD (TOS 0xC0) have a class of their own before both, so that no load looks like a dead link.
    Rates are given in bits per second without a prefix; tc's "bps" would mean bytes.
    """
    return "\n".join(line for name, one in shapes.items() for line in shaper(name, one)) + "\n"


def shaper(name: str, shape: Shape, parent: str = "root") -> list[str]:
    """Lines for ``tc -batch`` that make the shaper of one interface that has none, below ``parent``."""
    return [
        f"qdisc add dev {name} {parent} handle 1: htb default 2",
        *(f"class add {words}" for words in _classes(name, shape)),
        *(f"qdisc add dev {name} parent 1:{each} handle {each}: bfifo limit {shape.queue_bytes}" for each in QUEUES),
        f"filter add dev {name} parent 1: protocol ip prio 1 u32 match u8 0xc0 0xff at 1 flowid 1:4",
        f"filter add dev {name} parent 1: protocol ip prio 2 u32 match u16 0 0xff80 at 2 flowid 1:3",
    ]


def change_rate_batch(name: str, shape: Shape, rate_mbps: float | None) -> list[str]:
    """Lines for ``tc -batch`` that give a shaped interface another rate; None is its own. The queue stays."""
    changed = shape if rate_mbps is None else replace(shape, rate_bytes_per_s=round(rate_mbps * 1e6 / 8))
    return [f"class change {words}" for words in _classes(name, changed)]


def _classes(name: str, shape: Shape) -> list[str]:
    rate = shape.rate_bytes_per_s * 8
    small, probes = math.ceil(rate * SMALL_PACKET_SHARE), math.ceil(rate * PROBE_SHARE)
    rest = f"burst {shape.burst_bytes} cburst {shape.burst_bytes} quantum {shape.quantum_bytes}"
    return [
        f"dev {name} parent 1: classid 1:1 htb rate {rate}bit {rest}",
        f"dev {name} parent 1:1 classid 1:2 htb rate {rate - small - probes}bit ceil {rate}bit prio 2 {rest}",
        f"dev {name} parent 1:1 classid 1:3 htb rate {small}bit ceil {rate}bit prio 1 {rest}",
        f"dev {name} parent 1:1 classid 1:4 htb rate {probes}bit ceil {rate}bit prio 0 {rest}",
    ]
