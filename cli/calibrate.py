"""``railbed calibrate``: what this machine can forward, and whether the default scales hold on it."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from cli.fabrics import need_root
from cli.output import json_option, print_json, progress, table

SHAPES = ((4, 4), (8, 8), (32, 8))
MEASURED_RATE = 400.0
"""Rate factor of the fabric that is measured on: its NVLinks are faster than any machine forwards."""


@click.command("calibrate")
@json_option
def command(as_json: bool) -> None:
    """Measure what this machine forwards, keep it, and judge the default scales by it. Takes about 15 seconds."""
    need_root("calibrate")
    from emulator import manager
    from emulator.calibrate import Calibration, judge, rows
    from topologies.builders import build
    from topologies.model import FabricKind, FabricSpec
    from topologies.scale import Scale, default_scale

    name = f"cal-{os.getpid()}"
    with progress() as show:
        show("bringing up a fabric of 16 GPUs")
        running = manager.up(FabricSpec(FabricKind.RAIL_ONLY, 4, 4), Scale(MEASURED_RATE), name)
        try:
            show("measuring")
            calibration = Calibration(**running.calibrate())
        finally:
            manager.down(name)
    calibration.save()
    judged = []
    for domains, rails in SHAPES:
        fabric = build(FabricSpec(FabricKind.RAIL_ONLY, domains, rails))
        judged.append((len(fabric.gpus), judge(fabric, default_scale(fabric), calibration)))
    if as_json:
        print_json({**asdict(calibration), "default_scales": {gpus: asdict(one) for gpus, one in judged}})
    else:
        click.echo(table(("measured", ""), rows(calibration)))
        click.echo()
        click.echo(table(("default scale", "judgement"), [(f"{gpus} GPUs", one.sentence) for gpus, one in judged]))
