"""What failures cost a training job: the share of its time that is not spent on steps that count. Pure.

A failure costs four parts, one after the other (those of C4, arXiv 2406.04594): the work since the last checkpoint that
has to be done again, the time until it is detected, the time until the component is known and isolated, and the time
until the job runs again. A part's share is ``failures * mean seconds / seconds of the period``. Failures are counted
per time of the calendar, as operators count them, so shares add up and none of them depends on another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from pathlib import Path

from simulator.economics.errors import DowntimeInputsError
from simulator.economics.reading import Figure, Reader, read_text, read_yaml

BUILT_IN = "the built-in inputs"
DAY_S = 86_400

MEANINGS = {
    "period_days": "length of the period in days",
    "failures": "failures of the job in the period",
    "checkpoint_interval_s": "seconds from the start of a checkpoint to that of the next",
    "checkpoint_save_s": "seconds that the job waits for a checkpoint to be saved",
    "aided_share": "share of failures, 0 to 1, that are detected and diagnosed automatically",
    "aided_detection_s": "seconds until such a failure is detected",
    "aided_diagnosis_s": "seconds until its component is known and isolated",
    "unaided_detection_s": "seconds until any other failure is detected",
    "unaided_diagnosis_s": "seconds until its component is known and isolated",
    "restart_s": "seconds from there until the job runs again",
}
"""What every input is, by its key."""


@dataclass(frozen=True)
class Case:
    """The inputs of one case, each with where it is from; units are in the names, meanings in :data:`MEANINGS`."""

    failures: Figure
    checkpoint_interval_s: Figure
    checkpoint_save_s: Figure
    aided_share: Figure
    aided_detection_s: Figure
    aided_diagnosis_s: Figure
    unaided_detection_s: Figure
    unaided_diagnosis_s: Figure
    restart_s: Figure


@dataclass(frozen=True)
class Inputs:
    """All inputs: the length of the period, and the cases by name."""

    name: str
    period_days: Figure
    cases: Mapping[str, Case]


@dataclass(frozen=True)
class Downtime:
    """Shares of the job's time, 0 to 1, by part; and what checkpoints cost while nothing fails (in no part)."""

    redone: float
    detection: float
    diagnosis: float
    restart: float
    saving: float

    @property
    def total(self) -> float:
        """The four parts together; saving is not in it, as no failure causes it."""
        return self.redone + self.detection + self.diagnosis + self.restart

    @property
    def useful(self) -> float:
        """What is left for steps that count."""
        return 1 - self.total - self.saving

    @property
    def parts(self) -> dict[str, float]:
        """The four parts, by the names of :data:`PARTS`."""
        return dict(zip(PARTS, (self.redone, self.detection, self.diagnosis, self.restart), strict=True))


PARTS = ("work done again", "detection", "diagnosis and isolation", "restart")
"""The names of a failure's four parts, in the order in which they are told."""


def seconds_per_failure(case: Case) -> dict[str, float]:
    """Mean seconds of each part of one failure.

    A failure comes at any moment between two checkpoints alike, so half an interval has to be done again on average.
    """
    aided = case.aided_share.value
    return dict(
        zip(
            PARTS,
            (
                case.checkpoint_interval_s.value / 2,
                aided * case.aided_detection_s.value + (1 - aided) * case.unaided_detection_s.value,
                aided * case.aided_diagnosis_s.value + (1 - aided) * case.unaided_diagnosis_s.value,
                case.restart_s.value,
            ),
            strict=True,
        )
    )


def downtime(case: Case, period_days: float) -> Downtime:
    """The shares of a case; raises DowntimeInputsError where the failures would take the whole period or more."""
    period_s = period_days * DAY_S
    redone, detection, diagnosis, restart = (
        case.failures.value * mean_s / period_s for mean_s in seconds_per_failure(case).values()
    )
    running = 1 - redone - detection - diagnosis - restart
    if running <= 0:
        raise DowntimeInputsError(
            f"{case.failures.value:g} failures of {sum(seconds_per_failure(case).values()):,.0f} s each leave nothing "
            f"of {period_days:g} days: give fewer failures, shorter times or a longer period"
        )
    return Downtime(
        redone, detection, diagnosis, restart, running * case.checkpoint_save_s.value / case.checkpoint_interval_s.value
    )


def best_interval_s(case: Case, period_days: float) -> float | None:
    """The checkpoint interval that costs least, ``sqrt(2 * save * time between failures)`` (Young 1974).

    None where saving costs nothing or nothing fails: there is no best interval then. A first-order formula, right where
    an interval is much shorter than the time between failures.
    """
    if not case.checkpoint_save_s.value or not case.failures.value:
        return None
    return math.sqrt(2 * case.checkpoint_save_s.value * period_days * DAY_S / case.failures.value)


STEPS = {
    "fewer failures": ("failures",),
    "checkpoints more often": ("checkpoint_interval_s", "checkpoint_save_s"),
    "automatic diagnosis": (
        "aided_share", "aided_detection_s", "aided_diagnosis_s", "unaided_detection_s", "unaided_diagnosis_s",
    ),
    "faster restart": ("restart_s",),
}  # fmt: skip
"""What changes from one case to another, by its name: the inputs that belong to it."""


def alone(first: Case, second: Case) -> dict[str, Case]:
    """By :data:`STEPS`: the first case with only that step of the second."""
    return {name: replace(first, **{key: getattr(second, key) for key in keys}) for name, keys in STEPS.items()}


def default_text() -> str:
    """The text of the built-in inputs, to be saved and edited."""
    return files(__package__).joinpath("default_downtime.yaml").read_text(encoding="utf-8")


def default_inputs() -> Inputs:
    """The inputs that are used when none are given; their file says of each where it is from."""
    return parse_inputs(default_text(), BUILT_IN)


def load_inputs(path: Path) -> Inputs:
    """The inputs in a YAML file; raises DowntimeInputsError for a file that is missing, not readable or wrong."""
    return parse_inputs(read_text(path, "file of inputs", DowntimeInputsError), str(path))


def parse_inputs(text: str, name: str) -> Inputs:
    """The inputs in a YAML text; ``name`` is what errors call it. Raises DowntimeInputsError."""
    return _inputs(Reader(name, DowntimeInputsError, MEANINGS), read_yaml(text, name, DowntimeInputsError))


def with_settings(inputs: Inputs, settings: Mapping[str, float]) -> Inputs:
    """The inputs with other values, by ``CASE.KEY`` or ``period_days``; raises DowntimeInputsError."""
    cases: dict[str, dict[str, object]] = {
        name: {one.name: _plain(getattr(case, one.name)) for one in fields(case)} for name, case in inputs.cases.items()
    }
    top: dict[str, object] = {"period_days": _plain(inputs.period_days), "cases": cases}
    for key, value in settings.items():
        case, _, name = key.rpartition(".")
        if not case and name == "period_days":
            top[name] = value
        elif case in cases:
            cases[case][name] = value
        else:
            known = ", ".join(("period_days", *(f"{one}.KEY" for one in cases)))
            raise DowntimeInputsError(f"there is no input '{key}': the inputs are {known}, with the keys of a case")
    return _inputs(Reader("the command line", DowntimeInputsError, MEANINGS), top)


def _plain(figure: Figure) -> dict[str, object]:
    return {"value": figure.value, "source": figure.source}


def _inputs(reader: Reader, data: object) -> Inputs:
    top = reader.section(data, "", ("period_days", "cases"))
    period = reader.figure(top["period_days"], "period_days", MEANINGS["period_days"])
    if not period.value:
        raise reader.wrong("period_days", "a number above 0", 0)
    if not isinstance(top["cases"], dict) or not top["cases"]:
        raise reader.wrong("cases", "at least one case by its name", top["cases"])
    cases = {str(key): _case(reader, case, f"cases.{key}") for key, case in top["cases"].items()}
    return Inputs(reader.name, period, cases)


def _case(reader: Reader, data: object, key: str) -> Case:
    names = [one.name for one in fields(Case)]
    section = reader.section(data, key, names)
    figures = {name: reader.figure(section[name], f"{key}.{name}", MEANINGS[name]) for name in names}
    case = Case(**figures)
    if case.aided_share.value > 1:
        raise reader.wrong(f"{key}.aided_share", "a share from 0 to 1", case.aided_share.value)
    if not case.checkpoint_interval_s.value:
        raise reader.wrong(f"{key}.checkpoint_interval_s", "a number above 0", 0)
    if case.checkpoint_save_s.value >= case.checkpoint_interval_s.value:
        raise reader.wrong(
            f"{key}.checkpoint_save_s",
            f"less than the interval of {case.checkpoint_interval_s.value:g} s", case.checkpoint_save_s.value,
        )  # fmt: skip
    return case
