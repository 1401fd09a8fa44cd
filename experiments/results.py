"""A result's folder on disk: written as the experiment goes, every file whole or absent.

``<date-time>-<name>/`` holds ``scenario.yaml`` (as run), ``provenance.json``, ``journal.jsonl`` (what was done when),
``summary.json`` and, per run, ``runs/<number>-<fabric>--<collective>--<condition>/`` with tables (``transfers``,
``links``, ``operations`` and, where there are some, ``computations``, ``connections``, ``progress``), ``events.jsonl``
and, written last, ``run.json``. While somebody writes it, the folder is locked.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from experiments.columns import parquet_bytes, run_tables
from experiments.errors import ResultsError
from experiments.files import give_to_caller, json_ready, make_folder, slug, write_file
from experiments.outcome import Outcome
from topologies.model import FabricSpec
from topologies.scale import Scale
from workloads.failures import LinkFailure
from workloads.records import RunRecord
from workloads.schedule import Schedule

SUMMARY_FORMAT = "railbed-summary"
SUMMARY_VERSION = 2

RUNNING = "running"
COMPLETE = "complete"
INTERRUPTED = "interrupted"
INCOMPLETE = "incomplete"
"""What a result that was cut short by an error, or by the end of its process, is called."""

_LOCK = ".lock"


@dataclass(frozen=True)
class RunFile:
    """What ``run.json`` holds: the settings of one run, and its outcome.

    ``engine`` is what replayed the traffic, ``last_computation_s`` when the last computation ended; None without any.
    """

    fabric: FabricSpec
    scale: Scale
    seed: int
    failures: tuple[LinkFailure, ...]
    schedule: Schedule
    outcome: Outcome
    engine: str | None = None
    last_computation_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form. Of the schedule all but the transfers, which have a file of their own."""
        return {
            "backend": self.outcome.backend,
            "fabric": self.fabric.to_dict(),
            "scale": {"rate": self.scale.rate, "time": self.scale.time},
            "seed": self.seed,
            "failures": [failure.to_dict() for failure in self.failures],
            "engine": self.engine,
            "schedule": _schedule_dict(self.schedule),
            "last_computation_s": self.last_computation_s,
            "outcome": self.outcome.to_dict(),
        }


class ResultsFolder:
    """The folder of one result, held by this process until :meth:`close`. ``root`` is made where it does not exist."""

    def __init__(self, root: Path, name: str, now: datetime | None = None) -> None:
        """Make ``<date-time>-<name>`` in ``root``; raises ResultsError where that is impossible."""
        stamp = (now or datetime.now()).strftime("%Y%m%d-%H%M%S")
        base = f"{stamp}-{slug(name)}"
        try:
            make_folder(root)
            for attempt in range(1, 1000):
                path = root / (base if attempt == 1 else f"{base}-{attempt}")
                try:
                    path.mkdir()
                    break
                except FileExistsError:
                    continue
            else:
                raise ResultsError(f"{root} already holds 999 results named {base}; remove some")
            give_to_caller(path)
            self._hold(path)
        except OSError as error:
            raise ResultsError(
                f"results cannot be written to {root}: {error.strerror}; choose another folder"
            ) from None

    @classmethod
    def at(cls, path: Path) -> ResultsFolder:
        """The folder ``path``, made where it does not exist; raises ResultsError where that is impossible."""
        try:
            make_folder(path)
        except OSError as error:
            raise ResultsError(f"{path} cannot be made: {error.strerror}; choose another folder") from None
        return cls.reopen(path)

    @classmethod
    def reopen(cls, path: Path) -> ResultsFolder:
        """The folder of an earlier result, to be finished; raises ResultsError while another process writes it."""
        folder = cls.__new__(cls)
        try:
            folder._hold(path)
        except BlockingIOError:
            raise ResultsError(f"{path} is being written by another railbed; wait until that has ended") from None
        except OSError as error:
            raise ResultsError(f"{path} cannot be written: {error.strerror}; choose another result") from None
        return folder

    def _hold(self, path: Path) -> None:
        self.path = path
        self._lock: TextIO = open(path / _LOCK, "w")  # noqa: SIM115 - held until close()
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        give_to_caller(path / _LOCK)

    def close(self) -> None:
        """Let go of the folder."""
        if not self._lock.closed:
            (self.path / _LOCK).unlink(missing_ok=True)
            self._lock.close()

    def __enter__(self) -> ResultsFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write_text(self, name: str, text: str) -> Path:
        """Write a file of the folder at once or not at all."""
        return self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, content: bytes) -> Path:
        """Write a file of the folder at once or not at all."""
        return write_file(self.path / name, content)

    def write_json(self, name: str, data: object) -> Path:
        """Write a JSON file; numbers that JSON does not have become null."""
        return self.write_text(name, json.dumps(json_ready(data), indent=2, ensure_ascii=False) + "\n")

    def note(self, kind: str, **facts: object) -> None:
        """Add a line to ``journal.jsonl``: what is being done, and when. It is on disk when this returns."""
        line = {"time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"), "kind": kind, **facts}
        path = self.path / "journal.jsonl"
        try:
            is_new = not path.exists()
            with open(path, "a") as journal:
                journal.write(json.dumps(json_ready(line), ensure_ascii=False) + "\n")
                journal.flush()
                os.fsync(journal.fileno())
            if is_new:
                give_to_caller(path)
        except OSError as error:
            raise ResultsError(f"{path} cannot be written: {error.strerror}; free space") from None

    def write_run(self, name: str, run: RunFile, record: RunRecord | None, predicted: RunRecord) -> Path:
        """Write everything about one run below ``runs/``; ``record`` is None for one that could not be made.

        ``run.json`` comes last, so that its presence means that the run is whole.
        """
        folder = f"runs/{name}"
        if record is not None:
            for table_name, table in run_tables(record, predicted).items():
                self.write_bytes(f"{folder}/{table_name}.parquet", parquet_bytes(table))
            events = [
                {"t_s": event.t_s, "kind": event.kind.value, "subject": event.subject, "detail": event.detail}
                for event in record.events
            ]
            self.write_text(f"{folder}/events.jsonl", "".join(json.dumps(event) + "\n" for event in events))
        return self.write_json(f"{folder}/run.json", run.to_dict())

    def write_summary(self, status: str, scenario_name: str, outcomes: Sequence[Outcome], planned: int) -> Path:
        """Write ``summary.json``: ``status`` is that of the whole, ``planned`` the number of runs there are to be."""
        summary = {
            "format": SUMMARY_FORMAT,
            "version": SUMMARY_VERSION,
            "name": scenario_name,
            "status": status,
            "planned_runs": planned,
            "outcomes": [outcome.to_dict() for outcome in outcomes],
        }
        return self.write_json("summary.json", summary)


def _schedule_dict(schedule: Schedule) -> dict[str, Any]:
    """A schedule without its transfers, and its computations summed up by label: both lists are files of their own."""
    own = ("transfers", "computations")
    by_label: dict[str, dict[str, float]] = {}
    for computation in schedule.computations:
        total = by_label.setdefault(computation.label, {"count": 0, "sum_s": 0.0})
        total["count"] += 1
        total["sum_s"] += computation.duration_s
    return {**{key: value for key, value in schedule.to_dict().items() if key not in own}, "computations": by_label}


def is_being_written(path: Path) -> bool:
    """Whether a process holds the result's folder; one that was killed holds nothing any more."""
    try:
        with open(path / _LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
