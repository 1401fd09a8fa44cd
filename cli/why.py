"""``railbed why``: the reason for each hop of a path."""

from __future__ import annotations

from typing import Any

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json, table
from controller.explain import Explanation, explain, foreign_nvswitch
from controller.routing import Routes
from emulator.foreign_controller import ControllerKind
from topologies.model import Failures

NOT_INSTALLED = (
    "these are the rules of Railbed's own controller, which this fabric runs without; "
    "'railbed path' shows what the installed ones do"
)


@click.command("why")
@click.argument("src")
@click.argument("dst")
@name_option
@json_option
def command(src: str, dst: str, name: str | None, as_json: bool) -> int:
    """Say for each hop from GPU SRC to GPU DST which rule decides, and what is broken in its way.

    The links that are down or out of service are those of the running fabric. Exit code 1 if there is no path.
    """
    need_root("why")
    running = running_fabric(name)
    status = running.status()
    fabric = running.fabric
    unused = frozenset((*status["links_down"], *status.get("links_drained", ())))
    routes = Routes(fabric, Failures(links=unused), running.policy())
    explanation = explain(routes, fabric.gpu(src), fabric.gpu(dst))
    own = status["controller_kind"] == ControllerKind.RAILBED.value
    if as_json:
        print_json({**as_dict(routes, explanation), "installed": own})
    else:
        click.echo(as_text(explanation))
        if not own:
            click.echo(NOT_INSTALLED)
    return 0 if explanation.path else 1


def as_dict(routes: Routes, explanation: Explanation) -> dict[str, Any]:
    """The explanation as one JSON object."""
    path = explanation.path
    return {
        "summary": explanation.summary,
        "relays": [gpu.id for gpu in path.relays] if path else [],
        "foreign_nvswitch": foreign_nvswitch(routes.fabric, path) if path else None,
        "hops": [
            {
                "switch": reason.hop.switch_id,
                "in_port": reason.hop.in_port,
                "out_port": reason.hop.out_port,
                "link": reason.link_id,
                "priority": reason.rule.priority,
                "match": str(reason.rule.match),
                "why": reason.text,
            }
            for reason in explanation.reasons
        ],
    }


def as_text(explanation: Explanation) -> str:
    """The explanation as a table."""
    rows = [
        (reason.hop.switch_id, reason.hop.in_port, reason.link_id, reason.rule.priority, reason.rule.match, reason.text)
        for reason in explanation.reasons
    ]
    if not rows:
        return explanation.summary
    return f"{table(('SWITCH', 'IN', 'OUT BY', 'PRIORITY', 'MATCH', 'WHY'), rows)}\n{explanation.summary}"
