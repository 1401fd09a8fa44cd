"""Set, show and reset, for every kind of impairment, against a stand-in for the running fabric."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.typed import typed

HEALTHY = {
    "link": "d0r0-rail0", "down": False, "blackhole": [], "rate_mbps": None, "own_rate_mbps": 20.0,
    "delay_ms": 0.0, "jitter_ms": 0.0, "loss_share": 0.0,
}  # fmt: skip
FLAPS = {"link": "d0r0-rail0", "flapping": True, "down_s": 0.5, "up_s": 1.0, "count": 5, "remaining": 3}


class Fabric:
    """Notes what it was asked and answers with ``state``."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.state: dict[str, Any] = HEALTHY

    def __getattr__(self, verb: str) -> Any:
        def call(*words: Any, **named: Any) -> dict[str, Any]:
            self.calls.append((verb, *words, *named.items()))
            return self.state

        return call


@pytest.fixture
def fabric(monkeypatch: pytest.MonkeyPatch) -> Fabric:
    made = Fabric()
    for command in ("delay", "loss", "degrade", "blackhole", "flap"):
        monkeypatch.setattr(f"cli.{command}.running_fabric", lambda _name: made)
        monkeypatch.setattr(f"cli.{command}.need_root", lambda _command: None)
    return made


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code, out, err = typed(capsys, *words)
    return code, out + err


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (("delay", "40"), ("delay", "d0r0-rail0", 40.0, 0.0)),
        (("delay", "40", "--jitter-ms", "5"), ("delay", "d0r0-rail0", 40.0, 5.0)),
        (("delay", "0"), ("delay", "d0r0-rail0", 0.0, 0.0)),
        (("delay", "--reset"), ("delay", "d0r0-rail0", 0.0, 0.0)),
        (("delay", "--show"), ("impairment", "d0r0-rail0")),
        (("loss", "2.5"), ("lose", "d0r0-rail0", 0.025)),
        (("loss", "--reset"), ("lose", "d0r0-rail0", 0.0)),
        (("loss", "--show"), ("impairment", "d0r0-rail0")),
        (("degrade", "5"), ("degrade", "d0r0-rail0", 5.0)),
        (("degrade", "--reset"), ("degrade", "d0r0-rail0", None)),
        (("degrade", "--show"), ("impairment", "d0r0-rail0")),
        (("blackhole",), ("blackhole", "d0r0-rail0", "both", ("on", True))),
        (("blackhole", "--direction", "in"), ("blackhole", "d0r0-rail0", "in", ("on", True))),
        (("blackhole", "--reset"), ("blackhole", "d0r0-rail0", "both", ("on", False))),
        (("blackhole", "--show"), ("impairment", "d0r0-rail0")),
    ],
)
def test_each_verb_asks_the_fabric_for_just_that(
    capsys: pytest.CaptureFixture[str], fabric: Fabric, words: tuple[str, ...], call: tuple[Any, ...]
) -> None:
    assert run(capsys, words[0], "d0r0-rail0", *words[1:])[0] == 0
    assert fabric.calls == [call]


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (("--down-s", "0.5", "--count", "3"), ("flap", "d0r0-rail0", 0.5, 1.0, 3)),
        (("--reset",), ("stop_flap", "d0r0-rail0")),
        (("--show",), ("flapping", "d0r0-rail0")),
    ],
)
def test_flaps_have_the_three_verbs_too(
    capsys: pytest.CaptureFixture[str], fabric: Fabric, words: tuple[str, ...], call: tuple[Any, ...]
) -> None:
    fabric.state = FLAPS
    code, text = run(capsys, "flap", "d0r0-rail0", *words)
    assert (code, text) == (0, "d0r0-rail0 flaps: 0.5 s down, 1 s up, 3 of 5 to come\n")
    assert fabric.calls == [call]


@pytest.mark.parametrize(
    ("command", "state", "text"),
    [
        ("delay", {"delay_ms": 40.0, "jitter_ms": 5.0, "loss_share": 0.025}, "delay 40 +/- 5 ms, loss 2.5 %"),
        ("loss", {"loss_share": 0.001}, "delay 0 ms, loss 0.1 %"),
        ("degrade", {"rate_mbps": 5.0}, "5 of 20 Mbit/s (emulated)"),
        ("degrade", {}, "20 Mbit/s (emulated), its own rate"),
        ("blackhole", {"blackhole": ["out", "in"]}, "swallows all packets (out and in); its ports stay up"),
        ("blackhole", {}, "swallows nothing"),
    ],
)
def test_what_is_shown(
    capsys: pytest.CaptureFixture[str], fabric: Fabric, command: str, state: dict[str, Any], text: str
) -> None:
    fabric.state = {**HEALTHY, **state}
    assert run(capsys, command, "d0r0-rail0", "--show") == (0, f"d0r0-rail0: {text}\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("delay",), "give one of DELAY_MS, --show and --reset"),
        (("delay", "4", "--reset"), "give one of DELAY_MS, --show and --reset"),
        (("loss", "--show", "--reset"), "give one of LOSS_PERCENT, --show and --reset"),
        (("degrade",), "give one of RATE_MBPS, --show and --reset"),
        (("blackhole", "--show", "--reset"), "give --show or --reset, not both"),
        (("flap", "--show", "--reset"), "give --show or --reset, not both"),
    ],
)
def test_none_or_two_verbs_at_once_are_wrong_use(
    capsys: pytest.CaptureFixture[str], fabric: Fabric, words: tuple[str, ...], text: str
) -> None:
    code, said = run(capsys, words[0], "d0r0-rail0", *words[1:])
    assert code == 2
    assert text in said
    assert fabric.calls == []
