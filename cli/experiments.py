"""``railbed experiments``: the catalogue."""

from __future__ import annotations

from dataclasses import asdict

import click

from cli.output import json_option, print_json, table


@click.command("experiments")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> int:
    """List the experiments that `run` knows by name, or show one of them whole: NAME."""
    from experiments.catalogue import LARGEST_EMULATED, entries, scenario_path
    from experiments.reference.registry import find, is_reference

    if name is None:
        found = entries()
        if as_json:
            print_json([asdict(entry) for entry in found])
            return 0
        rows = [(one.name, one.gpus or "-", "both" if one.emulator else "simulator", one.question) for one in found]
        click.echo(table(("name", "GPUs", "runs on", "question"), rows))
        click.echo(
            f"\n'railbed run NAME' runs one, 'railbed experiments NAME' shows it; up to {LARGEST_EMULATED} GPUs both "
            "back ends do."
        )
        return 0
    if is_reference(name):
        references = find([name])
        if as_json:
            print_json([{"name": one.name, "claim": one.claim, "method": one.method} for one in references])
        else:
            click.echo("\n\n".join(f"{one.name}: {one.claim}\n{one.method}" for one in references))
        return 0
    path = scenario_path(name)
    if as_json:
        from experiments.scenario import load_scenario

        print_json(load_scenario(path).model_dump(mode="json", exclude_none=True))
    else:
        click.echo(path.read_text(encoding="utf-8"), nl=False)
    return 0
