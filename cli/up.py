"""``railbed up``: start a fabric that stays up in the background."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from cli.fabrics import NAME_VARIABLE, fabric_options, need_root, spec_from_options
from cli.output import json_option, print_json, progress
from controller.placement import read_placement
from topologies.builders import build
from topologies.scale import DEFAULT_TIME, Scale, check_scale, default_scale


@click.command("up")
@fabric_options
@click.option(
    "--name",
    envvar=NAME_VARIABLE,
    default="default",
    show_default=True,
    metavar="FABRIC",
    help="Name of the fabric.",
)
@click.option("--rate-factor", type=float, help="Real rate over emulated rate.  [default: by the fabric's size]")
@click.option("--time-factor", default=DEFAULT_TIME, show_default=True, help="Emulated seconds per real second.")
@click.option(
    "--framework", type=click.Choice(["os-ken", "ryu"]), help="Framework of the controller.  [default: os-ken]"
)
@click.option(
    "--openflow-port", default=6653, show_default=True, type=click.IntRange(1, 65535), help="Controller port."
)
@click.option(
    "--controller", metavar="WHO", help="none, HOST:PORT, or a Ryu or os-ken application's .py file.  [default: ours]"
)
@click.option("--no-local-repair", is_flag=True, help="Let the controller alone repair failures.")
@click.option(
    "--placement", type=click.Path(path_type=Path), help="JSON file that gives single connections their links."
)
@click.option("--bfd", is_flag=True, help="Probe every link, so that one that swallows packets is noticed; costs CPU.")
@click.option("--timeout", "timeout_s", default=120.0, show_default=True, help="Seconds until a start is given up.")
@json_option
def command(
    name: str,
    rate_factor: float | None,
    time_factor: float,
    framework: str | None,
    openflow_port: int,
    controller: str | None,
    no_local_repair: bool,
    placement: Path | None,
    bfd: bool,
    timeout_s: float,
    as_json: bool,
    **fabric: Any,
) -> None:
    """Start a fabric that stays up in the background.

    FABRIC is rail-only (the default), rail-optimized, spine-leaf or ideal.
    """
    spec = spec_from_options(**fabric)
    built = build(spec)
    scale = default_scale(built, time_factor) if rate_factor is None else Scale(rate_factor, time_factor)
    check_scale(built, scale)
    placed = None if placement is None else read_placement(placement, built)
    if placed is not None and controller is not None:
        raise click.UsageError("--placement is for Railbed's own controller: leave out --controller")
    need_root("up")

    from emulator.calibrate import judge, stored
    from emulator.manager import up

    with progress() as show:
        running = up(
            spec,
            scale,
            name,
            progress=show,
            timeout_s=timeout_s,
            framework=framework,
            openflow_port=openflow_port,
            local_repair=not no_local_repair,
            controller=controller,
            placement=placed,
            bfd=bfd,
        )
    status = running.status()
    calibration = stored()
    judgement = judge(built, scale, calibration) if calibration else None
    if judgement and not judgement.faithful:
        click.echo(f"railbed: warning: this scale is {judgement.sentence}", err=True)
    if as_json:
        print_json({"name": name, "spec": built.spec.to_dict(), "scale": dataclasses.asdict(scale), "status": status})
    else:
        click.echo(
            f"{name}: {built.kind.value} with {len(built.gpus)} GPUs is up on the {status['datapath']} datapath; "
            f"'railbed status' shows it, 'railbed down {name}' ends it"
        )
