"""``railbed downtime``: what failures cost a training job, by part, from inputs that can be changed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.output import json_option, print_json, table

if TYPE_CHECKING:
    from simulator.economics.downtime import Inputs


@click.command("downtime")
@click.option(
    "--inputs",
    "inputs_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Inputs (YAML).  [default: the built-in ones]",
)
@click.option("--print-inputs", is_flag=True, help="Print the built-in inputs, to be saved and edited, and end.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="CASE.KEY=NUMBER",
    help="Another value of an input, such as after.aided_share=0.8 or period_days=7; repeatable.",
)
@click.option(
    "--figures",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the stacked bars as PNG and SVG into this folder.",
)
@json_option
def command(
    inputs_path: Path | None, print_inputs: bool, settings: tuple[str, ...], figures: Path | None, as_json: bool
) -> None:
    """Say what share of a training job's time failures take, part by part. Needs no root.

    The parts: work done again since the last checkpoint, detection, diagnosis and isolation, restart. The built-in
    inputs are two cases, before and after automatic diagnosis.
    """
    from simulator.economics.downtime import default_inputs, default_text, load_inputs, with_settings

    if print_inputs:
        click.echo(default_text(), nl=False)
        return
    inputs = default_inputs() if inputs_path is None else load_inputs(inputs_path)
    if settings:
        inputs = with_settings(inputs, dict(_setting(text) for text in settings))
    cases = _cases(inputs)
    written = [] if figures is None else _write_figures(figures, cases)
    if as_json:
        print_json({"period_days": inputs.period_days.value, "cases": cases, "figures": written})
        return
    _print(inputs, cases)
    for path in written:
        click.echo(f"figure: {path}")


def _setting(text: str) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        equals = ""
        number = 0.0
    if not equals or not key:
        raise click.BadParameter(f"'{text}' is not of the form CASE.KEY=NUMBER", param_hint="'--set'")
    return key, number


def _cases(inputs: Inputs) -> dict[str, dict[str, Any]]:
    """What follows from every case: shares of the job's time (0 to 1), seconds of one failure, and the inputs."""
    from simulator.economics.downtime import best_interval_s, downtime, seconds_per_failure

    days = inputs.period_days.value
    found = {}
    for name, case in inputs.cases.items():
        shares = downtime(case, days)
        found[name] = {
            "parts": shares.parts,
            "downtime": shares.total,
            "saving_checkpoints": shares.saving,
            "useful": shares.useful,
            "seconds_per_failure": seconds_per_failure(case),
            "best_interval_s": best_interval_s(case, days),
            "inputs": dataclasses.asdict(case),
        }
    return found


def _print(inputs: Inputs, cases: dict[str, dict[str, Any]]) -> None:
    parts = next(iter(cases.values()))["parts"]
    headings = ["PART"]
    for name in cases:
        headings += [f"{name.upper()} (% of time)", "(s a failure)"]
    rows: list[tuple[object, ...]] = []
    for part in parts:
        row: list[object] = [part]
        for case in cases.values():
            row += [f"{100 * case['parts'][part]:.2f}", f"{case['seconds_per_failure'][part]:,.0f}"]
        rows.append(tuple(row))
    total: list[object] = ["all four"]
    for case in cases.values():
        total += [f"{100 * case['downtime']:.2f}", f"{sum(case['seconds_per_failure'].values()):,.0f}"]
    rows.append(tuple(total))
    if any(case["saving_checkpoints"] for case in cases.values()):
        saving: list[object] = ["saving checkpoints"]
        for case in cases.values():
            saving += [f"{100 * case['saving_checkpoints']:.2f}", "-"]
        rows.append(tuple(saving))
    click.echo(table(headings, rows))
    for name, case in cases.items():
        failures = case["inputs"]["failures"]["value"]
        text = (
            f"{name}: {failures:g} failures in {inputs.period_days.value:g} days; {100 * case['useful']:.2f} % useful"
        )
        if case["best_interval_s"] is not None:
            text += f"; a checkpoint every {case['best_interval_s']:,.0f} s would cost least"
        click.echo(text)


def _write_figures(folder: Path, cases: dict[str, dict[str, Any]]) -> list[Path]:
    from experiments.figures.downtime import downtime_figure
    from experiments.figures.style import figure_bytes
    from experiments.files import make_folder, write_atomically

    figure = downtime_figure(
        {name: {part: 100 * share for part, share in case["parts"].items()} for name, case in cases.items()}
    )
    written = []
    try:
        make_folder(folder)
        for file_format in ("png", "svg"):
            path = folder / f"downtime.{file_format}"
            write_atomically(path, figure_bytes(figure, file_format))
            written.append(path)
    except OSError as error:
        raise click.BadParameter(
            f"{folder} cannot be written: {error.strerror}; choose another folder", param_hint="'--figures'"
        ) from None
    return written
