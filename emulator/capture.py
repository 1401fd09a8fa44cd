"""Packets of one link of a running fabric, as they cross it: behind the shaper, in both directions."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.errors import NoSuchFabricError
from emulator.kernel import inside_network_namespace
from emulator.names import link_interfaces
from emulator.rundir import RunDir

if TYPE_CHECKING:
    from topologies.model import Link

ETH_P_ALL = 0x0003
SOL_PACKET, PACKET_STATISTICS = 263, 6
SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
PACKET_OUTGOING = 4
RECEIVE_BUFFER_BYTES = 32 << 20
LARGEST_BYTES = 262_144
LOOK_S = 0.2
"""How often it is looked whether the fabric is still there."""


@dataclass(frozen=True)
class Captured:
    """One packet: when (ns since 1970), whether it left the GPU (or leaf), what was kept of it, and its length."""

    at_ns: int
    outbound: bool
    data: bytes
    length_bytes: int


@dataclass
class Tally:
    """How many packets there were each way, and how many the kernel dropped because we were too slow."""

    outbound: int = 0
    inbound: int = 0
    dropped: int = 0
    fabric_ended: bool = False

    @property
    def packets(self) -> int:
        """All that were captured."""
        return self.outbound + self.inbound


class LinkCapture:
    """Captures at the end of a link that is nearer to the GPU, where both directions are seen."""

    def __init__(self, fabric_name: str, link: Link) -> None:
        """Raises NoSuchFabricError if the fabric, and OSError if the interface is not there."""
        interface = link_interfaces(link)[0]
        self._path = RunDir(fabric_name).namespace_path
        try:
            namespace = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise NoSuchFabricError(
                f"the fabric '{fabric_name}' is gone; 'railbed status' lists those that are up"
            ) from None
        try:
            with inside_network_namespace(namespace):
                # Bound to nothing first: until it has an interface of its own it must not see those of all links.
                self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        finally:
            os.close(namespace)
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.bind((interface, ETH_P_ALL))
        self._socket.settimeout(LOOK_S)
        self.tally = Tally()

    def run(
        self, take: Callable[[Captured], None], snap_bytes: int, most_packets: int | None, duration_s: float | None
    ) -> None:
        """Give packets, cut after ``snap_bytes``, to ``take``, until there are ``most_packets`` or time is up.

        It also ends with the fabric. What an interrupt leaves in ``tally`` is right.
        """
        end_s = None if duration_s is None else time.monotonic() + duration_s
        tally = self.tally
        while (most_packets is None or tally.packets < most_packets) and (end_s is None or time.monotonic() < end_s):
            try:
                data, ancillary, _, address = self._socket.recvmsg(LARGEST_BYTES, 64)
            except TimeoutError:
                if not self._path.exists():
                    tally.fabric_ended = True
                    return
                continue
            except OSError:  # the interface has gone
                tally.fabric_ended = True
                return
            outbound = address[2] == PACKET_OUTGOING
            take(Captured(_nanoseconds(ancillary), outbound, data[:snap_bytes], len(data)))
            if outbound:
                tally.outbound += 1
            else:
                tally.inbound += 1

    def close(self) -> None:
        """Capture no more, and ask the kernel what was missed."""
        with suppress(OSError):
            statistics = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
            self.tally.dropped = struct.unpack("II", statistics)[1]
        self._socket.close()


def _nanoseconds(ancillary: list[tuple[int, int, bytes]]) -> int:
    seconds, nanoseconds = struct.unpack("qq", ancillary[0][2][:16])
    return int(seconds) * 1_000_000_000 + int(nanoseconds)
