"""A run's folder on disk: written as the run goes, every file whole or absent, owned by whoever called sudo.

``<date-time>-<name>/`` holds ``scenario.yaml`` (as run), ``provenance.json``, ``summary.json`` and, per run,
``runs/<fabric>--<collective>--<condition>/`` with ``run.json``, ``events.jsonl``, ``transfers.csv`` and ``links.csv``.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import platform
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from experiments.errors import ResultsError
from experiments.outcome import Outcome
from workloads.records import RunRecord
from workloads.schedule import Schedule

SUMMARY_FORMAT = "railbed-summary"
SUMMARY_VERSION = 1

RUNNING = "running"
COMPLETE = "complete"
INCOMPLETE = "incomplete"

_LIBRARIES = ("numpy", "pydantic", "PyYAML", "matplotlib", "Jinja2", "os-ken", "ryu")


class ResultsFolder:
    """The folder of one run. ``root`` is made where it does not exist."""

    def __init__(self, root: Path, name: str, now: datetime | None = None) -> None:
        """Make ``<date-time>-<name>`` in ``root``; raises ResultsError where that is impossible."""
        stamp = (now or datetime.now()).strftime("%Y%m%d-%H%M%S")
        base = f"{stamp}-{slug(name)}"
        try:
            make_folder(root)
            for attempt in range(1, 1000):
                self.path = root / (base if attempt == 1 else f"{base}-{attempt}")
                try:
                    self.path.mkdir()
                    break
                except FileExistsError:
                    continue
            else:
                raise ResultsError(f"{root} already holds 999 results named {base}; remove some")
            give_to_caller(self.path)
        except OSError as error:
            raise ResultsError(
                f"results cannot be written to {root}: {error.strerror}; choose another folder"
            ) from None

    def write_text(self, name: str, text: str) -> Path:
        """Write a file of the folder at once or not at all."""
        return self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, content: bytes) -> Path:
        """Write a file of the folder at once or not at all."""
        path = self.path / name
        try:
            make_folder(path.parent)
            write_atomically(path, content)
        except OSError as error:
            raise ResultsError(
                f"{path} cannot be written: {error.strerror}; free space or choose another folder"
            ) from None
        return path

    def write_json(self, name: str, data: object) -> Path:
        """Write a JSON file; numbers that JSON does not have become null."""
        return self.write_text(name, json.dumps(json_ready(data), indent=2, ensure_ascii=False) + "\n")

    def write_run(self, label: str, record: RunRecord, outcome: Outcome) -> Path:
        """Write everything about one run: its outcome, events, transfers and link counters."""
        folder = f"runs/{slug(label)}--{slug(outcome.collective)}--{slug(outcome.condition)}"
        self.write_json(f"{folder}/run.json", run_dict(record, outcome))
        events = [
            json.dumps({"t_s": event.t_s, "kind": event.kind.value, "subject": event.subject, "detail": event.detail})
            for event in record.events
        ]
        self.write_text(f"{folder}/events.jsonl", "".join(line + "\n" for line in events))
        self.write_text(f"{folder}/transfers.csv", transfers_csv(record))
        self.write_text(f"{folder}/links.csv", links_csv(record))
        if record.schedule.computations:
            self.write_text(f"{folder}/computations.csv", computations_csv(record.schedule))
        return self.path / folder

    def write_summary(self, status: str, scenario_name: str, outcomes: Sequence[Outcome]) -> Path:
        """Write ``summary.json``; ``status`` says whether the runs in it are all there will be."""
        summary = {
            "format": SUMMARY_FORMAT,
            "version": SUMMARY_VERSION,
            "name": scenario_name,
            "status": status,
            "outcomes": [outcome.to_dict() for outcome in outcomes],
        }
        return self.write_json("summary.json", summary)


def run_dict(record: RunRecord, outcome: Outcome) -> dict[str, Any]:
    """Settings and outcome of one run, JSON-ready."""
    return {
        "backend": record.backend,
        "fabric": record.fabric.to_dict(),
        "scale": {"rate": record.scale.rate, "time": record.scale.time},
        "seed": record.seed,
        "failures": [failure.to_dict() for failure in record.failures],
        "engine": record.engine,
        "schedule": _schedule_dict(record.schedule),
        "last_computation_s": record.last_computation_s,
        "outcome": outcome.to_dict(),
    }


def _schedule_dict(schedule: Schedule) -> dict[str, Any]:
    """A schedule without its transfers, and its computations summed up by label: both lists are files of their own."""
    own = ("transfers", "computations")
    by_label: dict[str, dict[str, float]] = {}
    for computation in schedule.computations:
        total = by_label.setdefault(computation.label, {"count": 0, "sum_s": 0.0})
        total["count"] += 1
        total["sum_s"] += computation.duration_s
    return {**{key: value for key, value in schedule.to_dict().items() if key not in own}, "computations": by_label}


def computations_csv(schedule: Schedule) -> str:
    """One line per computation, durations in seconds of the real machine."""
    rows = [
        (one.id, one.label, one.rank, one.duration_s, " ".join(map(str, one.after))) for one in schedule.computations
    ]
    return _csv(("id", "label", "rank", "real_duration_s", "after"), rows)


def transfers_csv(record: RunRecord) -> str:
    """One line per transfer: sizes in emulated and real bytes, times in emulated seconds."""
    by_id = record.schedule.by_id
    header = ("id", "operation", "group", "phase", "src_rank", "dst_rank", "status", "reason", "start_s", "end_s",
              "received_bytes", "size_bytes", "real_size_bytes")  # fmt: skip
    rows = []
    for made in record.transfers:
        planned = by_id[made.transfer_id]
        rows.append(
            (made.transfer_id, planned.tag.operation, planned.tag.group, planned.tag.phase, planned.src, planned.dst,
             made.status.value, made.reason, made.start_s, made.end_s, made.received_bytes, made.size_bytes,
             planned.size_bytes)
        )  # fmt: skip
    return _csv(header, rows)


def links_csv(record: RunRecord) -> str:
    """One line per sample and link: cumulative counters in emulated bytes, as the ports count them.

    A line is left out where the link's counters stand as in the line before.
    """
    links = record.links
    rows: list[tuple[object, ...]] = []
    for column, link_id in enumerate(links.link_ids):
        last: tuple[float, float] | None = None
        for row, t_s in enumerate(links.t_s):
            counters = (float(links.a_to_b_bytes[row, column]), float(links.b_to_a_bytes[row, column]))
            if counters != last or row == len(links.t_s) - 1:
                rows.append((link_id, float(t_s), *counters))
            last = counters
    return _csv(("link", "t_s", "a_to_b_bytes", "b_to_a_bytes"), rows)


def provenance(seed: int, command: Sequence[str], extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a result depends on besides its scenario: time, command, versions, machine, commit.

    ``extra`` is what the back end knows, for example the version of Open vSwitch and its calibration.
    """
    versions = {}
    for library in _LIBRARIES:
        try:
            versions[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": list(command),
        "seed": seed,
        "git_commit": git_commit(Path(__file__).resolve().parent.parent),
        "python": platform.python_version(),
        "libraries": versions,
        "kernel": platform.release(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        **(extra or {}),
    }


def git_commit(checkout: Path) -> str | None:
    """Commit of a checkout, with ``+changes`` where tracked files differ from it; None where there is no git."""
    # git refuses a checkout of another user (root under sudo) unless told that this one is meant.
    git = ["git", "-c", f"safe.directory={checkout}", "-C", str(checkout)]
    try:
        found = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
        command = [*git, "status", "--porcelain", "--untracked-files=no"]
        changed = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() + ("+changes" if changed else "")


def slug(name: str) -> str:
    """``name`` as part of a file name: lower case, letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "run"


def json_ready(value: Any) -> Any:
    """``value`` with what JSON lacks replaced: infinities and NaN by null, tuples by lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    return value


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``path`` so that at any time it holds either its old content or all of the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        give_to_caller(Path(temporary))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def make_folder(path: Path) -> None:
    """Make a folder and those above it; new ones belong to whoever called sudo."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        give_to_caller(folder)


def give_to_caller(path: Path) -> None:
    """Under sudo, make the user who called it the owner; otherwise do nothing."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() == 0 and uid.isdigit() and gid.isdigit():
        os.chown(path, int(uid), int(gid))


def _csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
