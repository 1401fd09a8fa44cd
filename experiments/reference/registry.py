"""All reference experiments by name."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.reference.bill import R1, R2
from experiments.reference.downtime import C6
from experiments.reference.forwarding import R3
from experiments.reference.iterations import R4
from experiments.reference.planning import C7, C8, C9, C10, C11, RP
from experiments.reference.rails import R8
from experiments.reference.robustness import R6, R7
from experiments.reference.row import Reference, ReferenceRow, Told, UnknownReferenceError
from experiments.reference.traffic import R5, R9
from topologies.near import did_you_mean

REFERENCES: dict[str, Reference] = {reference.name: reference for reference in (R1, R2, R3, R4, R5, R6, R7, R8, R9)}
"""By name, in the order of the papers' tables."""

PLANNING: dict[str, Reference] = {reference.name: reference for reference in (C7, C8, C9, C10, C11, RP)}
"""Those of traffic planning, by name."""

DOWNTIME: dict[str, Reference] = {C6.name: C6}
"""That of downtime, by name."""

PAPER_TABLES = "paper-tables"
"""The name of :data:`REFERENCES` together."""

GROUPS: dict[str, tuple[str, ...]] = {
    "c4-downtime": tuple(DOWNTIME),
    "planning-tables": tuple(PLANNING),
    PAPER_TABLES: tuple(REFERENCES),
}
"""Names of several at once; the catalogue lists them."""

_ALL = REFERENCES | DOWNTIME | PLANNING


def is_reference(name: str) -> bool:
    """Whether that is the name of a reference experiment, or of several."""
    return name.upper() in _ALL or name.lower() in GROUPS


def find(names: Sequence[str]) -> list[Reference]:
    """The experiments of those names, each once; raises UnknownReferenceError for an unknown name."""
    found: dict[str, Reference] = {}
    for name in names:
        if name.lower() in GROUPS:
            found.update({one: _ALL[one] for one in GROUPS[name.lower()]})
        elif name.upper() in _ALL:
            found[name.upper()] = _ALL[name.upper()]
        else:
            hint = did_you_mean(name.upper(), _ALL)
            known = ", ".join((*_ALL, *GROUPS))
            raise UnknownReferenceError(f"unknown reference experiment '{name}': {hint}They are {known}")
    return list(found.values())


def run(names: Sequence[str], told: Told = lambda text: None) -> tuple[ReferenceRow, ...]:
    """The rows of the experiments of those names, made anew; ``told`` hears what is being reckoned."""
    return tuple(row for reference in find(names) for row in reference.make(told))
