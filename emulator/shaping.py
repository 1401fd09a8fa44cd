"""Sets the shape of interfaces in the kernel and reads it back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl.tcmsg import plugins

from emulator.errors import ShapingError
from emulator.shape import Shape, tc_batch
from emulator.tc import run_batch

# pyroute2 knows pfifo but not its byte-counting twin; both have the same single option, the limit.
plugins.setdefault("bfifo", plugins["pfifo"])

LINK_CLASS = 0x00010001
DATA_CLASS = 0x00010002
DATA_QUEUE = 0x00020000
TICK_S = 64e-9
"""Unit of times in the packet scheduler's messages, since Linux 2.6.30."""


def set_shapes(shapes: Mapping[str, Shape]) -> None:
    """Shape interfaces that have no shaping yet, by name; raises ShapingError with tc's message."""
    complaint = run_batch(tc_batch(shapes))
    if complaint:
        raise ShapingError(
            f"the links cannot be shaped: {complaint}; 'railbed doctor' says whether this kernel has HTB"
        )


def read_rates(netlink: IPRoute, indexes: Iterable[int]) -> dict[int, int]:
    """Rate in bytes/s of those of the given interfaces that are shaped, by index."""
    return {
        index: message.get_attr("TCA_OPTIONS").get_attr("TCA_HTB_PARMS")["rate"]
        for index in indexes
        for message in netlink.get_classes(index=index)
        if message["handle"] == LINK_CLASS
    }


def read_leaves(netlink: IPRoute) -> dict[int, dict[str, float]]:
    """What stands in the place of the data queue of every shaped interface, by index.

    A byte queue has ``limit`` in bytes; netem has ``delay_ms`` and ``loss_share``.
    """
    found: dict[int, dict[str, float]] = {}
    for message in netlink.get_qdiscs():
        if message["handle"] != DATA_QUEUE or message["parent"] != DATA_CLASS:
            continue
        options = message.get_attr("TCA_OPTIONS")
        if message.get_attr("TCA_KIND") == "netem":
            found[message["index"]] = {
                "delay_ms": options["delay"] * TICK_S * 1e3,
                "loss_share": options["loss"] / 0xFFFFFFFF,
            }
        else:
            found[message["index"]] = {"limit": options["limit"]}
    return found


def check_shapes(netlink: IPRoute, wanted: Mapping[int, Shape], names: Mapping[int, str]) -> None:
    """Raise ShapingError naming the first interface whose rate or queue is not what was set."""
    rates, leaves = read_rates(netlink, wanted), read_leaves(netlink)
    for index, expected in wanted.items():
        if index not in rates or "limit" not in leaves.get(index, {}):
            raise ShapingError(
                f"interface {names[index]} is not shaped though {expected.rate_mbps:g} Mbit/s was set; "
                "'railbed doctor' says whether this kernel has HTB"
            )
        actual = rates[index], leaves[index]["limit"]
        if actual != (expected.rate_bytes_per_s, expected.queue_bytes):
            raise ShapingError(
                f"interface {names[index]} is shaped to {actual[0] * 8 / 1e6:g} Mbit/s with a queue of {actual[1]:g} "
                f"bytes, but {expected.rate_mbps:g} Mbit/s and {expected.queue_bytes} bytes were set"
            )
