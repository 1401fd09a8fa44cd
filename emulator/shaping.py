"""Sets the shape of interfaces in the kernel and reads it back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl.tcmsg import plugins

from emulator.errors import ShapingError
from emulator.netem import HANDLE as NETEM_HANDLE
from emulator.netem import Netem, netem_of
from emulator.shape import Shape, tc_batch
from emulator.tc import run_batch

# pyroute2 knows pfifo but not its byte-counting twin; both have the same single option, the limit.
plugins.setdefault("bfifo", plugins["pfifo"])

LINK_CLASS = 0x00010001
DATA_CLASS = 0x00010002
DATA_QUEUE = 0x00020000


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


@dataclass(frozen=True)
class Queues:
    """What the kernel holds of every shaped interface, by its index.

    ``limit_bytes`` is the bound of the data queue; ``netem`` has only the interfaces that delay or lose packets.
    """

    limit_bytes: dict[int, int]
    netem: dict[int, Netem]


def read_queues(netlink: IPRoute) -> Queues:
    """The queues of all interfaces of the namespace."""
    found = Queues({}, {})
    for message in netlink.get_qdiscs():
        kind, options = message.get_attr("TCA_KIND"), message.get_attr("TCA_OPTIONS")
        if kind == "bfifo" and (message["handle"], message["parent"]) == (DATA_QUEUE, DATA_CLASS):
            found.limit_bytes[message["index"]] = options["limit"]
        elif kind == "netem" and message["handle"] == NETEM_HANDLE:
            found.netem[message["index"]] = netem_of(options)
    return found


def check_shapes(netlink: IPRoute, wanted: Mapping[int, Shape], names: Mapping[int, str]) -> None:
    """Raise ShapingError naming the first interface whose rate or queue is not what was set."""
    rates, queues = read_rates(netlink, wanted), read_queues(netlink)
    for index, expected in wanted.items():
        if index not in rates or index not in queues.limit_bytes:
            raise ShapingError(
                f"interface {names[index]} is not shaped though {expected.rate_mbps:g} Mbit/s was set; "
                "'railbed doctor' says whether this kernel has HTB"
            )
        actual = rates[index], queues.limit_bytes[index]
        if actual != (expected.rate_bytes_per_s, expected.queue_bytes):
            raise ShapingError(
                f"interface {names[index]} is shaped to {actual[0] * 8 / 1e6:g} Mbit/s with a queue of {actual[1]:g} "
                f"bytes, but {expected.rate_mbps:g} Mbit/s and {expected.queue_bytes} bytes were set"
            )
