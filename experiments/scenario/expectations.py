"""The section of a scenario that says what should come out, so that a run can be held against it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import model_validator

from experiments.outcome import FAILURE, HEALTHY
from experiments.scenario.fields import FROM_LIST, OneOf, Section, Share

SLOPE = "forwarding_slope"

VALUES = {
    "duration_s": "completion time in emulated seconds",
    "real_duration_s": "completion time in seconds of the real machine",
    "algbw_gbps": "algorithm bandwidth in Gbit/s of the real machine",
    "busbw_gbps": "bus bandwidth in Gbit/s of the real machine",
    "achieved": "median over the transfers of achieved over nominal rate",
    "complete": "share of the runs in which every transfer was made in full",
    "slowdown": "completion time with the failures over the healthy one, minus 1",
    "collision_factor": "completion time over the one if no flows shared a link between leaf and spine",
    "rerouted_after_s": "seconds from the first failure to new routes in force",
    "rerouted": "share of the failures that were answered by new routes",
    "diagnosed": "share of the runs that are diagnosed rightly: the failed part is told, nothing in a healthy run",
    "prediction_error": "completion time over the simulator's prediction, minus 1",
    SLOPE: "slope over intercept of the completion time against C_S/C_F over the fabrics",
}
"""What can be expected, and what it means."""

OF_FAILURES = ("slowdown", "rerouted_after_s", "rerouted")


class Versus(Section):
    """Another run to divide by; what is not given is as in the expectation."""

    fabric: str | None = None
    workload: str | None = None
    condition: Literal["healthy", "failure"] | None = None


class ExpectSection(Section):
    """A value that a run should have, by the median over repetitions."""

    value: Annotated[str, OneOf("value", list(VALUES))]
    fabric: str | None = None
    """Name of the fabric; it may be left out where there is one."""
    fabrics: Annotated[tuple[str, ...], FROM_LIST] | None = None
    """Of ``forwarding_slope``: the fabrics that the line is fitted through."""
    workload: str | None = None
    """Name of the schedule; it may be left out where there is one."""
    condition: Literal["healthy", "failure"] | None = None
    versus: Versus | None = None
    """With it, the value is divided by that of another run, and 1 is subtracted."""
    equals: Share | None = None
    tolerance: Share = 0.0
    """How far from ``equals`` it may be, in the same unit."""
    at_least: Share | None = None
    at_most: Share | None = None
    backend: Literal["emulator", "simulator"] | None = None
    """The back end that it holds on; both where it is not given."""
    source: str = ""
    """Where the expected value is from."""

    @model_validator(mode="after")
    def _says_something(self) -> ExpectSection:
        if self.equals is None and self.at_least is None and self.at_most is None:
            raise ValueError("an expectation needs 'equals' (with 'tolerance'), 'at_least' or 'at_most'")
        if self.equals is not None and (self.at_least is not None or self.at_most is not None):
            raise ValueError("give either 'equals' with a 'tolerance', or 'at_least' and 'at_most'")
        if self.tolerance < 0:
            raise ValueError(f"tolerance is {self.tolerance:g}; it must be 0 or more")
        if (self.fabrics is not None) != (self.value == SLOPE):
            raise ValueError(f"'fabrics' and the value '{SLOPE}' belong together")
        return self

    @property
    def of_condition(self) -> str:
        """The condition meant."""
        return self.condition or (FAILURE if self.value in OF_FAILURES else HEALTHY)

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Lowest and highest value that is as expected."""
        if self.equals is not None:
            return self.equals - self.tolerance, self.equals + self.tolerance
        return self.at_least, self.at_most

    @property
    def text(self) -> str:
        """What is expected, to read: ``slowdown of all-reduce on rail-only: 0.2 +- 0.01``."""
        where = " on ".join(part for part in (self.workload, self.fabric) if part)
        what = f"{self.value} of {where}" if where else self.value
        if self.versus is not None:
            other = " on ".join(part for part in (self.versus.workload, self.versus.fabric) if part)
            what += f" against {other or self.versus.condition}"
        if self.equals is not None:
            return f"{what}: {self.equals:.4g} +- {self.tolerance:.3g}"
        limits = [f"{word} {bound:.4g}" for word, bound in zip(("at least", "at most"), self.bounds, strict=True)
                  if bound is not None]  # fmt: skip
        return f"{what}: {' and '.join(limits)}"
