"""C6: what failures cost a job before and after automatic diagnosis, by the downtime model and its stated inputs."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.figures.downtime import downtime_figure
from experiments.reference.row import Expected, Mark, Reference, ReferenceRow, Told, exactly
from simulator.economics.downtime import PARTS, alone, default_inputs, downtime

BEFORE, AFTER = "before", "after"
SHARES = {BEFORE: (7.53, 3.41, 19.65, 0.60), AFTER: (0.23, 0.05, 0.73, 0.15)}
"""Percent of the job's time, by case, in the order of the parts; recalled, not checked against the paper."""

TOTALS = {BEFORE: 31.19, AFTER: 1.16}
HUNDREDTH = 0.005


def parts(told: Told) -> list[ReferenceRow]:
    """Both cases by part, and what each change alone would have given."""
    told("downtime")
    inputs = default_inputs()
    days = inputs.period_days.value
    rows = []
    for name, shares in SHARES.items():
        found = downtime(inputs.cases[name], days)
        for (part, share), expected in zip(found.parts.items(), shares, strict=True):
            rows.append(
                ReferenceRow("C6", f"{name}: {part}", "%", 100 * share, exactly(expected, Mark.UNCHECKED, HUNDREDTH),
                             "its input was solved from this share", line=name)
            )  # fmt: skip
        total = Expected(TOTALS[name], TOTALS[name], Mark.SECONDARY, HUNDREDTH)
        rows.append(ReferenceRow("C6", f"{name}: all four parts", "%", 100 * found.total, total))
    for step, case in alone(inputs.cases[BEFORE], inputs.cases[AFTER]).items():
        rows.append(ReferenceRow("C6", f"before with {step} alone", "%", 100 * downtime(case, days).total))
    return rows


def bars(rows: Sequence[ReferenceRow]) -> Figure:
    """The stacked bars of both cases, from their rows."""
    shares = {
        name: {part: next(row.measured or 0.0 for row in rows if row.label == f"{name}: {part}") for part in PARTS}
        for name in SHARES
    }
    return downtime_figure(shares)


C6 = Reference(
    "C6",
    "Automatic diagnosis and what goes with it cut a job's downtime from 31.19 % to 1.16 % of its time.",
    "The downtime model with its built-in inputs, of which `railbed downtime` takes others.",
    parts,
    draw=bars,
)
