"""``railbed path``: where packets go, by declaration, by the installed rules, and in truth."""

from __future__ import annotations

from typing import Any

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json, table


@click.command("path")
@click.argument("src")
@click.argument("dst")
@click.option("--probes", default=3, show_default=True, type=click.IntRange(1, 1000), help="Probes to send.")
@name_option
@json_option
def command(src: str, dst: str, probes: int, name: str | None, as_json: bool) -> int:
    """Show where packets from GPU SRC to GPU DST go, three times.

    Once as the fabric declares it, once by the rules that the switches hold, and once as probes really went, captured
    at every port. Exit code 1 if the three do not agree.
    """
    need_root("path")
    result = running_fabric(name).path(src, dst, probes)
    if as_json:
        print_json(result)
    else:
        click.echo(as_text(result))
    return 0 if result["agree"] else 1


def as_text(result: dict[str, Any]) -> str:
    """The three paths side by side, and whether they agree."""
    probe: list[list[Any]] = max(result["captured"], key=len, default=[])
    columns = [
        [f"{interface} {direction}" for interface, direction in result["declared"] or []],
        [f"{interface} {direction}" for interface, direction in result["rules"]],
        [f"{hop[0]} {hop[1]}" for hop in probe],
    ]
    times = [f"{hop[2] * 1000:.2f}" for hop in probe]
    rows = [
        [column[index] if index < len(column) else "-" for column in (*columns, times)]
        for index in range(max(map(len, columns), default=0))
    ]
    lines = [table(("DECLARED", "BY THE RULES", "PROBE", "MS"), rows)]
    lines.append(f"{result['arrived']} of {result['sent']} probes arrived")
    if result["relays"]:
        lines.append(f"relays: {', '.join(result['relays'])}")
    if result["declared"] is None:
        lines.append("no path is declared: the pair is partitioned; 'railbed why' says by what")
    lines.append("the three agree" if result["agree"] else f"they do not agree: {result['disagreement']}")
    return "\n".join(lines)
