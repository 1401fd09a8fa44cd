"""A sweep as rows: the swept values first, then what came out of each case."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.statistics import Case, cases, median
from experiments.stored import StoredCase, StoredSweep
from experiments.tables import duration_cell, number, percent
from experiments.units import duration_text, size_text

HEADINGS = ("fabric", "collective, size", "condition", "emulated (s)", "expected (s)", "real", "busbw (Gbit/s)",
            "slowdown")  # fmt: skip


def keys(sweep: StoredSweep) -> tuple[str, ...]:
    """The swept keys."""
    return tuple(sweep.cases[0].settings) if sweep.cases else ()


def sweep_rows(sweep: StoredSweep) -> list[tuple[str, ...]]:
    """One row of texts for everything that was run in each case, under :func:`keys` and :data:`HEADINGS`."""
    return [row for case in sweep.cases for row in _case_rows(case)]


def _case_rows(stored: StoredCase) -> Iterator[tuple[str, ...]]:
    values = tuple(str(value) for value in stored.settings.values())
    if stored.result is None:
        yield (*values, f"not made: {stored.reason or 'not yet'}", *[""] * (len(HEADINGS) - 1))
        return
    for case in cases(stored.result.outcomes):
        yield (*values, *_cells(case))


def _cells(case: Case) -> tuple[str, ...]:
    first = case.first
    real_s = median(case.real_durations_s)
    slowdown = median([outcome.slowdown for outcome in case.outcomes])
    return (
        first.fabric,
        f"{first.collective}, {size_text(first.size_bytes)}",
        first.condition,
        duration_cell(case),
        number(first.predicted_s, "-"),
        duration_text(real_s) if real_s else case.status,
        number(median([outcome.busbw_gbps for outcome in case.outcomes]), "-"),
        "" if slowdown is None else percent(slowdown),
    )
