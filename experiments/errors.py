"""Mistakes in a scenario file, and results that cannot be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topologies.errors import RailbedError


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a scenario: the line (0 where there is none), the key, and a sentence."""

    line: int
    key: str
    text: str


class ScenarioError(RailbedError, ValueError):
    """A scenario file is missing, unreadable or wrong; holds all problems at once, one line of the message each."""

    exit_code = 2

    def __init__(self, path: str, problems: Sequence[Problem]) -> None:
        """Make the message of all ``problems`` of the file at ``path``."""
        self.path = path
        self.problems = tuple(problems)
        super().__init__("\n".join(self._line(problem) for problem in self.problems))

    def _line(self, problem: Problem) -> str:
        place = f"{self.path}:{problem.line}" if problem.line else self.path
        return f"{place}: {problem.key}: {problem.text}" if problem.key else f"{place}: {problem.text}"


class ResultsError(RailbedError):
    """Results cannot be written where they should go."""


class StageTimeoutError(RailbedError):
    """A stage of an experiment took longer than its bound."""


class InterruptedExperimentError(RailbedError):
    """An experiment was interrupted; what it had measured is on disk."""


class SchedulerError(RailbedError):
    """A Dask cluster can't be used."""


class UnlikeResultsError(RailbedError):
    """Results cannot be compared: they are not of the same thing."""

    exit_code = 2


class NoSuchResultError(RailbedError):
    """No result of that name is stored."""

    exit_code = 2


class UnknownExperimentError(RailbedError, ValueError):
    """No scenario file and no experiment of the catalogue has that name."""

    exit_code = 2


class NothingExpectedError(RailbedError, ValueError):
    """A scenario is to be held against expected values, but has none."""

    exit_code = 2


class CannotCompareError(RailbedError):
    """A result and what it is to be compared with have nothing in common."""


class NoRunError(RailbedError):
    """A fabric was to be diagnosed on which nothing runs that tells anything."""
