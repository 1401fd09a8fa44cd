"""The summary of a run as a table on the terminal, and its rows as text for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from experiments.outcome import HEALTHY, Outcome
from experiments.units import duration_text, size_text
from workloads.bandwidth import BUS_FACTORS, CAVEAT
from workloads.collectives import PIPELINED_RING


@dataclass(frozen=True)
class Column:
    """A column heading with its unit, and whether it holds numbers."""

    heading: str
    is_number: bool


COLUMNS = (
    Column("fabric", False),
    Column("collective, size", False),
    Column("condition", False),
    Column("time (emulated s)", True),
    Column("expected (s)", True),
    Column("time (real)", True),
    Column("algbw (Gbit/s)", True),
    Column("busbw (Gbit/s)", True),
    Column("achieved/nominal: median, worst", True),
    Column("slowdown", True),
    Column("expected slowdown", True),
)


def rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """One row of texts per outcome, in the order of :data:`COLUMNS`."""
    return [
        (
            outcome.fabric,
            f"{outcome.collective}, {size_text(outcome.size_bytes)}",
            _condition(outcome),
            number(outcome.duration_s, outcome.status),
            number(outcome.predicted_s, "-"),
            duration_text(outcome.real_duration_s) if outcome.real_duration_s else outcome.status,
            number(outcome.algbw_gbps, "-"),
            number(outcome.busbw_gbps, "-"),
            _achieved(outcome),
            "" if outcome.condition == HEALTHY else percent(outcome.slowdown),
            "" if outcome.condition == HEALTHY else percent(outcome.expected_slowdown),
        )
        for outcome in outcomes
    ]


def footnotes(outcomes: Sequence[Outcome]) -> list[str]:
    """What a reader of the table must know: the formulas, the caveats, and what failed."""
    notes = []
    for operation in dict.fromkeys(outcome.operation for outcome in outcomes):
        same = [outcome for outcome in outcomes if outcome.operation == operation]
        sizes = " or ".join(str(n) for n in dict.fromkeys(outcome.group_size for outcome in same))
        formula = f"algbw = size/time, busbw = algbw * {BUS_FACTORS[operation].text} with n = {sizes}"
        notes.append(f"{operation}: {formula}; size = {same[0].size_meaning}.")
    notes.append(f"Bandwidths and sizes are those of the real machine. {CAVEAT}")
    notes.append("Expected: the fluid model (max-min fair rates) with the same paths and failures.")
    if any(outcome.algorithm == PIPELINED_RING for outcome in outcomes):
        notes.append("Rings are replayed as a pipelined ring: two bulk phases, one flow per ring edge in each.")
    too_short = sum(outcome.achieved.too_short for outcome in outcomes)
    if too_short:
        notes.append(f"{too_short} transfers are nominally shorter than 1 s (emulated): too short to judge.")
    for outcome in outcomes:
        for problem in outcome.problems:
            notes.append(f"{outcome.fabric}, {outcome.collective}, {outcome.condition}: {problem}.")
    return notes


def summary(outcomes: Sequence[Outcome]) -> RenderableType:
    """The table with its footnotes, for a rich console."""
    table = Table(header_style="bold", pad_edge=False)
    for column in COLUMNS:
        table.add_column(column.heading, justify="right" if column.is_number else "left")
    last_fabric = None
    for outcome, row in zip(outcomes, rows(outcomes), strict=True):
        if last_fabric is not None and outcome.fabric != last_fabric:
            table.add_section()
        last_fabric = outcome.fabric
        table.add_row(*(Text(cell) for cell in row), style="" if outcome.status == "complete" else "bold")
    return Group(table, *(Text(note) for note in footnotes(outcomes)))


def number(value: float | None, missing: str) -> str:
    """Three significant digits, whole numbers from 100 on."""
    if value is None:
        return missing
    if value == 0:
        return "0"
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


def percent(share: float | None) -> str:
    """A share as a signed percentage with one digit."""
    return "-" if share is None else f"{share * 100:+.1f} %"


def _condition(outcome: Outcome) -> str:
    if outcome.condition == HEALTHY:
        return HEALTHY
    return f"{', '.join(outage.link_id for outage in outcome.outages)} fails"


def _achieved(outcome: Outcome) -> str:
    found = outcome.achieved
    if found.median_share is None or found.worst_share is None:
        return "too short to judge"
    return f"{found.median_share:.2f}, {found.worst_share:.2f}"
