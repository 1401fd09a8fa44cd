"""The HTML report: one file with everything in it, readable without a network."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from experiments.outcome import FAILURE, LinkTraffic, Outcome
from experiments.results import COMPLETE
from experiments.scenario import Scenario
from experiments.statistics import cases
from experiments.stored import StoredSweep
from experiments.sweep_tables import HEADINGS, keys, sweep_rows
from experiments.tables import COLUMNS, footnotes, number, percent, rows
from experiments.units import rate_text, size_text
from experiments.verdicts import verdicts
from topologies.model import Fabric, FabricKind, LinkKind
from topologies.scale import Scale

MOST_DETOUR_LINKS = 8
"""Detour links that are listed one by one; how many more there are is said below them."""

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Picture:
    """A figure: its name among the result's files, and its SVG."""

    name: str
    svg: bytes


@dataclass(frozen=True)
class FabricView:
    """A fabric as drawn, and what the figure shows besides."""

    label: str
    fabric: Fabric
    scale: Scale
    drawn: Picture
    caption: str


@dataclass(frozen=True)
class RunView:
    """One run over time: its throughput, and all its links."""

    outcome: Outcome
    fabric: Fabric
    throughput: Picture
    links: Picture


@dataclass(frozen=True)
class DiagnosisView:
    """The diagnosis of one run: its delay matrix, and what was told of it: seconds, verdict, evidence."""

    outcome: Outcome
    matrix: Picture
    told: tuple[tuple[float, str, str], ...]


@dataclass(frozen=True)
class Report:
    """Everything that the report says. Figures are None where there is nothing to draw."""

    scenario: Scenario
    status: str
    planned_runs: int
    outcomes: tuple[Outcome, ...]
    fabrics: tuple[FabricView, ...]
    completion: Picture | None
    prediction: Picture | None
    outages: Picture | None
    planning: tuple[Picture, ...]
    matrices: tuple[Picture, ...]
    runs: tuple[RunView, ...]
    diagnoses: tuple[DiagnosisView, ...]
    provenance: Mapping[str, Any]


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        image=_image, number=_number, percent=percent, size=_size, rate=rate_text, seconds=_seconds
    )
    return environment


def render_sweep(sweep: StoredSweep, picture: Picture | None, question: str, provenance: Mapping[str, Any]) -> str:
    """The report of a sweep as HTML text; ``picture`` is None where no case has a result."""
    return (
        _environment()
        .get_template("sweep.html.j2")
        .render(
            sweep=sweep,
            picture=picture,
            question=question,
            keys=keys(sweep),
            headings=(*keys(sweep), *HEADINGS),
            rows=sweep_rows(sweep),
            footnotes=footnotes(sweep.outcomes),
            unfaithful=sum(not outcome.faithful for outcome in sweep.outcomes),
            command=shlex.join(provenance.get("command", ())),
            provenance=_flat(provenance),
        )
    )


def render(report: Report) -> str:
    """The report as HTML text."""
    environment = _environment()
    command = report.provenance.get("command", ())
    return environment.get_template("report.html.j2").render(
        report=report,
        columns=COLUMNS,
        rows=list(zip(cases(report.outcomes), rows(report.outcomes), strict=True)),
        footnotes=footnotes(report.outcomes),
        settings=[(view, _settings(view)) for view in report.fabrics],
        failures=[
            (run, [(outage, _detour(run, outage.detour)) for outage in run.outcome.outages])
            for run in report.runs
            if run.outcome.condition == FAILURE
        ],
        healthy_runs=[run for run in report.runs if run.outcome.condition != FAILURE],
        about=_about(report.scenario),
        verdicts=verdicts(report.scenario, report.outcomes),
        is_whole=report.status == COMPLETE and len(report.outcomes) == report.planned_runs,
        lost=[case for case in cases(report.outcomes) if case.lost],
        notes=_notes(report.outcomes),
        unfaithful=[outcome for outcome in report.outcomes if not outcome.faithful],
        command=shlex.join(command),
        scenario_yaml=report.scenario.to_yaml(),
        provenance=_flat(report.provenance),
    )


def _about(scenario: Scenario) -> list[tuple[str, str]]:
    """What the scenario says of itself, in the order in which it is read."""
    texts = (
        ("Question", scenario.question),
        ("Method", scenario.method),
        ("Expected", scenario.expected),
        ("What it can't show", scenario.limits),
    )
    return [(name, " ".join(text.split())) for name, text in texts if text]


def _settings(view: FabricView) -> list[tuple[str, str, str]]:
    """Name, real value, emulated value of what was set."""
    spec, scale = view.fabric.spec, view.scale
    lines = [("NVLink per GPU and direction", spec.nvlink_rate_mbps)]
    if spec.kind is not FabricKind.IDEAL:
        lines.append(("NIC per GPU and direction", spec.nic_rate_mbps))
    uplinks = {link.rate_mbps for link in view.fabric.links if link.kind is LinkKind.FABRIC}
    lines += [("leaf-spine link per direction", rate) for rate in sorted(uplinks)]
    return [(name, rate_text(rate), rate_text(scale.emulated_rate_mbps(rate))) for name, rate in lines]


def _detour(run: RunView, detour: tuple[LinkTraffic, ...]) -> tuple[list[LinkTraffic], int]:
    """The detour links to list, NIC and leaf-spine links before NVLinks, and the number of those left out."""
    fabric = run.fabric
    ordered = sorted(detour, key=lambda traffic: fabric.link(traffic.link_id).kind is LinkKind.NVLINK)
    return ordered[:MOST_DETOUR_LINKS], max(len(ordered) - MOST_DETOUR_LINKS, 0)


def _notes(outcomes: tuple[Outcome, ...]) -> list[str]:
    return list(dict.fromkeys(note for outcome in outcomes for note in outcome.notes))


def _image(picture: Picture) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(picture.svg).decode()


def _number(value: float | None) -> str:
    return number(value, "not observed")


def _size(size_bytes: float | None) -> str:
    return "not observed" if size_bytes is None else size_text(size_bytes)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _flat(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    lines = []
    for key, value in provenance.items():
        name = key.replace("_", " ")
        if isinstance(value, Mapping):
            lines.append((name, ", ".join(f"{part} {version}" for part, version in value.items())))
        elif isinstance(value, (list, tuple)):
            lines.append((name, shlex.join(map(str, value))))
        else:
            lines.append((name, "unknown" if value is None else str(value)))
    return lines
