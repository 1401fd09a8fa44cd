"""A scenario with other values for some of its keys: every combination is a case, and a result of its own."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from experiments.errors import InterruptedExperimentError, Problem, ResultsError, ScenarioError
from experiments.files import slug
from experiments.provenance import provenance
from experiments.results import COMPLETE, INCOMPLETE, INTERRUPTED, RUNNING, ResultsFolder
from experiments.run import Progress
from experiments.scenario import Scenario, Setting, parse_scenario
from experiments.stored import SWEEP_FORMAT, SWEEP_VERSION, StoredSweep, read_result, read_sweep

MOST_CASES = 10_000


@dataclass(frozen=True)
class Axis:
    """A key of the scenario, and the values that it takes."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class SweepCase:
    """One combination of values: the folder's name, the settings, and the whole scenario as YAML."""

    name: str
    settings: tuple[Setting, ...]
    scenario_yaml: str


Files = dict[str, bytes]
"""The files of a finished result by their path in its folder."""

Made = tuple[SweepCase, str | None]
"""A case that has ended, and why it could not be made; None if its result lies in its folder."""


class Executor(Protocol):
    """Makes the cases below a folder, in any order; yields each when it has ended."""

    def __call__(self, cases: Sequence[SweepCase], folder: Path) -> Iterator[Made]:
        """Raises RailbedError where no case can be made at all."""


def parse_axis(text: str) -> Axis:
    """The axis written as ``key=value,value``, its values in YAML; raises ScenarioError for anything else."""
    key, equals, values = text.partition("=")
    try:
        found = yaml.safe_load(f"[{values}]")
        if equals and key.strip() and found:
            return Axis(key.strip(), tuple(found))
    except yaml.YAMLError:
        pass
    expected = "expected KEY=VALUE,VALUE, such as fabric.domains=2,4,8"
    raise ScenarioError(f"--sweep {text}", [Problem(0, "", expected)])


def sweep_cases(load: Callable[[Sequence[Setting]], Scenario], axes: Sequence[Axis]) -> tuple[SweepCase, ...]:
    """Every combination of the axes' values, the last axis fastest.

    ``load`` gives the scenario with some keys set. Raises ScenarioError with what is wrong with any combination, and
    for too many of them.
    """
    twice = {axis.key for axis in axes if [other.key for other in axes].count(axis.key) > 1}
    if twice:
        raise ScenarioError("--sweep", [Problem(0, min(twice), "is swept twice; give all its values at once")])
    count = 1
    for axis in axes:
        count *= len(axis.values)
    if count > MOST_CASES:
        raise ScenarioError("--sweep", [Problem(0, "", f"{count:,} cases; at most {MOST_CASES:,} are made at once")])
    cases, problems = [], []
    digits = len(str(count))
    for number, values in enumerate(itertools.product(*(axis.values for axis in axes)), 1):
        settings = tuple((axis.key, value) for axis, value in zip(axes, values, strict=True))
        told = ", ".join(f"{key}={value}" for key, value in settings)
        try:
            text = load(settings).to_yaml()
        except ScenarioError as error:
            problems += [Problem(0, one.key, f"with {told}: {one.text}") for one in error.problems]
        else:
            cases.append(SweepCase(f"{number:0{digits}d}-{slug(told)[:60]}", settings, text))
    if problems:
        raise ScenarioError("--sweep", problems)
    return tuple(cases)


def run_sweep(
    name: str,
    cases: Sequence[SweepCase],
    execute: Executor,
    progress: Progress,
    *,
    results_root: Path,
    command: Sequence[str] = (),
) -> StoredSweep:
    """Make every case and store all results below ``results_root``, in one folder.

    A case that can't be made is recorded with the reason, and the others go on. Raises InterruptedExperimentError on
    Ctrl-C, with the finished cases on disk, and RailbedError.
    """
    with ResultsFolder(results_root, f"{name}-sweep") as folder:
        folder.write_json("sweep.json", [_case_dict(case) for case in cases])
        folder.write_json("provenance.json", provenance(0, command or sys.argv))
        return _make(folder, name, cases, execute, progress)


def resume_sweep(path: Path, execute: Executor, progress: Progress) -> StoredSweep:
    """Make the cases that the sweep in ``path`` lacks, those that could not be made included."""
    stored = read_sweep(path)
    with ResultsFolder.reopen(path) as folder:
        return _make(folder, stored.name, stored_cases(path), execute, progress)


def stored_cases(path: Path) -> tuple[SweepCase, ...]:
    """All cases of a stored sweep, made or not; raises ResultsError for a damaged one."""
    try:
        data = json.loads((path / "sweep.json").read_text())
        return tuple(
            SweepCase(one["name"], tuple((key, value) for key, value in one["settings"]), one["scenario"])
            for one in data
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{path / 'sweep.json'} cannot be read ({error}): was it written by Railbed?") from None


def sweep_scenario(case: SweepCase) -> Scenario:
    """The scenario of a case."""
    return parse_scenario(case.scenario_yaml, case.name)


def _case_dict(case: SweepCase) -> dict[str, Any]:
    return {"name": case.name, "settings": [list(pair) for pair in case.settings], "scenario": case.scenario_yaml}


def _make(
    folder: ResultsFolder, name: str, cases: Sequence[SweepCase], execute: Executor, progress: Progress
) -> StoredSweep:
    reasons: dict[str, str] = {}
    to_do = [case for case in cases if not (folder.path / "cases" / case.name / "summary.json").exists()
             or not _is_whole(folder.path / "cases" / case.name)]  # fmt: skip
    done = len(cases) - len(to_do)
    stage = f"{len(cases)} cases"

    def write(status: str) -> None:
        summary = {
            "format": SWEEP_FORMAT,
            "version": SWEEP_VERSION,
            "name": name,
            "status": status,
            "cases": [
                {"name": case.name, "settings": dict(case.settings), "reason": reasons.get(case.name)} for case in cases
            ],
        }
        folder.write_json("summary.json", summary)

    status = INCOMPLETE
    write(RUNNING)
    folder.note("started", cases=len(to_do), of=len(cases))
    progress(stage, 0.0 if to_do else 1.0)
    try:
        for number, (case, reason) in enumerate(execute(to_do, folder.path / "cases"), 1):
            if reason is not None:
                reasons[case.name] = reason
            folder.note("case-ended", case=case.name, reason=reason)
            done += reason is None
            progress(stage, number / len(to_do))
        status = COMPLETE
    except KeyboardInterrupt:
        status = INTERRUPTED
        raise InterruptedExperimentError(
            f"interrupted after {done} of {len(cases)} cases, which are kept in {folder.path}: "
            f"'railbed run --resume {folder.path}' makes the others"
        ) from None
    finally:
        write(status)
        folder.note("ended", status=status)
    return read_sweep(folder.path)


def _is_whole(path: Path) -> bool:
    result = read_result(path)
    return result.status == COMPLETE and all(outcome.was_made for outcome in result.outcomes)


def write_case(folder: Path, files: Files) -> None:
    """Write the result of a case; its summary comes last, so that its presence means that the case is whole."""
    with ResultsFolder.at(folder) as result:
        for name in sorted(files, key=lambda name: (name == "summary.json", name)):
            result.write_bytes(name, files[name])


def settings_text(settings: Iterable[Setting]) -> str:
    """``fabric.domains=2, seed=1``."""
    return ", ".join(f"{key}={value}" for key, value in settings)
