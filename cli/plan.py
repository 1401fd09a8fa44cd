"""``railbed plan``: what a scenario would do, without doing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cli.output import json_option, print_json, table
from cli.scenarios import loaded_scenario, set_option

if TYPE_CHECKING:
    from experiments.preview import RulesPreview, RunPreview

BUSIEST = 3


@click.command("plan")
@click.argument("scenario")
@set_option
@click.option("--backend", type=click.Choice(["emulator", "simulator"]), help="In place of what the scenario says.")
@click.option("--paths", "show_paths", is_flag=True, help="Also print the path of every pair that sends.")
@json_option
def command(scenario: str, settings: tuple[str, ...], backend: str | None, show_paths: bool, as_json: bool) -> int:
    """Show the transfers, paths, link loads and rules of a SCENARIO, its predicted times and whether its scale holds.

    Needs no root. Exit code 1 for a scale that the emulator can't hold: a transfer on the critical path would last less
    than 20 unloaded round trips, or move less than 10 queues.
    """
    from experiments.plan import plan
    from experiments.preview import preview_rules, preview_run

    loaded = loaded_scenario(scenario, settings, backend=backend)
    runs = plan(loaded)
    previews = [preview_run(run) for run in runs]
    rules = preview_rules(runs)
    refused = [one for one in previews if one.faithfulness and not one.faithfulness.holds]
    emulated = loaded.backend == "emulator"
    if as_json:
        print_json({
            "scenario": loaded.name, "backend": loaded.backend, "repetitions": loaded.repetitions,
            "runs": [one.to_dict() for one in previews], "rules": [asdict(one) for one in rules],
        })  # fmt: skip
    else:
        _print(previews, rules, show_paths)
    if not emulated:
        return 0
    for one in refused:
        assert one.faithfulness is not None
        click.echo(f"railbed: {one.workload} on {one.fabric}: {one.faithfulness.sentence}", err=True)
    return 1 if refused else 0


def _print(previews: Sequence[RunPreview], rules: Sequence[RulesPreview], show_paths: bool) -> None:
    from experiments.units import duration_text, size_text

    def seconds(value: float | None) -> str:
        return "never ends" if value is None else duration_text(value)

    headings = ("fabric", "workload", "condition", "transfers", "phases", "bytes", "emulated", "real", "busiest links",
                "round trips", "queues", "scale")  # fmt: skip
    rows = []
    for one in previews:
        busiest = ", ".join(
            one_link.link_id + ("" if one_link.share is None else f" {one_link.share:.0%}")
            for one_link in one.loads[:BUSIEST]
        )
        found = one.faithfulness
        rows.append((
            one.fabric, one.workload, one.condition, one.transfers, "-" if one.phases is None else one.phases,
            size_text(one.real_bytes), seconds(one.predicted_s), seconds(one.real_predicted_s), busiest,
            "-" if found is None else f"{found.round_trips:.0f}", "-" if found is None else f"{found.queues:.1f}",
            "-" if found is None else "holds" if found.holds else f"time {found.time:g} would hold",
        ))  # fmt: skip
    click.echo(table(headings, rows))
    for one in previews:
        for failure in one.failures:
            until = "the end" if failure.restore_s is None else f"{failure.restore_s:.2f} s"
            click.echo(
                f"{one.fabric}, {one.workload}: {failure.link_id} {failure.text} from {failure.at_s:.2f} s to {until}"
            )
        for problem in one.problems:
            click.echo(f"{one.fabric}, {one.workload}: {problem}")
    click.echo()
    held = [(one.fabric, one.kind, one.switches, one.rules, one.groups) for one in rules]
    click.echo(table(("fabric", "kind of switch", "switches", "rules each", "groups each"), held))
    if show_paths:
        paths = {(one.fabric, *ends): links for one in previews for ends, links in one.paths.items()}
        listed = [(*key, "no path" if links is None else " ".join(links)) for key, links in paths.items()]
        click.echo("\n" + table(("fabric", "from", "to", "links"), listed))
