"""A console on a stand-in for the running fabric: which verb does what, and what mistakes are answered with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cli import console as console_module
from cli.console import Console, FabricEndedError
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec
from topologies.scale import default_scale


class Running:
    """A fabric that is up, as far as a console asks."""

    name = "lab"

    def __init__(self) -> None:
        self.fabric = build(FabricSpec(FabricKind.RAIL_OPTIMIZED, 2, 2, spines=2, parallel_links=2))
        self.scale = default_scale(self.fabric)

    def status(self) -> dict[str, Any]:
        return {"links_down": ["d0r0-leaf0"]}

    def impairments(self) -> list[dict[str, Any]]:
        return [{"link": "d0r1-leaf1", "down": False, "blackhole": [], "rate_mbps": 5.0, "delay_ms": 0.0,
                 "jitter_ms": 0.0, "loss_share": 0.0}]  # fmt: skip

    def steady(self, pairs: list[tuple[str, str]], _window_s: float) -> dict[str, Any]:
        assert pairs == [("d0r0", "d0r1")]
        return {"rates_mbps": [18.44], "overload": ""}


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Words of every Railbed command that a console ran."""
    ran: list[list[str]] = []

    def run_words(words: list[str]) -> int:
        ran.append(words)
        return 1 if "broken" in words else 0

    monkeypatch.setattr(console_module, "run_words", run_words)
    return ran


@pytest.fixture
def console(commands: list[list[str]]) -> Iterator[Console]:
    nothing, never = os.pipe()
    with os.fdopen(nothing) as keys:
        made = Console(Running(), keys, lambda: ["failure-nic"])  # type: ignore[arg-type]
        yield made
        made.close()
    os.close(never)


def test_verbs_run_railbeds_commands_on_this_fabric(console: Console, commands: list[list[str]]) -> None:
    console.script(iter(["fail leaf0-spine1#2", "path d0r0 d1r1 --probes 2 # look", "status", "why a b --name other"]))
    console.script(iter(["diagnose --seconds 3", "diagnose latest"]))
    assert commands == [
        ["fail", "--name", "lab", "leaf0-spine1#2"],
        ["path", "--name", "lab", "d0r0", "d1r1", "--probes", "2"],
        ["status"],
        ["why", "a", "b", "--name", "other"],
        ["diagnose", "--name", "lab", "--seconds", "3"],
        ["diagnose", "latest"],
    ]
    assert console.code == 0


def test_it_goes_on_after_a_mistake_and_keeps_the_first_exit_code(
    console: Console, commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    console.script(iter(["fail broken", "frobnicate", "fail 'x", "links nowhere", "fail d0r0"]))
    assert [words[-1] for words in commands] == ["broken", "d0r0"]
    assert console.code == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert all(line.startswith("railbed: ") for line in errors)
    assert "no command and no node 'frobnicate'" in errors[0]
    assert "not closed" in errors[1]
    assert "no node or link 'nowhere'" in errors[2]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("xterm d0r0", "no window"),
        ("switch spine0 stop", "'fail'"),
        ("d0r0", "give a command for d0r0"),
        ("fial d0r0", "did you mean 'fail'?"),
        ("link d0r0 d1r1 down", "no link joins d0r0 and d1r1"),
        ("link d0r0 up", "takes two nodes"),
        ("iperf d0r0", "takes two GPUs"),
        ("iperf d0r0 d9r9", "no GPU 'd9r9'"),
        ("source nowhere.txt", "cannot be read"),
        ("record stop", "nothing is being recorded"),
        ("help frobnicate", "no help on 'frobnicate'"),
    ],
)
def test_mistakes_are_answered_with_one_sentence(
    console: Console, capsys: pytest.CaptureFixture[str], line: str, text: str
) -> None:
    console.onecmd(line)
    out, err = capsys.readouterr()
    assert text in err
    assert (out, err.count("\n"), console.code) == ("", 1, 2)


def test_mininets_link_takes_all_parallel_links(console: Console, commands: list[list[str]]) -> None:
    console.onecmd("link leaf0 spine1 down")
    console.onecmd("link d0r1 leaf1 up")
    assert [[words[0], words[-1]] for words in commands] == [
        ["fail", "leaf0-spine1"], ["fail", "leaf0-spine1#2"], ["restore", "d0r1-leaf1"]
    ]  # fmt: skip


def test_links_have_rates_and_states(console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    console.onecmd("links leaf0-")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == [
        "leaf0-spine0", "leaf0-spine0#2", "leaf0-spine1", "leaf0-spine1#2"
    ]  # fmt: skip
    console.onecmd("links")
    text = capsys.readouterr().out
    rows = {line.split()[0]: line.split(None, 4) for line in text.splitlines()}
    assert rows["d0r0-leaf0"][1:] == ["nic", "s0r0-leaf0", "20", "down"]
    assert rows["d0r1-leaf1"][4] == "5 Mbit/s only"
    assert rows["d1r1-nv1"][3:] == ["180", "up"]


def test_iperf_names_the_pair_and_the_rate(console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    console.onecmd("iperf")
    assert capsys.readouterr().out.splitlines() == [
        "one flow of 5 s from d0r0 to d0r1", "18.4 Mbit/s of payload (emulated)"
    ]  # fmt: skip


def test_help_has_an_example_for_every_verb(console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    console.onecmd("help")
    overview = capsys.readouterr().out
    for word in ("fail", "why", "links", "record", "pingall", "dpctl"):
        assert f" {word}" in overview
    assert "xterm" not in overview
    console.onecmd("help degrade")
    assert "Example: degrade d0r1-rail1 5\n" in capsys.readouterr().out
    console.onecmd("help links")
    assert "Usage: links" in capsys.readouterr().out
    assert console.code == 0


def test_completion_knows_verbs_nodes_ids_and_options(console: Console) -> None:
    assert console.completenames("blac") == ["blackhole "]
    assert console.completenames("d1") == ["d1r0 ", "d1r1 "]
    assert "xterm " not in console.completenames("")
    assert console.completedefault("d0r0-l", "fail d0r0-l", 5, 11) == ["d0r0-leaf0 "]
    assert console.completedefault("--dir", "blackhole d0r0-leaf0 --dir", 21, 26) == ["--direction "]
    assert console.completedefault("failure-nic", "run failure-nic", 4, 15) == [
        "failure-nic ", "failure-nic/all-reduce-per-rail "
    ]  # fmt: skip
    assert console.completedefault("first-light/all-t", "run first-light/all-t", 4, 21) == ["first-light/all-to-all "]


def test_a_workload_of_the_catalogue_runs_on_this_fabric(
    console: Console, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def run_workload(_running: Any, name: str) -> int:
        asked.append(name)
        return 1

    monkeypatch.setattr(console_module, "run_workload", run_workload)
    console.script(iter(["run first-light/all-reduce", "run failure-nic", "run ./mine/a.yaml"]))
    assert asked == ["first-light/all-reduce"]
    assert commands == [["run", "failure-nic"], ["run", "./mine/a.yaml"]]
    assert console.code == 1


def test_a_workload_that_does_not_fit_is_said(console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    console.onecmd("run first-light/all-reduced")
    assert "did you mean 'first-light/all-reduce'?" in capsys.readouterr().err
    assert console.code == 2


def test_sources_and_leaving(console: Console, commands: list[list[str]], tmp_path: Any) -> None:
    script = tmp_path / "commands.txt"
    script.write_text("fail d0r0\n# a comment\nrestore d0r0\n")
    console.script(iter([f"source {script}", "exit", "fail d1r1"]))
    assert [words[0] for words in commands] == ["fail", "restore"]


def test_a_fabric_that_ends_ends_the_script(console: Console, commands: list[list[str]]) -> None:
    console.ended = True
    with pytest.raises(FabricEndedError, match="'lab' was taken down"):
        console.script(iter(["fail d0r0"]))
    assert commands == []


def test_a_nodes_names_become_addresses_and_nothing_starts_before(console: Console) -> None:
    asked: list[str] = []
    node = console.mn["d0r0"]
    node.sendCmd = asked.append
    node.cmd = lambda _text: "0"
    console.waitForNode = lambda _node: None
    console.onecmd("d0r0 ping -c 1 d1r1")
    assert asked == ["{ ping -c 1 10.0.2.1; } </dev/null"]
    assert not any(one.started for one in console.mn.values())


def test_records_what_the_page_would_show(
    console: Console, capsys: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dashboard.recording import read_recording

    def board(_name: str, _attach: Any, publish: Any, began: Any) -> Any:
        return SimpleNamespace(start=lambda: publish({"event": "fabric"}), stop=lambda: publish({"event": "gone"}))

    monkeypatch.setattr("cli.console_record.Board", board)
    path = tmp_path / "lesson.jsonl"
    console.script(iter([f"record {path}", "record", "record again.jsonl", "record stop", "record", f"record {path}"]))
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["recording", "recording", "recorded", "nothing"]
    assert "goes on" in err.splitlines()[0]
    assert "nothing can be recorded" in err.splitlines()[1]
    assert [shown.message["event"] for shown in read_recording(path)] == ["boards", "fabric", "gone"]
