"""``railbed validate``: every check that ``run`` makes before it starts."""

from __future__ import annotations

from typing import Any

import click

from cli.output import json_option, print_json
from cli.scenarios import loaded_scenario, set_option


@click.command("validate")
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
@set_option
@click.option("--schema", is_flag=True, help="Print the JSON Schema of scenario files, for editors.")
@json_option
def command(scenarios: tuple[str, ...], settings: tuple[str, ...], schema: bool, as_json: bool) -> int:
    """Check SCENARIO files, or experiments of the catalogue by name, exactly as `run` does; needs no root.

    Everything that is wrong is told at once, with file, line, key and what was expected. Exit code 2 if anything is.
    """
    from experiments.errors import ScenarioError
    from experiments.scenario.schema import schema_text

    if schema:
        click.echo(schema_text(), nl=False)
        return 0
    if not scenarios:
        raise click.UsageError("no scenario is given: name files or experiments of the catalogue, or ask for --schema")
    wrong = 0
    found: list[dict[str, Any]] = []
    for name in scenarios:
        try:
            scenario = loaded_scenario(name, settings)
        except ScenarioError as error:
            wrong += 1
            problems = [{"line": one.line, "key": one.key, "text": one.text} for one in error.problems]
            found.append({"file": name, "ok": False, "problems": problems})
            if not as_json:
                click.echo(str(error), err=True)
        else:
            counts = _counts(scenario)
            found.append({"file": name, "ok": True, "problems": [], **counts})
            if not as_json:
                listed = ", ".join(f"{count} {what}" for what, count in counts.items())
                click.echo(f"{name}: right ({listed})")
    if as_json:
        print_json(found)
    return 2 if wrong else 0


def _counts(scenario: Any) -> dict[str, int]:
    """What a right scenario holds."""
    gpus = max(len(fabric.gpus) for fabric in scenario.build_fabrics().values())
    schedules = sum(len(entry.labels) for entry in scenario.workload)
    return {
        "fabrics": len(scenario.fabrics),
        "gpus": gpus,
        "schedules": schedules,
        "failures": len(scenario.failures),
        "repetitions": scenario.repetitions,
        "expectations": len(scenario.expect),
    }
