"""What a console understands: comments, scripts, completions; and the history that it keeps."""

from __future__ import annotations

import os
import readline
from pathlib import Path

import pytest

from cli.console_words import (
    EXAMPLES,
    commands_in,
    completions,
    targets_of,
    without_comment,
    without_input,
    words_of,
)
from cli.errors import ConsoleError
from cli.history import kept_history, state_folder
from cli.main import COMMANDS, command_named
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec

FABRIC = build(FabricSpec(FabricKind.RAIL_OPTIMIZED, 2, 2, spines=2, parallel_links=2))


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("fail leaf0-spine1#2", "fail leaf0-spine1#2"),
        ("fail d0r0-rail0 # pull the cable", "fail d0r0-rail0"),
        ("# nothing", ""),
        ("", ""),
    ],
)
def test_a_comment_begins_after_a_blank_because_links_have_the_sign_in_their_names(line: str, left: str) -> None:
    assert without_comment(line) == left


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("fail a; restore a", ["fail a", "restore a"]),
        ("d0r0 sh -c 'a; b'; links\n\nstatus;", ["d0r0 sh -c 'a; b'", "links", "status"]),
        (' ; "x;y" ', ['"x;y"']),
        ("d0r0 echo it's; links", ["d0r0 echo it's; links"]),
    ],
)
def test_commands_are_separated_outside_quotes(text: str, commands: list[str]) -> None:
    assert commands_in(text) == commands


def test_an_open_quote_is_said() -> None:
    assert words_of("a 'b c' d") == ["a", "b c", "d"]
    with pytest.raises(ConsoleError, match="quotes in 'a 'b' are not closed"):
        words_of("a 'b")


def test_in_a_script_a_command_reads_nothing_but_may_stay_in_the_background() -> None:
    assert without_input("cat;") == "{ cat; } </dev/null"
    assert without_input("sleep 9 &") == "sleep 9 &"


@pytest.mark.parametrize(
    ("verb", "text", "found"),
    [
        ("degrade", "leaf0-spine1", ["leaf0-spine1 ", "leaf0-spine1#2 "]),
        ("fail", "d1r1", ["d1r1 ", "d1r1-leaf1 ", "d1r1-nv1 "]),
        ("fail", "sp", ["spine0 ", "spine1 "]),
        ("drain", "nv", ["nv0 ", "nv1 "]),
        ("fail", "s0r", []),
        ("path", "d1", ["d1r0 ", "d1r1 "]),
        ("rules", "s0", ["s0r0 ", "s0r1 "]),
        ("flap", "--d", ["--down-s "]),
        ("run", "failure-n", ["failure-nic ", "failure-nvlink "]),
        ("d0r0", "d1r", ["d1r0 ", "d1r1 "]),
    ],
)
def test_completion_offers_what_the_verb_takes(verb: str, text: str, found: list[str]) -> None:
    scenarios = ["failure-nic", "failure-nvlink", "parity"] if verb == "run" else []
    assert completions(FABRIC, verb, text, ["--down-s", "--up-s"], scenarios) == found


def test_a_rail_that_is_a_clos_can_be_failed_as_one() -> None:
    clos = build(FabricSpec(FabricKind.RAIL_ONLY, 8, 2, switch_ports=4))
    assert {"rail0", "rail1", "rail0l0", "rail0s0", "d0r0", "nv0"} <= set(targets_of(clos))


def test_every_example_is_one_of_its_command() -> None:
    for verb, example in EXAMPLES.items():
        assert example.split()[0] == verb
        if verb in COMMANDS:
            words = [word for word in words_of(example)[1:] if word.startswith("--") and word != "--"]
            known = {option for parameter in command_named(verb).params for option in parameter.opts}
            assert set(words) <= known


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HOME": "/home/a"}, "/home/a/.local/state/railbed"),
        ({"HOME": "/home/a", "XDG_STATE_HOME": "/s"}, "/s/railbed"),
        ({"HOME": "/home/a", "XDG_STATE_HOME": "relative"}, "/home/a/.local/state/railbed"),
        ({"HOME": "/home/a", "SUDO_UID": "0"}, f"{os.path.expanduser('~root')}/.local/state/railbed"),
        ({"HOME": "/home/a", "SUDO_UID": "4000000000"}, "/home/a/.local/state/railbed"),
    ],
)
def test_the_state_folder_is_that_of_who_called_sudo(environment: dict[str, str], folder: str) -> None:
    assert state_folder(environment) == Path(folder)


def test_history_is_kept_over_sessions_and_beside_other_consoles(tmp_path: Path) -> None:
    path = tmp_path / "railbed" / "history"
    with kept_history(path):
        readline.add_history("fail d0r0-rail0")
        path.parent.mkdir()
        path.write_text("typed elsewhere\n")
    assert path.read_text() == "typed elsewhere\nfail d0r0-rail0\n"
    with kept_history(path):
        assert readline.get_history_item(2) == "fail d0r0-rail0"
    assert path.read_text().count("\n") == 2
    with kept_history(Path("/proc/nowhere/history")):
        readline.add_history("kept nowhere, and nobody is told")
