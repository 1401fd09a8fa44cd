"""One line of a reference table: a number that somebody published or that follows from the model, and Railbed's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from topologies.errors import RailbedError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Mark(str, Enum):
    """Where an expected number is from."""

    PUBLISHED = "P"
    SECONDARY = "S"
    DERIVED = "D"
    UNCHECKED = "U"

    @property
    def meaning(self) -> str:
        """The mark in words."""
        return _MEANINGS[self]


_MEANINGS = {
    Mark.PUBLISHED: "read in a primary source",
    Mark.SECONDARY: "from a secondary source",
    Mark.DERIVED: "derived here by arithmetic",
    Mark.UNCHECKED: "recalled, not checked against the source",
}


@dataclass(frozen=True)
class Expected:
    """A published or derived range in the row's unit, where it is from, and half of its last digit as ``tolerance``.

    A single value has ``low`` equal to ``high``.
    """

    low: float
    high: float
    mark: Mark
    tolerance: float = 0.0


def exactly(value: float, mark: Mark = Mark.DERIVED, tolerance: float = 0.0) -> Expected:
    """A single expected value."""
    return Expected(value, value, mark, tolerance)


@dataclass(frozen=True)
class ReferenceRow:
    """What one case should give and what it gave.

    ``expected`` None: nobody published a number; the row is there to be read beside the others. ``measured`` None: the
    model can't show this; ``note`` says why. A row that does not agree has a note with the cause. Rows of the same
    ``line`` are the points of one line of the experiment's figure, at ``setting``.
    """

    experiment: str
    label: str
    unit: str
    measured: float | None
    expected: Expected | None = None
    note: str = ""
    line: str = ""
    setting: float = 0.0

    @property
    def difference(self) -> float | None:
        """Measured minus the nearest expected value, in the row's unit; 0 within the range, None without either."""
        if self.expected is None or self.measured is None:
            return None
        if self.measured < self.expected.low:
            return self.measured - self.expected.low
        return max(0.0, self.measured - self.expected.high)

    @property
    def agrees(self) -> bool | None:
        """Whether the difference is within the tolerance; None where there is nothing to compare."""
        difference = self.difference
        if difference is None or self.expected is None:
            return None
        return abs(difference) <= self.expected.tolerance + 1e-9 * abs(self.expected.high)

    @property
    def relative_difference(self) -> float | None:
        """The difference as a share of the nearest expected value; None where that is 0 or missing."""
        difference = self.difference
        if difference is None or self.expected is None:
            return None
        nearest = self.expected.low if difference < 0 else self.expected.high
        return difference / nearest if nearest else None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form with what follows from the row."""
        data = asdict(self)
        if self.expected is not None:
            data["expected"]["mark"] = self.expected.mark.value
        return {
            **data,
            "difference": self.difference,
            "relative_difference": self.relative_difference,
            "agrees": self.agrees,
        }


Told = Callable[[str], None]
"""Told what is being reckoned."""


@dataclass(frozen=True)
class Reference:
    """A named group of rows: the claim it checks, how, and what makes the rows.

    ``axes`` are the title and the labels of a figure of the rows' lines, ``bands`` the published ranges in it; ``draw``
    makes a figure of another form.
    """

    name: str
    claim: str
    method: str
    make: Callable[[Told], list[ReferenceRow]]
    axes: tuple[str, str, str] | None = None
    bands: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    draw: Callable[[Sequence[ReferenceRow]], Figure] | None = None


class UnknownReferenceError(RailbedError, ValueError):
    """An unknown reference experiment; the message lists those that there are."""

    exit_code = 2
