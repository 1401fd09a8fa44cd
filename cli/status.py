"""``railbed status``: the fabrics that are up, and how they are."""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING, Any

import click

from cli.output import json_option, print_json, table

if TYPE_CHECKING:
    from emulator.rundir import FabricState


@click.command("status")
@json_option
def command(as_json: bool) -> None:
    """Show the fabrics that are up: their datapath, the switches connected and the links that are down."""
    from emulator.manager import running

    fabrics = [_describe(state) for state in running()]
    if as_json:
        print_json(fabrics)
    elif not fabrics:
        click.echo("no fabric is up; 'railbed up' starts one")
    else:
        click.echo(
            table(
                ("FABRIC", "KIND", "GPUS", "STATE", "SINCE", "DATAPATH", "SWITCHES", "LINKS DOWN"),
                [_row(fabric) for fabric in fabrics],
            )
        )


def _describe(state: FabricState) -> dict[str, Any]:
    """What is known of one fabric; ``status`` is empty for one that is not up, and without root, which asking takes."""
    from emulator.manager import attach

    described: dict[str, Any] = {
        "name": state.name,
        "spec": state.spec,
        "state": ("up" if state.ready else "starting") if state.alive else "stale",
        "pid": state.supervisor_pid,
        "since_s": state.created_s,
        "datapath": state.datapath,
        "status": {},
    }
    if described["state"] == "up" and os.geteuid() == 0:
        described["status"] = attach(state.name).status()
    return described


def _row(fabric: dict[str, Any]) -> tuple[object, ...]:
    spec, status = fabric["spec"], fabric["status"]
    return (
        fabric["name"],
        spec["kind"],
        spec["domains"] * spec["rails"],
        fabric["state"] if fabric["state"] != "stale" else "stale: run 'railbed down'",
        datetime.datetime.fromtimestamp(fabric["since_s"]).isoformat(" ", "seconds"),
        fabric["datapath"] or "-",
        f"{status['switches_connected']}/{status['switches']}" if status else "-",
        (", ".join(status["links_down"]) or "none") if status else "-",
    )
