"""``railbed run``: run a scenario file, or a table of the papers' numbers by its name."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from cli.fabrics import need_root
from cli.output import json_option, print_json, progress
from cli.reference_table import run_reference
from cli.results_table import print_results


class ScenarioOrName(click.Path):
    """A file that exists, or the name of a reference experiment, which is passed on as text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value as a path, or as text where it is a name."""
        from experiments.reference.registry import is_reference

        return value if is_reference(str(value)) else super().convert(value, param, ctx)


@click.command("run")
@click.argument("scenario", type=ScenarioOrName(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--backend",
    type=click.Choice(["emulator", "simulator"]),
    help="Where it runs; the emulator needs root.  [default: what the scenario says]",
)
@click.option(
    "--engine",
    type=click.Choice(["iperf3", "agent"]),
    help="What replays the traffic on live fabrics.  [default: what the scenario says, else what suits each schedule]",
)
@click.option(
    "--results",
    "results_root",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Folder that the results are written below.",
)
@json_option
def command(scenario: Path | str, backend: str | None, engine: str | None, results_root: Path, as_json: bool) -> int:
    """Run the SCENARIO file: its workload on its fabrics, healthy and with its failures.

    Prints the table and writes results, figures and a report. Exit code 1 if a transfer was not made in full. R1 to R9
    in place of a file make one table of the papers' numbers, paper-tables all of them, on the simulator.
    """
    if isinstance(scenario, str):
        if backend == "emulator":
            raise click.BadParameter(f"{scenario} runs on the simulator only", param_hint="'--backend'")
        return run_reference(scenario, results_root, as_json)
    from experiments.plan import simulator_backend
    from experiments.run import run_scenario
    from experiments.scenario import load_scenario

    given = {"backend": backend, "engine": engine}
    loaded = load_scenario(scenario, [(key, value) for key, value in given.items() if value is not None])
    on_emulator = loaded.backend == "emulator"
    if on_emulator:
        need_root(f"run {scenario}")
    with ExitStack() as stack:
        show = stack.enter_context(progress())
        if on_emulator:
            from experiments.emulated import emulator_backend

            live = stack.enter_context(emulator_backend(show))
            results = run_scenario(
                loaded, live, show, results_root=results_root, command=sys.argv, extra_provenance=live.provenance_now
            )
        else:
            results = run_scenario(loaded, simulator_backend, show, results_root=results_root, command=sys.argv)
    if as_json:
        print_json({"folder": results.folder, "summary": json.loads((results.folder / "summary.json").read_text())})
    else:
        print_results(results)
    return 0 if results.complete else 1
