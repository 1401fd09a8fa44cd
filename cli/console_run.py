"""What ``run EXPERIMENT/WORKLOAD`` does in a console: a workload of the catalogue on the console's own fabric."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.errors import ConsoleError
from cli.impairing import impairment_words
from cli.output import progress
from topologies.near import did_you_mean

if TYPE_CHECKING:
    from emulator.manager import RunningFabric
    from topologies.model import Fabric

PIPE_WIDTH = 200


def names_a_workload(word: str) -> bool:
    """Whether ``word`` has the form of a workload's name, and not that of a scenario or its file."""
    return "/" in word and not word.startswith((".", "/")) and not Path(word).exists()


def workloads_of(fabric: Fabric) -> dict[str, str]:
    """Ids of the workloads that fit a fabric, by their names as one word: ``first-light/all-reduce-per-rail``."""
    from dashboard.offers import offers

    return {offer.id.replace(" ", "-"): offer.id for offer in offers([fabric])}


def run_workload(running: RunningFabric, name: str) -> int:
    """Run a workload on a fabric as it is, and print what came out; 0 if every transfer was made in full.

    What is expected is the fluid model's time on the healthy fabric. Nothing is stored. Raises ConsoleError for an
    unknown name.
    """
    from rich.console import Console

    from dashboard.offers import schedule_of
    from dashboard.workload import predicted
    from emulator.engines import Engine
    from experiments.outcome import analyse
    from experiments.tables import summary

    fabric = running.fabric
    known = workloads_of(fabric)
    word = name.replace(" ", "-")
    if word not in known:
        hint = did_you_mean(word, known) or "Tab completes those that do; "
        raise ConsoleError(f"the catalogue has no workload '{name}' that fits this fabric: {hint.rstrip('; ')}")
    schedule = schedule_of(known[word], fabric)
    wrong = [f"{one['link']} {impairment_words(one)}" for one in running.impairments()]
    with progress() as show:
        show("predicting", None)
        expected = predicted(running, schedule)
        # The agent says what it is doing while it does it, so that other consoles can watch and diagnose the run.
        record = running.run(
            schedule, seed=schedule.seed, progress=lambda share: show(f"running {word}", share), engine=Engine.AGENT
        )
    outcome = analyse(fabric.kind.value, fabric, record, expected, {})
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(summary([outcome]))
    # The table's condition is about failures that belong to the run, and this one has none of its own.
    click.echo(f"wrong with the fabric when it began: {'; '.join(wrong) or 'nothing that is listed'}")
    return 0 if outcome.status == "complete" else 1
