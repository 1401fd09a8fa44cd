"""`capture` as typed, with packets from a stand-in for the link."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emulator.capture import Captured, Tally
from tests.cli.typed import typed
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec

FRAME = bytes(12) + b"\x08\x06" + bytes(28)


class LinkCapture:
    """One packet each way, and then what ``ends`` says."""

    ends: Any = None

    def __init__(self, name: str, link: Any) -> None:
        assert (name, link.id) == ("lab", "d0r1-rail1")
        self.tally = Tally()
        self.closed = False

    def run(self, take: Any, snap_bytes: int, most: int, duration_s: float) -> None:
        assert (snap_bytes, most, duration_s) == (64, 5, 60.0)
        take(Captured(1_000_000_000, True, FRAME, len(FRAME)))
        take(Captured(1_250_000_000, False, FRAME, len(FRAME)))
        self.tally.outbound = self.tally.inbound = 1
        if self.ends is KeyboardInterrupt:
            raise KeyboardInterrupt
        self.tally.fabric_ended = self.ends == "gone"

    def close(self) -> None:
        self.tally.dropped = 7 if self.ends is KeyboardInterrupt else 0


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> type[LinkCapture]:
    fabric = SimpleNamespace(name="lab", fabric=build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2)))
    monkeypatch.setattr("cli.capture.running_fabric", lambda _name: fabric)
    monkeypatch.setattr("cli.capture.need_root", lambda _command: None)
    monkeypatch.setattr("emulator.capture.LinkCapture", LinkCapture)
    monkeypatch.setattr(LinkCapture, "ends", None)
    return LinkCapture


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    return typed(capsys, "capture", *words)


LIMITS = ("d0r1-rail1", "--bytes", "64", "--count", "5")


def test_a_line_for_each_packet_with_its_direction(capsys: pytest.CaptureFixture[str], link: type[LinkCapture]) -> None:
    assert run(capsys, *LIMITS) == (
        0, "  0.000000 out ARP, 42 bytes\n  0.250000 in  ARP, 42 bytes\n", "2 packets (1 out, 1 in)\n"
    )  # fmt: skip


def test_ctrl_c_is_an_end_like_any_other(
    capsys: pytest.CaptureFixture[str], link: type[LinkCapture], tmp_path: Path
) -> None:
    link.ends = KeyboardInterrupt
    path = tmp_path / "a.pcapng"
    code, out, err = run(capsys, *LIMITS, "-w", str(path))
    assert (code, err) == (0, "")
    assert out == f"2 packets (1 out, 1 in) in {path}; 7 more were missed, because they came too fast\n"
    assert path.read_bytes().count(b"d0r1-rail1 in") == 1


def test_the_end_of_the_fabric_is_said(
    capsys: pytest.CaptureFixture[str], link: type[LinkCapture], tmp_path: Path
) -> None:
    link.ends = "gone"
    code, _, err = run(capsys, *LIMITS)
    assert (code, err) == (1, "2 packets (1 out, 1 in); the fabric was taken down meanwhile\n")
    code, out, _ = run(capsys, *LIMITS, "-w", str(tmp_path / "a.pcapng"), "--json")
    summed = json.loads(out)
    assert (code, summed["packets_out"], summed["packets_in"], summed["fabric_ended"]) == (1, 1, 1, True)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("d0r1-rail1", "--json"), 2, "give -w FILE too"),
        (("d0r1-rail1", "--json", "-w", "-"), 2, "cannot both go to standard output"),
        (("d0r1-rail9",), 2, "no link 'd0r1-rail9'"),
        (("d0r1-s0r1",), 2, "inside a GPU"),
        ((*LIMITS, "-w", "/nowhere/a.pcapng"), 1, "/nowhere/a.pcapng cannot be written: No such file"),
        ((*LIMITS, "-w", "/dev/full"), 1, "/dev/full cannot be written: No space left"),
        (("d0r1-rail1", "--count", "0"), 2, "--count"),
    ],
)
def test_mistakes(
    capsys: pytest.CaptureFixture[str], link: type[LinkCapture], words: tuple[str, ...], code: int, text: str
) -> None:
    said, out, err = run(capsys, *words)
    assert (said, out, err.count("\n")) == (code, "", 1)
    assert text in err
