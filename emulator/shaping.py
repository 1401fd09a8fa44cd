"""How a link's rate becomes traffic control: one HTB class over one bounded byte queue at each end of the veth pair.

The arithmetic is pure; :class:`Shaper` is the shell that sets it in the kernel and reads it back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl.tcmsg import plugins

from emulator.errors import ShapingError

# pyroute2 knows pfifo but not its byte-counting twin; both have the same single option, the limit.
plugins.setdefault("bfifo", plugins["pfifo"])

FRAME_BYTES = 1514
"""An Ethernet frame of MTU 1500 as HTB counts it: no preamble, gap or checksum."""

PAYLOAD_BYTES = 1448
"""TCP payload of such a frame with time stamps."""

GOODPUT_SHARE = PAYLOAD_BYTES / FRAME_BYTES

QUEUE_S = 0.040
QUEUE_FLOOR_BYTES = 64_000

ROOT_HANDLE = 0x00010000
CLASS_ID = 0x00010001
LEAF_HANDLE = 0x00020000


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


class Shaper:
    """Sets and reads the shaping of interfaces in the network namespace of ``netlink``."""

    def __init__(self, netlink: IPRoute) -> None:
        self._netlink = netlink

    def set(self, index: int, wanted: Shape) -> None:
        """Replace whatever shaping the interface of that index has."""
        netlink = self._netlink
        netlink.tc("replace", "htb", index, ROOT_HANDLE, default=CLASS_ID & 0xFFFF)
        netlink.tc(
            "replace-class", "htb", index, CLASS_ID, parent=ROOT_HANDLE,
            rate=wanted.rate_bytes_per_s, ceil=wanted.rate_bytes_per_s,
            burst=wanted.burst_bytes, cburst=wanted.burst_bytes, quantum=wanted.quantum_bytes,
        )  # fmt: skip
        netlink.tc("replace", "bfifo", index, LEAF_HANDLE, parent=CLASS_ID, limit=wanted.queue_bytes)

    def read(self, indexes: Iterable[int]) -> dict[int, tuple[int, int]]:
        """(rate in bytes/s, queue bound in bytes) that the kernel holds, by interface index.

        An interface without our class and queue is left out.
        """
        wanted = set(indexes)
        queue_bytes = {
            message["index"]: message.get_attr("TCA_OPTIONS")["limit"]
            for message in self._netlink.get_qdiscs()
            if message["index"] in wanted and message["handle"] == LEAF_HANDLE and message["parent"] == CLASS_ID
        }
        held = {}
        for index, limit in queue_bytes.items():
            for message in self._netlink.get_classes(index=index):
                if message["handle"] == CLASS_ID:
                    held[index] = (message.get_attr("TCA_OPTIONS").get_attr("TCA_HTB_PARMS")["rate"], limit)
        return held

    def check(self, wanted: dict[int, Shape], names: dict[int, str]) -> None:
        """Raise ShapingError naming the first interface whose rate or queue is not what was set."""
        held = self.read(wanted)
        for index, expected in wanted.items():
            actual = held.get(index)
            if actual is None:
                raise ShapingError(
                    f"interface {names[index]} is not shaped though {expected.rate_mbps:g} Mbit/s was set; "
                    "'railbed doctor' says whether this kernel has HTB"
                )
            if actual != (expected.rate_bytes_per_s, expected.queue_bytes):
                raise ShapingError(
                    f"interface {names[index]} is shaped to {actual[0] * 8 / 1e6:g} Mbit/s with a queue of {actual[1]} "
                    f"bytes, but {expected.rate_mbps:g} Mbit/s and {expected.queue_bytes} bytes were set"
                )
