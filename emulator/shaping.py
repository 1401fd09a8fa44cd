"""Sets the shape of interfaces in the kernel and reads it back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl.tcmsg import plugins

from emulator.errors import ShapingError
from emulator.shape import Shape, tc_batch

# pyroute2 knows pfifo but not its byte-counting twin; both have the same single option, the limit.
plugins.setdefault("bfifo", plugins["pfifo"])

LINK_CLASS = 0x00010001
DATA_CLASS = 0x00010002
DATA_QUEUE = 0x00020000


def set_shapes(shapes: Mapping[str, Shape]) -> None:
    """Shape interfaces that have no shaping yet, by name; raises ShapingError with tc's message."""
    done = subprocess.run(["tc", "-batch", "-"], input=tc_batch(shapes), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ShapingError(
            f"the links cannot be shaped: {message[0]}; 'railbed doctor' says whether this kernel has HTB"
        )


def read_shapes(netlink: IPRoute, indexes: Iterable[int]) -> dict[int, tuple[int, int]]:
    """(rate in bytes/s, queue bound in bytes) that the kernel holds, by interface index.

    An interface without our classes and queue is left out.
    """
    wanted = set(indexes)
    queue_bytes = {
        message["index"]: message.get_attr("TCA_OPTIONS")["limit"]
        for message in netlink.get_qdiscs()
        if message["index"] in wanted and message["handle"] == DATA_QUEUE and message["parent"] == DATA_CLASS
    }
    held = {}
    for index, limit in queue_bytes.items():
        for message in netlink.get_classes(index=index):
            if message["handle"] == LINK_CLASS:
                held[index] = (message.get_attr("TCA_OPTIONS").get_attr("TCA_HTB_PARMS")["rate"], limit)
    return held


def check_shapes(netlink: IPRoute, wanted: Mapping[int, Shape], names: Mapping[int, str]) -> None:
    """Raise ShapingError naming the first interface whose rate or queue is not what was set."""
    held = read_shapes(netlink, wanted)
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
