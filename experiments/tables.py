"""The summary of a run as a table on the terminal, and its rows as text for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from experiments.outcome import HEALTHY, Outcome
from experiments.statistics import CONFIDENCE, Case, cases, mean_interval, median
from experiments.units import duration_text, size_text
from simulator.fluid import BACKEND
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
    Column("emulated (s)", True),
    Column("expected (s)", True),
    Column("real", True),
    Column("algbw (Gbit/s)", True),
    Column("busbw (Gbit/s)", True),
    Column("achieved", True),
    Column("slowdown (expected)", True),
)


def rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """One row of texts per case (all repetitions of a run together), in the order of :data:`COLUMNS`."""
    return [_row(case) for case in cases(outcomes)]


def _row(case: Case) -> tuple[str, ...]:
    first, made = case.first, case.outcomes
    real_s = median(case.real_durations_s)
    return (
        first.fabric,
        f"{first.collective}, {size_text(first.size_bytes)}",
        _condition(first),
        duration_cell(case),
        number(first.predicted_s, "-"),
        duration_text(real_s) if real_s else case.status,
        number(median([outcome.algbw_gbps for outcome in made]), "-"),
        number(median([outcome.busbw_gbps for outcome in made]), "-"),
        _achieved(made),
        _slowdown(made),
    )


def duration_cell(case: Case) -> str:
    """The median completion time in emulated seconds; of repetitions, also the interval and how many were lost."""
    text = number(median(case.durations_s), case.status)
    interval = mean_interval(case.durations_s)
    if interval is not None:
        text += f" ({number(interval.low, '-')} to {number(interval.high, '-')})"
    if case.lost and case.durations_s:
        text += f", {case.lost} of {len(case.outcomes)} lost"
    return text


def footnotes(outcomes: Sequence[Outcome]) -> list[str]:
    """What a reader of the table must know: the formulas, the caveats, and what failed."""
    notes = []
    for operation in dict.fromkeys(outcome.operation for outcome in outcomes):
        same = [outcome for outcome in outcomes if outcome.operation == operation]
        if operation not in BUS_FACTORS:
            notes.append(f"{operation}: no bandwidth is defined; size = {same[0].size_meaning}.")
            continue
        sizes = " or ".join(str(n) for n in dict.fromkeys(outcome.group_size for outcome in same))
        formula = f"algbw = size/time, busbw = algbw * {BUS_FACTORS[operation].text} with n = {sizes}"
        notes.append(f"{operation}: {formula}; size = {same[0].size_meaning}.")
    notes.append(f"Bandwidths and sizes are those of the real machine. {CAVEAT}")
    notes.append("achieved: rate of transfers over their nominal max-min rate, median and worst.")
    repetitions = max(len(case.outcomes) for case in cases(outcomes)) if outcomes else 0
    if repetitions > 1:
        notes.append(
            f"Of {repetitions} repetitions: medians, and in brackets the {CONFIDENCE:.0%} confidence interval of the "
            "mean (Student's t)."
        )
    notes.append("expected: the fluid model (max-min fair rates) with the same paths and failures.")
    if any(outcome.backend == BACKEND for outcome in outcomes):
        notes.append("Runs on the simulator are the fluid model itself: they equal what is expected by construction.")
    if any(outcome.algorithm == PIPELINED_RING for outcome in outcomes):
        phases = "an all-reduce in two bulk phases, everything else in one"
        notes.append(f"Rings are replayed as pipelined rings: {phases}, one flow per ring edge in each.")
    too_short = sum(outcome.achieved.too_short for outcome in outcomes)
    if too_short:
        notes.append(f"{too_short} transfers are nominally shorter than 1 s (emulated): too short to judge.")
    failed: dict[str, list[str]] = {}
    for outcome in outcomes:
        for outage in outcome.outages:
            if outcome.collective not in failed.setdefault(f"{outage.link_id} on {outcome.fabric}", []):
                failed[f"{outage.link_id} on {outcome.fabric}"].append(outcome.collective)
    if failed:
        listed = "; ".join(f"{link} ({', '.join(collectives)})" for link, collectives in failed.items())
        notes.append(f"Failing: {listed}.")
    for outcome in (case.first for case in cases(outcomes)):
        if outcome.predicted_s and outcome.collision_free_s and outcome.predicted_s > 1.02 * outcome.collision_free_s:
            notes.append(
                f"{outcome.fabric}, {outcome.collective}: flows that share a leaf-spine link by the path hash cost "
                f"{outcome.predicted_s / outcome.collision_free_s - 1:.0%}; with paths that never collide "
                f"{outcome.collision_free_s:.3g} s would be expected."
            )
    for outcome in outcomes:
        for problem in outcome.problems:
            of = f", repetition {outcome.repetition}" if repetitions > 1 else ""
            notes.append(f"{outcome.fabric}, {outcome.collective}, {outcome.condition}{of}: {problem}.")
    return notes


def summary(outcomes: Sequence[Outcome]) -> RenderableType:
    """The table with its footnotes, for a rich console."""
    table = Table(header_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(COLUMNS[1].heading, min_width=20, overflow="fold")
    for column in COLUMNS[2:]:
        table.add_column(column.heading, justify="right" if column.is_number else "left", overflow="fold")
    last_fabric = None
    for case in cases(outcomes):
        row = _row(case)
        if case.first.fabric != last_fabric:  # a line of its own: a column would cost the width of the others
            table.add_row(Text(case.first.fabric, style="bold"))
        last_fabric = case.first.fabric
        table.add_row(*(Text(cell) for cell in row[1:]), style="" if case.status == "complete" else "bold")
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
    if not outcome.outages:
        return "rank fails"
    return "link fails" if len(outcome.outages) == 1 else "links fail"


def _slowdown(outcomes: Sequence[Outcome]) -> str:
    if outcomes[0].condition == HEALTHY:
        return ""
    found = median([outcome.slowdown for outcome in outcomes])
    return f"{percent(found)} ({percent(median([outcome.expected_slowdown for outcome in outcomes]))})"


def _achieved(outcomes: Sequence[Outcome]) -> str:
    middle = median([outcome.achieved.median_share for outcome in outcomes])
    worst = [outcome.achieved.worst_share for outcome in outcomes if outcome.achieved.worst_share is not None]
    return "too short" if middle is None or not worst else f"{middle:.2f}, {min(worst):.2f}"
