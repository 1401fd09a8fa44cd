"""A captured frame in a few words, for people: who sends what to whom. Pure."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping

from topologies.addresses import ipv4
from topologies.model import Fabric

ETHERNET_BYTES = 14
_IPV4, _ARP = 0x0800, 0x0806
_ICMP, _TCP, _UDP = 1, 6, 17
_TCP_FLAGS = ((0x02, "SYN"), (0x01, "FIN"), (0x04, "RST"), (0x08, "PSH"), (0x10, "ACK"))
_ICMP_TYPES = {0: "echo reply", 3: "unreachable", 8: "echo request", 11: "time exceeded"}
BFD_PORT = 3784


def names_of(fabric: Fabric) -> dict[str, str]:
    """GPU ids by their addresses."""
    return {ipv4(gpu.domain, gpu.rail): gpu.id for gpu in fabric.gpus}


def frame_words(frame: bytes, length_bytes: int, names: Mapping[str, str]) -> str:
    """``d0r1 > d1r1 TCP 40000 > 5201 ACK, 1448 bytes``: the frame of ``length_bytes``, of which ``frame`` was kept."""
    if len(frame) < ETHERNET_BYTES:
        return f"{length_bytes} bytes, too short for Ethernet"
    (kind,) = struct.unpack("!H", frame[12:14])
    if kind == _ARP:
        return f"ARP, {length_bytes} bytes"
    if kind != _IPV4 or len(frame) < ETHERNET_BYTES + 20:
        return f"Ethernet type 0x{kind:04x}, {length_bytes} bytes"
    head = (frame[ETHERNET_BYTES] & 0x0F) * 4
    protocol = frame[ETHERNET_BYTES + 9]
    src, dst = (socket.inet_ntoa(frame[at : at + 4]) for at in (ETHERNET_BYTES + 12, ETHERNET_BYTES + 16))
    (total,) = struct.unpack("!H", frame[ETHERNET_BYTES + 2 : ETHERNET_BYTES + 4])
    # A super-packet of more than 64 KiB has no length of its own in its header.
    total = total or length_bytes - ETHERNET_BYTES
    payload = frame[ETHERNET_BYTES + head :]
    what = _protocol_words(protocol, payload, total - head)
    return f"{names.get(src, src)} > {names.get(dst, dst)} {what}"


def _protocol_words(protocol: int, payload: bytes, length_bytes: int) -> str:
    """What an IPv4 packet with ``length_bytes`` behind its header carries."""
    if protocol == _TCP and len(payload) >= 14:
        src, dst = struct.unpack("!HH", payload[:4])
        flags = " ".join(name for bit, name in _TCP_FLAGS if payload[13] & bit)
        return f"TCP {src} > {dst} {flags}, {length_bytes - (payload[12] >> 4) * 4} bytes"
    if protocol == _UDP and len(payload) >= 8:
        src, dst = struct.unpack("!HH", payload[:4])
        return "BFD" if dst == BFD_PORT else f"UDP {src} > {dst}, {length_bytes - 8} bytes"
    if protocol == _ICMP and payload:
        return f"ICMP {_ICMP_TYPES.get(payload[0], f'type {payload[0]}')}, {length_bytes - 8} bytes"
    return f"IP protocol {protocol}, {length_bytes} bytes"
