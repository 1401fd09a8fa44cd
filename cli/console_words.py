"""What a console understands and offers: its verbs with examples, lines split into commands, completions. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from cli.errors import ConsoleError
from topologies.model import Fabric, SwitchKind

EXAMPLES = {
    "status": "status",
    "fail": "fail d0r1-rail1",
    "restore": "restore d0r1-rail1",
    "degrade": "degrade d0r1-rail1 5",
    "blackhole": "blackhole d0r1-rail1 --direction out",
    "flap": "flap d0r1-rail1 --down-s 0.5 --count 3",
    "delay": "delay d0r1-rail1 10",
    "loss": "loss d0r1-rail1 2",
    "failures": "failures --reset",
    "path": "path d0r1 d1r1",
    "why": "why d0r1 d1r1",
    "rules": "rules rail1",
    "drain": "drain d0r1-rail1",
    "capture": "capture d0r1-rail1 --count 20",
    "watch": "watch",
    "diagnose": "diagnose",
    "mystery": "mystery --seed 7",
    "solve": "solve d0r1-rail1",
    "exec": "exec --nproc 2 -- ping -c 1 d1r1",
    "run": "run first-light/all-reduce",
    "experiments": "experiments failure-nic",
}
"""Commands of Railbed that are verbs of a console too, each with an example."""

_LINKS = {"degrade", "blackhole", "flap", "delay", "loss", "capture"}
_TARGETS = {"fail", "restore", "drain", "solve"}
_COMMENT = re.compile(r"(?:^|\s)#")


def without_comment(line: str) -> str:
    """The line up to a ``#`` at its start or after a blank; ``leaf0-spine1#2`` is the name of a link."""
    found = _COMMENT.search(line)
    return line[: found.start()] if found else line


def commands_in(text: str) -> list[str]:
    """The commands of a script: separated by ``;`` or line ends outside quotes."""
    commands = [""]
    quote = ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in ";\n":
            commands.append("")
            continue
        commands[-1] += letter
    return [command.strip() for command in commands if command.strip()]


def words_of(text: str) -> list[str]:
    """The words of a line as a shell splits them; raises ConsoleError for an open quote."""
    try:
        return shlex.split(text)
    except ValueError:
        raise ConsoleError(f"the quotes in '{text}' are not closed") from None


def without_input(command: str) -> str:
    """A node's command that reads nothing, for a script: nobody types there, and it would wait for ever."""
    bare = command.strip().rstrip(";")
    return command if bare.endswith("&") else f"{{ {bare}; }} </dev/null"


def links_of(fabric: Fabric) -> list[str]:
    """Ids of the links that may fail."""
    return [link.id for link in fabric.failure_targets()]


def targets_of(fabric: Fabric) -> list[str]:
    """Ids of all that may fail: links, GPUs, rails and switches but those inside GPUs."""
    rails = [f"rail{switch.rail}" for switch in fabric.switches if switch.kind is SwitchKind.RAIL_LEAF]
    switches = [switch.id for switch in fabric.switches if switch.kind is not SwitchKind.GPU]
    return list(dict.fromkeys([*links_of(fabric), *(gpu.id for gpu in fabric.gpus), *switches, *rails]))


def completions(
    fabric: Fabric, verb: str, text: str, options: Sequence[str] = (), scenarios: Iterable[str] = ()
) -> list[str]:
    """What may stand in the place of ``text`` after ``verb``: ids of the right kind, options, names of scenarios."""
    if text.startswith("-"):
        known: Iterable[str] = options
    elif verb in _LINKS:
        known = links_of(fabric)
    elif verb in _TARGETS:
        known = targets_of(fabric)
    elif verb in ("run", "experiments"):
        known = scenarios
    elif verb == "rules":
        known = [switch.id for switch in fabric.switches]
    elif verb in ("links", "link", "dump"):
        known = [*(gpu.id for gpu in fabric.gpus), *(switch.id for switch in fabric.switches)]
    else:
        known = [gpu.id for gpu in fabric.gpus]
    return sorted(f"{word} " for word in known if word.startswith(text))
