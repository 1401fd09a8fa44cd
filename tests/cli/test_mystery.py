"""`mystery` and `solve` as typed, against a stand-in for the running fabric."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.typed import typed

FAULT = {
    "link": "d0r1-rail1", "down": False, "blackhole": ["out"], "rate_mbps": None, "own_rate_mbps": 20.0,
    "delay_ms": 0.0, "jitter_ms": 0.0, "loss_share": 0.0,
}  # fmt: skip
OPEN = {"open": True, "seed": 7, "kinds": ["blackhole", "one-way"], "tries": 0}


class Fabric:
    """Answers as told, and notes what it was asked."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.answer: dict[str, Any] = OPEN

    def __getattr__(self, verb: str) -> Any:
        def call(*words: Any) -> dict[str, Any]:
            self.calls.append((verb, *words))
            return self.answer

        return call


@pytest.fixture
def fabric(monkeypatch: pytest.MonkeyPatch) -> Fabric:
    made = Fabric()
    for command in ("mystery", "solve"):
        monkeypatch.setattr(f"cli.{command}.running_fabric", lambda _name: made)
        monkeypatch.setattr(f"cli.{command}.need_root", lambda _command: None)
    return made


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code, out, err = typed(capsys, *words)
    return code, out + err


def test_a_mystery_says_its_seed_and_never_its_link(capsys: pytest.CaptureFixture[str], fabric: Fabric) -> None:
    code, text = run(capsys, "mystery", "--seed", "7", "--kinds", "blackhole, one-way")
    assert fabric.calls == [("hide_fault", 7, ["blackhole", "one-way"])]
    assert code == 0
    assert text.startswith("a fault is hidden on one link (seed 7; blackhole or one-way): find it")
    assert json.loads(run(capsys, "mystery", "--json")[1]) == OPEN
    assert fabric.calls[-1][0] == "hide_fault"
    assert 0 <= fabric.calls[-1][1] < 1_000_000
    fabric.answer = {**OPEN, "tries": 3}
    assert "tries so far: 3" in run(capsys, "mystery", "--show")[1]
    assert fabric.calls[-1] == ("mystery",)
    fabric.answer = {"open": False}
    assert run(capsys, "mystery", "--show") == (0, "nothing is hidden\n")


@pytest.mark.parametrize(("judgement", "code"), [("right", 0), ("close", 1), ("wrong", 1)])
def test_the_exit_code_says_whether_it_is_right(
    capsys: pytest.CaptureFixture[str], fabric: Fabric, judgement: str, code: int
) -> None:
    fabric.answer = {
        "judgement": judgement, "sentence": f"{judgement}: so it is", "tries": 2, "open": judgement != "right",
        "fault": FAULT if judgement == "right" else None,
    }  # fmt: skip
    said, text = run(capsys, "solve", "d0r1-rail1")
    assert said == code
    assert text.splitlines()[0] == f"{judgement}: so it is (after 2 tries)"
    assert ("swallows packets (out)" in text) == (judgement == "right")
    assert fabric.calls == [("solve", "d0r1-rail1")]


def test_giving_up(capsys: pytest.CaptureFixture[str], fabric: Fabric) -> None:
    sentence = "it was d0r1-rail1"
    fabric.answer = {"judgement": "given-up", "sentence": sentence, "tries": 1, "open": False, "fault": FAULT}
    assert run(capsys, "solve", "--give-up") == (
        0,
        "it was d0r1-rail1 (after 1 try)\nd0r1-rail1: swallows packets (out); 'restore d0r1-rail1' mends it\n",
    )
    assert fabric.calls == [("give_up",)]


@pytest.mark.parametrize("words", [("solve",), ("solve", "d0r1", "--give-up"), ("mystery", "--show", "--seed", "1")])
def test_wrong_use(capsys: pytest.CaptureFixture[str], fabric: Fabric, words: tuple[str, ...]) -> None:
    assert run(capsys, *words)[0] == 2
    assert fabric.calls == []
