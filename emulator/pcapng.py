"""Captured packets as a pcapng file (draft-ietf-opsawg-pcapng): two interfaces, one for each direction of a link. Pure.

Wireshark, tcpdump and scapy read it; the name of a packet's interface and its flags say which way it went.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

LINKTYPE_ETHERNET = 1
_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_BYTE_ORDER = 0x1A2B3C4D
_OPTION_NAME, _OPTION_RESOLUTION, _OPTION_APPLICATION, _OPTION_FLAGS = 2, 9, 4, 2
_NANOSECONDS = 9
_INBOUND, _OUTBOUND = 1, 2


def header(interfaces: Sequence[str], snap_bytes: int) -> bytes:
    """The beginning of a file whose packets are on ``interfaces`` and cut after ``snap_bytes``; times are in ns."""
    section = struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1)
    blocks = [_block(_SECTION, section + _options([(_OPTION_APPLICATION, b"Railbed")]))]
    for name in interfaces:
        options = [(_OPTION_NAME, name.encode()), (_OPTION_RESOLUTION, bytes([_NANOSECONDS]))]
        blocks.append(_block(_INTERFACE, struct.pack("<HHI", LINKTYPE_ETHERNET, 0, snap_bytes) + _options(options)))
    return b"".join(blocks)


def packet(interface: int, at_ns: int, data: bytes, length_bytes: int, outbound: bool) -> bytes:
    """One packet of ``length_bytes`` on the ``interface``-th interface, of which ``data`` was kept."""
    high, low = at_ns >> 32, at_ns & 0xFFFFFFFF
    head = struct.pack("<IIIII", interface, high, low, len(data), length_bytes)
    flags = struct.pack("<I", _OUTBOUND if outbound else _INBOUND)
    return _block(_PACKET, head + _padded(data) + _options([(_OPTION_FLAGS, flags)]))


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def _options(options: Iterable[tuple[int, bytes]]) -> bytes:
    written = [struct.pack("<HH", code, len(value)) + _padded(value) for code, value in options]
    return b"".join(written) + struct.pack("<HH", 0, 0)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
