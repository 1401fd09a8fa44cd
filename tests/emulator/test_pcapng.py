"""Captured packets: the file as scapy reads it (the process of a test may), and frames in words."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw
from scapy.utils import rdpcap

from emulator.packet_words import frame_words, names_of
from emulator.pcapng import header, packet
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec

NAMES = names_of(build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2)))
AT_NS = 1_764_500_000_123_456_789


def test_scapy_reads_packets_with_their_direction_time_and_length(tmp_path: Path) -> None:
    frame = bytes(Ether() / IP(src="10.0.1.1", dst="10.0.2.1") / UDP(sport=1, dport=2) / Raw(b"x" * 51))
    path = tmp_path / "link.pcapng"
    path.write_bytes(
        header(("d0r1-rail1 out", "d0r1-rail1 in"), 256)
        + packet(0, AT_NS, frame, len(frame), outbound=True)
        + packet(1, AT_NS + 1_000, frame[:60], len(frame), outbound=False)
    )
    first, second = rdpcap(str(path))
    assert bytes(first) == frame
    assert bytes(second) == frame[:60]
    assert [one.sniffed_on for one in (first, second)] == ["d0r1-rail1 out", "d0r1-rail1 in"]
    assert [one.wirelen for one in (first, second)] == [len(frame)] * 2
    assert [one.direction for one in (first, second)] == [2, 1]
    assert float(first.time) == pytest.approx(AT_NS / 1e9)
    assert float(second.time - first.time) == pytest.approx(1e-6)


@given(st.lists(st.binary(max_size=80), max_size=5), st.text("abc-#1 ", max_size=20))
def test_every_block_says_its_length_twice_and_ends_on_a_word(packets: list[bytes], name: str) -> None:
    data = header((name, name), 64) + b"".join(
        packet(place % 2, AT_NS, one, len(one), outbound=bool(place % 2)) for place, one in enumerate(packets)
    )
    blocks = 0
    while data:
        (length,) = struct.unpack("<I", data[4:8])
        assert length % 4 == 0
        assert struct.unpack("<I", data[length - 4 : length]) == (length,)
        data = data[length:]
        blocks += 1
    assert blocks == 3 + len(packets)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (IP(src="10.0.1.1", dst="10.0.2.1") / TCP(sport=40000, dport=5201, flags="S"),
         "d0r1 > d1r1 TCP 40000 > 5201 SYN, 0 bytes"),
        (IP(src="10.0.1.1", dst="10.0.2.1") / TCP(sport=40000, dport=5201, flags="PA") / Raw(b"x" * 1448),
         "d0r1 > d1r1 TCP 40000 > 5201 PSH ACK, 1448 bytes"),
        (IP(src="10.0.1.0", dst="10.9.9.9") / UDP(sport=9, dport=7) / Raw(b"x" * 10),
         "d0r0 > 10.9.9.9 UDP 9 > 7, 10 bytes"),
        (IP(src="10.0.1.0", dst="10.0.2.0") / ICMP() / Raw(b"x" * 56), "d0r0 > d1r0 ICMP echo request, 56 bytes"),
        (IP(src="10.0.1.0", dst="10.0.2.0") / UDP(dport=3784) / Raw(b"x" * 24), "d0r0 > d1r0 BFD"),
        (IP(src="10.0.1.0", dst="10.0.2.0", proto=47) / Raw(b"x" * 8), "d0r0 > d1r0 IP protocol 47, 8 bytes"),
        (ARP(), "ARP, 42 bytes"),
    ],
)  # fmt: skip
def test_frames_in_words(frame: object, words: str) -> None:
    data = bytes(Ether(src="02:72:00:01:00:01", dst="02:72:00:02:00:01") / frame)
    assert frame_words(data[:256], len(data), NAMES) == words


@given(st.binary(max_size=120))
def test_any_bytes_have_words(data: bytes) -> None:
    assert frame_words(data, len(data), NAMES)
    assert frame_words(b"\0" * 12 + b"\x08\x00\x45" + data, len(data) + 15, NAMES)
