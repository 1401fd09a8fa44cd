"""``railbed fail``: take a link, a GPU or a switch of a running fabric down."""

from __future__ import annotations

from typing import Any

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json


@click.command("fail")
@click.argument("target")
@name_option
@json_option
def command(target: str, name: str | None, as_json: bool) -> None:
    """Take TARGET down at both ends, as a pulled cable does; traffic is rerouted.

    Links are named like d0r1-rail1 (NIC), d0r1-nv0 (NVLink) or leaf0-spine1#2 (the second of parallel links). A GPU
    (d0r1), an NVSwitch (nv0), a rail (rail1), a leaf or a spine goes down with all its links.
    """
    need_root("fail")
    result = running_fabric(name).fail(target)
    if as_json:
        print_json(result)
    elif not result["changed"]:
        click.echo(f"{target} was down already")
    else:
        links = f" ({result['links']} links)" if result["links"] > 1 else ""
        click.echo(f"{target} is down{links}: {_reaction(result)}")


def _reaction(result: dict[str, Any]) -> str:
    """What the controller did about it; another controller than ours is judged by the traffic alone."""
    if "repaired_s" in result:
        return (
            f"noticed after {result['detected_s'] * 1000:.0f} ms, "
            f"new rules everywhere after {result['repaired_s'] * 1000:.0f} ms"
        )
    if result.get("drained"):
        return f"noticed after {result['detected_s'] * 1000:.0f} ms; it is out of service, so no route has changed"
    reached, expected = result["reached_pairs"], result["expected_pairs"]
    if result["traffic_back_s"] is None:
        return f"only {reached} of {expected} pairs that are still joined get through"
    return f"all {expected} pairs that are still joined get through after {result['traffic_back_s'] * 1000:.0f} ms"
