"""Sends marked probes from one GPU and captures them at every switch port. A program of its own.

Scapy is GPL-2.0, so it is used in a separate process that talks JSON: run as ``python -m emulator.hop_probe`` in the
fabric's network namespace, with the order on standard input; prints one object on standard output. One packet socket
sees every switch-side interface, so no rule is added to any switch, and its queue orders all hops.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import socket
import struct
import sys
import time
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from emulator.kernel import inside_network_namespace

PROBE_PORT = 5997
ETH_P_ALL = 0x0003
SO_ATTACH_FILTER = 26
SO_TIMESTAMPNS = 35
PACKET_OUTGOING = 4
RECEIVE_BUFFER_BYTES = 8 << 20


def _filter_for_probes() -> bytes:
    """A classic BPF program: IPv4, UDP, our destination port; everything else is left out by the kernel."""
    program = (
        (0x28, 0, 0, 12), (0x15, 0, 5, 0x0800), (0x30, 0, 0, 23), (0x15, 0, 3, 17), (0x28, 0, 0, 36),
        (0x15, 0, 1, PROBE_PORT), (0x06, 0, 0, 0x40000), (0x06, 0, 0, 0),
    )  # fmt: skip
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def _capture_socket() -> socket.socket:
    capture = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    program = ctypes.create_string_buffer(_filter_for_probes())
    count = len(program.raw) // 8
    capture.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", count, ctypes.addressof(program)))
    capture.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    capture.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    return capture


def _probe(order: dict[str, Any], mark: bytes, number: int) -> bytes:
    frame = (
        Ether(src=order["src_mac"], dst=order["dst_mac"])
        / IP(src=order["src_ip"], dst=order["dst_ip"], ttl=64)
        / UDP(sport=PROBE_PORT, dport=PROBE_PORT)
        / Raw(mark + number.to_bytes(4, "big"))
    )
    return bytes(frame)


def _sighting(capture: socket.socket, mark: bytes) -> tuple[int, dict[str, Any]] | None:
    """The next captured probe of ours as (number, hop); None if nothing (of ours) came."""
    data, ancillary, _, address = capture.recvmsg(2048, 64)
    packet = Ether(data)
    payload = bytes(packet[UDP].payload) if UDP in packet else b""
    if not payload.startswith(mark):
        return None
    seconds, nanoseconds = struct.unpack("qq", ancillary[0][2][:16])
    hop = {
        "t_s": seconds + nanoseconds / 1e9,
        "interface": address[0],
        "direction": "out" if address[2] == PACKET_OUTGOING else "in",
        "ttl": packet[IP].ttl,
    }
    return int.from_bytes(payload[len(mark) : len(mark) + 4], "big"), hop


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Send ``count`` probes, one after the other, and collect the hops of each until it reached ``last_interface``.

    ``order`` has ``namespace_fd`` of the source, addresses, ``count``, ``last_interface`` and ``timeout_s``.
    """
    mark = secrets.token_bytes(8)
    with inside_network_namespace(order["namespace_fd"]):
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sender.bind(("eth0", 0))
    probes: list[list[dict[str, Any]]] = [[] for _ in range(order["count"])]
    with _capture_socket() as capture, sender:
        for number, hops in enumerate(probes):
            sender.send(_probe(order, mark, number))
            deadline = time.monotonic() + order["timeout_s"]
            while time.monotonic() < deadline and not _arrived(hops, order["last_interface"]):
                capture.settimeout(max(0.001, deadline - time.monotonic()))
                try:
                    sighting = _sighting(capture, mark)
                except TimeoutError:
                    break
                if sighting is not None:
                    probes[sighting[0]].append(sighting[1])
    for hops in probes:
        bound_late_stamps(hops)
    return {"probes": probes}


def bound_late_stamps(hops: list[dict[str, Any]]) -> None:
    """Let no hop (in the order of capture) be later than one that follows it.

    The order in which one socket gets its packets is the order of the hops. Their times are less certain: the kernel
    starts stamping some time after it was asked to, and what it has not stamped gets the time at which it is read: too
    late, never too early.
    """
    earliest_s = float("inf")
    for hop in reversed(hops):
        earliest_s = hop["t_s"] = min(earliest_s, hop["t_s"])


def _arrived(hops: list[dict[str, Any]], last_interface: str) -> bool:
    return any(hop["interface"] == last_interface and hop["direction"] == "out" for hop in hops)


if __name__ == "__main__":
    json.dump(run(json.load(sys.stdin)), sys.stdout)
    sys.stdout.flush()
    os._exit(0)
