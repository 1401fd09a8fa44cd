"""What a user sees who makes a mistake: one sentence on stderr, exit code 1 or 2, no traceback."""

from __future__ import annotations

import pytest

from cli.main import COMMANDS
from tests.cli.typed import typed as run
from topologies.errors import RailbedError


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("upp",), "did you mean 'up'?"),
        (("frobnicate",), "'railbed --help' lists the commands"),
        (("up", "--preset", "dgx-h10"), "did you mean 'dgx-h100'?"),
        (("up", "rail-onyl"), "did you mean 'rail-only'?"),
        (("up", "--domains", "0"), "domains is 0"),
        (("up", "--rails", "0"), "rails is 0"),
        (("up", "--rails", "-3"), "rails is -3"),
        (("up", "--domains", "many"), "'many'"),
        (("up", "--uplinks", "3"), "uplinks is 3"),
        (("up", "--oversubscription", "0"), "oversubscription is 0"),
        (("up", "--rate-factor", "0"), "scale.rate is 0"),
        (("up", "--rate-factor", "nan"), "scale.rate is nan"),
        (("up", "--rate-factor", "10"), "change scale.rate"),
        (("up", "--domains", "100"), "400 GPUs are more than the emulator's 256"),
        (("up", "--openflow-port", "70000"), "70000"),
        (("up", "--framework", "nox"), "'nox'"),
        (("up", "--domans", "4"), "--domains"),
        (("fail",), "TARGET"),
        (("bench", "fidelty"), "did you mean 'fidelity'"),
        (("restore",), "TARGET"),
        (("run", "no-such-file.yaml"), "no-such-file.yaml"),
        (("run", "."), "this is a folder"),
        (("setup",), "run ./railbed setup in the checkout"),
        (("test",), "run ./railbed test in the checkout"),
        (("uninstall",), "run ./railbed uninstall in the checkout"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], named: str
) -> None:
    code, out, err = run(capsys, *words)
    assert code == 2
    assert out == ""
    assert err.startswith("railbed: ")
    assert named in err
    assert len(err.splitlines()) == 1


def raising(error: BaseException) -> object:
    def start(*_: object, **__: object) -> None:
        raise error

    return start


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (RailbedError("the disk is full: free some space"), 1, "railbed: the disk is full: free some space\n"),
        (
            ModuleNotFoundError("No module named 'pyroute2'", name="pyroute2"),
            2,
            "railbed: this command needs pyroute2, which live fabrics use and this installation lacks: "
            "run ./railbed in a checkout, or install the extra 'emulator'\n",
        ),
        (KeyboardInterrupt(), 1, "\nrailbed: interrupted\n"),
        (
            ZeroDivisionError("a\nb"),
            1,
            "railbed: unexpected ZeroDivisionError: a b; 'railbed --debug ...' shows the trace\n",
        ),
    ],
)
def test_errors_of_a_command_become_a_sentence(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    sentence: str,
) -> None:
    monkeypatch.setattr("emulator.doctor.examine", raising(error))
    assert run(capsys, "doctor") == (code, "", sentence)


def test_the_trace_is_shown_only_when_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulator.doctor.examine", raising(ZeroDivisionError("x")))
    code, _, err = run(capsys, "--debug", "doctor")
    assert code == 1
    assert "Traceback" in err
    assert err.endswith("railbed: unexpected ZeroDivisionError: x; 'railbed --debug ...' shows the trace\n")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(f"  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, err = run(capsys, name, "--help")
    assert (code, err) == (0, "")
    assert f"Usage: railbed {name}" in out
