"""The run directory of a fabric: its state file, control socket, lock and logs, all below /run/railbed."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emulator.errors import FabricNameError, NoSuchFabricError
from emulator.kernel import boot_id, process_start_ticks

RUN_ROOT = Path("/run/railbed")
NAMESPACE_PREFIX = "rb-"
LOCK_SUFFIX = ".lock"
NAMESPACE_DIR = Path("/run/netns")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*\Z")
MAX_NAME_LENGTH = 12


@dataclass(frozen=True)
class FabricState:
    """What is known of a fabric from outside: written when it starts, read by every command.

    ``supervisor_pid`` with ``supervisor_start_ticks`` and ``boot_id`` names one process for ever. ``ready`` becomes
    true when the self-test has passed. Times are seconds since the epoch.
    """

    name: str
    spec: dict[str, Any]
    scale: dict[str, float]
    supervisor_pid: int
    supervisor_start_ticks: int
    boot_id: str
    created_s: float
    seed: int = 0
    ready: bool = False
    datapath: str = ""

    @property
    def alive(self) -> bool:
        """Whether the fabric's supervisor still runs."""
        return self.boot_id == boot_id() and process_start_ticks(self.supervisor_pid) == self.supervisor_start_ticks


class RunDir:
    """Paths and state of the fabric called ``name``; raises FabricNameError for a name that cannot be used."""

    def __init__(self, name: str) -> None:
        check_name(name)
        self.name = name
        self.path = RUN_ROOT / name
        self.state_path = self.path / "state.json"
        self.socket_path = self.path / "control.sock"
        self.log_path = self.path / "fabric.log"
        self.ovs_path = self.path / "ovs"
        self.namespace = NAMESPACE_PREFIX + name

    @property
    def namespace_path(self) -> Path:
        """Where iproute2 finds the fabric's network namespace."""
        return NAMESPACE_DIR / self.namespace

    def create(self) -> None:
        """Make the directory, empty."""
        self.remove()
        self.ovs_path.mkdir(parents=True)

    def remove(self) -> None:
        """Remove the directory and everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def write_state(self, state: FabricState) -> None:
        """Replace the state file in one step."""
        temporary = self.state_path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(state)))
        os.replace(temporary, self.state_path)

    def read_state(self) -> FabricState:
        """The state file's content; raises NoSuchFabricError where there is none (or half a one)."""
        try:
            return FabricState(**json.loads(self.state_path.read_text()))
        except (OSError, ValueError, TypeError):
            raise NoSuchFabricError(
                f"no fabric called '{self.name}' is up; 'railbed status' lists those that are, 'railbed up' starts one"
            ) from None

    @property
    def lock_path(self) -> Path:
        """The lock that serialises up and down of this name (:func:`emulator.locks.exclusive`)."""
        return RUN_ROOT / f"{self.name}{LOCK_SUFFIX}"


def check_name(name: str) -> None:
    """Raise FabricNameError unless ``name`` can name a fabric, its namespace and its run directory."""
    if len(name) > MAX_NAME_LENGTH:
        raise FabricNameError(
            f"the fabric name '{name}' has {len(name)} characters; the kernel's names leave room for {MAX_NAME_LENGTH}"
        )
    if not _NAME.match(name):
        raise FabricNameError(
            f"'{name}' cannot name a fabric: use small letters, digits and hyphens, with a letter or digit first"
        )


def known_names() -> list[str]:
    """Names of all fabrics that left a run directory, a lock or a namespace, running or not, sorted."""
    names: set[str] = set()
    if RUN_ROOT.is_dir():
        names.update(entry.name for entry in RUN_ROOT.iterdir() if entry.is_dir())
        names.update(entry.stem for entry in RUN_ROOT.iterdir() if entry.suffix == LOCK_SUFFIX)
    if NAMESPACE_DIR.is_dir():
        names.update(
            entry.name[len(NAMESPACE_PREFIX) :]
            for entry in NAMESPACE_DIR.iterdir()
            if entry.name.startswith(NAMESPACE_PREFIX)
        )
    return sorted(name for name in names if len(name) <= MAX_NAME_LENGTH and _NAME.match(name))
