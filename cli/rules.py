"""``railbed rules``: what the switches of a running fabric hold."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Any

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json, table
from controller.explain import purpose
from topologies.model import Fabric

_PRIORITY = re.compile(r"\bpriority=(\d+)")
_PACKETS = re.compile(r"\bn_packets=(\d+)")
_DEFAULT_PRIORITY = 32768
MAX_ACTIONS = 80
"""Characters of a rule's actions in the table; --json has all of them."""


@click.command("rules")
@click.argument("switch", required=False)
@name_option
@json_option
def command(switch: str | None, name: str | None, as_json: bool) -> None:
    """Show the rules and groups of SWITCH, or how many each kind of switch holds.

    They are read from Open vSwitch at this moment, so another controller's rules are shown as well.
    """
    need_root("rules")
    running = running_fabric(name)
    held = running.rules(switch)
    if as_json:
        print_json(held)
    elif switch is None:
        click.echo(counts_as_text(running.fabric, held))
    else:
        click.echo(switch_as_text(held[switch]))


def counts_as_text(fabric: Fabric, held: dict[str, Any]) -> str:
    """Rules and groups per kind of switch, smallest to largest table."""
    by_kind: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for switch in fabric.switches:
        entries = held[switch.id]
        by_kind[switch.kind.value].append((len(entries["flows"]), len(entries["groups"])))
    rows = [
        (kind, len(counts), _range(flows for flows, _ in counts), _range(groups for _, groups in counts))
        for kind, counts in by_kind.items()
    ]
    return table(("KIND", "SWITCHES", "RULES EACH", "GROUPS EACH"), rows)


def _range(values: Any) -> str:
    numbers = Counter(values)
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _shortened(actions: str) -> str:
    return actions if len(actions) <= MAX_ACTIONS else actions[: MAX_ACTIONS - 3] + "..."


def switch_as_text(entries: dict[str, list[str]]) -> str:
    """The rules of one switch, highest priority first, each with what it is for."""
    rows = []
    for line in entries["flows"]:
        found = _PRIORITY.search(line)
        priority = int(found.group(1)) if found else _DEFAULT_PRIORITY
        packets = _PACKETS.search(line)
        match, _, actions = line[found.start() if found else 0 :].partition(" actions=")
        match = match.partition(",")[2] or "any"
        rows.append((priority, match, _shortened(actions), packets.group(1) if packets else "-", purpose(priority)))
    rows.sort(key=lambda row: -row[0])
    text = table(("PRIORITY", "MATCH", "ACTIONS", "PACKETS", "PURPOSE"), rows)
    return "\n".join([text, *(entry for entry in entries["groups"])])
