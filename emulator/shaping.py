"""Sets the shape of interfaces in the kernel and reads it back: one HTB class over one bounded byte queue."""

from __future__ import annotations

from collections.abc import Iterable

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl.tcmsg import plugins

from emulator.errors import ShapingError
from emulator.shape import Shape

# pyroute2 knows pfifo but not its byte-counting twin; both have the same single option, the limit.
plugins.setdefault("bfifo", plugins["pfifo"])

ROOT_HANDLE = 0x00010000
CLASS_ID = 0x00010001
LEAF_HANDLE = 0x00020000


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
