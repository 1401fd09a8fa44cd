"""Asks programs what this machine can do: never raises, never waits for ever, leaves nothing behind."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

TOOL_TIMEOUT_S = 10.0

_PROBE_DEVICES = "ip link add probe0 type veth peer name probe1 || exit 3"


@dataclass(frozen=True)
class Answer:
    """What a program answered; ``code`` is 127 if it is not installed and 124 if it did not end in time."""

    code: int
    text: str


Ask = Callable[[Sequence[str]], Answer]


def ask(command: Sequence[str]) -> Answer:
    """Run a program and return its answer, standard error included."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=TOOL_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Answer(124, f"{command[0]} did not answer within {TOOL_TIMEOUT_S:g} s")
    except OSError:
        return Answer(127, f"{command[0]} is not installed")
    return Answer(done.returncode, done.stdout.strip())


def held_qdiscs(wanted: Mapping[str, str], ask: Ask) -> list[str] | Answer:
    """Which queueing disciplines this kernel has, of ``wanted`` (what tc is told, by name); tried in a throw-away
    network namespace. The answer instead if the devices to try on cannot be made.

    tc prints an error for a missing one and the kernel loads modules by itself, so the only test is to set it.
    """
    tries = [f"tc qdisc replace dev probe0 root {spec} 2>/dev/null && echo {name}" for name, spec in wanted.items()]
    script = "; ".join([_PROBE_DEVICES, *tries, "exit 0"])
    answer = ask(["unshare", "--net", "sh", "-c", script])
    if answer.code != 0:
        return answer
    lines = answer.text.splitlines()
    return [name for name in wanted if name in lines]
