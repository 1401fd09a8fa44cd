"""Results as they lie on disk, whole or cut short: found, read, told apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from experiments.columns import link_series, read_parquet
from experiments.errors import NoSuchResultError, ResultsError
from experiments.outcome import Outcome
from experiments.results import INCOMPLETE, RUNNING, SUMMARY_VERSION, is_being_written
from experiments.scenario import Scenario, load_scenario
from topologies.builders import build
from topologies.errors import RailbedError
from topologies.model import Fabric, FabricSpec
from topologies.near import did_you_mean
from topologies.scale import Scale
from workloads.records import Event, EventKind, LinkSeries

SWEEP_FORMAT = "railbed-sweep"
SWEEP_VERSION = 1

_OUTCOME = TypeAdapter(Outcome)


@dataclass(frozen=True)
class StoredRun:
    """One run of a stored result. The tables are read when they are asked for; a run not made has none."""

    path: Path
    outcome: Outcome
    spec: FabricSpec
    scale: Scale

    @cached_property
    def fabric(self) -> Fabric:
        """The fabric that it ran on."""
        return build(self.spec)

    def links(self) -> LinkSeries:
        """The counters of all links."""
        return link_series(read_parquet(self.path / "links.parquet"), [link.id for link in self.fabric.links])

    def transfers(self) -> pa.Table:
        """The transfers, as :data:`experiments.columns.TRANSFERS`."""
        return read_parquet(self.path / "transfers.parquet")

    def settings(self) -> Mapping[str, Any]:
        """All that ``run.json`` holds: ``schedule`` without its transfers, ``failures``, ``engine`` and others."""
        return _read_json(self.path / "run.json")

    def events(self) -> tuple[Event, ...]:
        """What happened, in order of time; raises ResultsError for a damaged file."""
        path = self.path / "events.jsonl"
        try:
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            return tuple(Event(row["t_s"], EventKind(row["kind"]), row["subject"], row["detail"]) for row in rows)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResultsError(f"{path} cannot be read ({error}): was it written by this version?") from None


@dataclass(frozen=True)
class StoredResult:
    """A result's folder. ``status`` is ``incomplete`` where its writer ended without saying so."""

    path: Path
    name: str
    status: str
    planned_runs: int
    runs: tuple[StoredRun, ...]

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What came out, in the order of the runs."""
        return tuple(run.outcome for run in self.runs)

    def scenario(self) -> Scenario:
        """The scenario as run; raises ScenarioError if this version of Railbed can't read it."""
        return load_scenario(self.path / "scenario.yaml")

    def planned_failures(self) -> tuple[str, ...] | None:
        """The failures that the scenario plans, each to read; None if this version of Railbed can't read it."""
        try:
            failures = self.scenario().model_dump(mode="json", exclude_none=True)["failures"]
        except RailbedError:
            return None
        return tuple(", ".join(f"{key} {value}" for key, value in failure.items()) for failure in failures)

    def provenance(self) -> Mapping[str, Any]:
        """What the result depends on besides its scenario; empty if it was cut short before that was written."""
        return _provenance(self.path)


@dataclass(frozen=True)
class StoredCase:
    """One case of a sweep: its settings, and its result or the reason why there is none."""

    name: str
    settings: Mapping[str, Any]
    result: StoredResult | None
    reason: str | None


@dataclass(frozen=True)
class StoredSweep:
    """A sweep's folder."""

    path: Path
    name: str
    status: str
    cases: tuple[StoredCase, ...]

    @property
    def made(self) -> tuple[StoredCase, ...]:
        """The cases that have a result."""
        return tuple(case for case in self.cases if case.result is not None)

    def provenance(self) -> Mapping[str, Any]:
        """What the sweep depends on besides its scenario; empty if it was cut short before that was written."""
        return _provenance(self.path)

    @property
    def complete(self) -> bool:
        """Whether every transfer of every run of every case was made in full."""
        results = [case.result for case in self.cases]
        return all(
            result is not None and all(outcome.status == "complete" for outcome in result.outcomes)
            for result in results
        )

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What came out, case by case."""
        return tuple(outcome for case in self.made if case.result for outcome in case.result.outcomes)


def read_any(path: Path) -> StoredResult | StoredSweep:
    """The result or the sweep in a folder; raises ResultsError for what is neither."""
    return read_sweep(path) if is_sweep(path) else read_result(path)


def is_sweep(path: Path) -> bool:
    """Whether a folder holds a sweep."""
    return (path / "sweep.json").exists()


def read_sweep(path: Path) -> StoredSweep:
    """The sweep in a folder, with every case that is there; raises ResultsError for what is none."""
    data = _read_json(path / "summary.json")
    if (data.get("format"), data.get("version")) != (SWEEP_FORMAT, SWEEP_VERSION):
        raise ResultsError(f"{path} holds no sweep that this Railbed reads: run it again, or use the version it is of")
    status = _true_status(path, str(data["status"]))
    cases = []
    for one in data["cases"]:
        folder = path / "cases" / one["name"]
        result = read_result(folder) if (folder / "summary.json").exists() else None
        cases.append(StoredCase(one["name"], one["settings"], result, one["reason"]))
    return StoredSweep(path, str(data["name"]), status, tuple(cases))


def _provenance(path: Path) -> dict[str, Any]:
    file = path / "provenance.json"
    return _read_json(file) if file.exists() else {}


def _true_status(path: Path, status: str) -> str:
    """The status that a summary gives; incomplete where its writer ended without saying so."""
    return INCOMPLETE if status == RUNNING and not is_being_written(path) else status


def read_result(path: Path) -> StoredResult:
    """The result in a folder, with every run that is whole; raises ResultsError for what is no result."""
    summary = path / "summary.json"
    if not summary.is_file():
        raise ResultsError(f"{path} holds no result: there is no summary.json in it")
    data = _read_json(summary)
    version = data.get("version")
    if version != SUMMARY_VERSION:
        raise ResultsError(
            f"{summary} is of version {version}, and this Railbed reads version {SUMMARY_VERSION}: run it again, or "
            "read it with the version that wrote it"
        )
    status = _true_status(path, str(data["status"]))
    runs = tuple(read_run(one.parent) for one in sorted(path.glob("runs/*/run.json")))
    return StoredResult(path, str(data["name"]), status, int(data["planned_runs"]), runs)


def read_run(path: Path) -> StoredRun:
    """The run in a folder below ``runs/``; raises ResultsError for a damaged one."""
    data = _read_json(path / "run.json")
    try:
        outcome = _OUTCOME.validate_python(data["outcome"])
        return StoredRun(path, outcome, FabricSpec.from_dict(data["fabric"]), Scale(**data["scale"]))
    except (KeyError, TypeError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise ResultsError(f"{path / 'run.json'} cannot be read ({first}): was it written by this version?") from None


def find_result(name: str, root: Path) -> Path:
    """The folder of a result, given as a path or by its name below ``root``; ``latest`` is the newest there.

    Raises NoSuchResultError.
    """
    folders = result_folders(root)
    if name == "latest" and folders:
        return folders[-1]
    for path in (Path(name), root / name):
        if (path / "summary.json").is_file():
            return path
    if not folders:
        raise NoSuchResultError(f"there is no result '{name}', and none at all in {root}: 'railbed run' makes one")
    hint = did_you_mean(name, [folder.name for folder in folders]).rstrip() or "'railbed results' lists them"
    raise NoSuchResultError(f"there is no result '{name}' in {root}: {hint}")


def result_folders(root: Path) -> list[Path]:
    """The folders below ``root`` that hold a result, oldest first."""
    return sorted(path.parent for path in root.glob("*/summary.json"))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} cannot be read ({error}): was it written by Railbed and left whole?") from None
    if not isinstance(data, dict):
        raise ResultsError(f"{path} cannot be read: it holds no JSON object")
    return data
