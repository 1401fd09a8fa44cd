"""What the commands about fabrics share: the options that describe one, and how a running one is found."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cli.errors import AmbiguousFabricError
from emulator.errors import NotRootError
from topologies.builders import preset_spec
from topologies.model import FabricSpec, fabric_kind

if TYPE_CHECKING:
    from emulator.manager import RunningFabric

_Function = TypeVar("_Function", bound=Callable[..., Any])

NAME_VARIABLE = "RAILBED_FABRIC"
"""The environment variable that names the fabric where ``--name`` does not."""

name_option = click.option(
    "--name", envvar=NAME_VARIABLE, metavar="FABRIC", help="The fabric's name; needed only when several are up."
)


def fabric_options(function: _Function) -> _Function:
    """Add the options that :func:`spec_from_options` reads."""
    options = [
        click.argument("kind", default="rail-only", metavar="[FABRIC]"),
        click.option("--domains", default=4, show_default=True, help="HB domains (GPUs joined by NVLink)."),
        click.option("--rails", default=4, show_default=True, help="GPUs in each domain, each on a rail of its own."),
        click.option(
            "--preset",
            default="dgx-h100",
            show_default=True,
            help="Hardware that the rates of NIC and NVLink are from.",
        ),
        click.option("--spines", type=int, help="Spine switches.  [default: as many as the oversubscription needs]"),
        click.option("--parallel-links", default=1, show_default=True, help="Links between each leaf and each spine."),
        click.option(
            "--oversubscription", default=1.0, show_default=True, help="Rate into the leaves over rate to the spines."
        ),
        click.option("--switch-ports", type=int, help="Ports of rail, leaf and spine switches.  [default: enough]"),
        click.option("--uplinks", default=1, show_default=True, help="Uplinks of a NIC; 2 is dual-homed."),
        click.option("--domains-per-leaf", type=int, help="Domains on one leaf.  [default: as many as fit]"),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def spec_from_options(kind: str, domains: int, rails: int, preset: str, **others: Any) -> FabricSpec:
    """The spec that the options of :func:`fabric_options` describe; raises FabricError for unknown names."""
    return dataclasses.replace(preset_spec(preset, fabric_kind(kind), domains, rails), **others)


def need_root(command: str) -> None:
    """Raise NotRootError unless the process is root's."""
    if os.geteuid() != 0:
        raise NotRootError(f"'{command}' needs root: run sudo ./railbed {command}")


def running_fabric(name: str | None) -> RunningFabric:
    """The running fabric of that name, or the only one; raises the emulator's NoSuchFabricError if there is none."""
    from emulator.manager import attach, running

    if name is None:
        names = sorted(state.name for state in running())
        if len(names) > 1:
            raise AmbiguousFabricError(f"several fabrics are up ({', '.join(names)}): choose one with --name")
        name = names[0] if names else "default"
    return attach(name)
