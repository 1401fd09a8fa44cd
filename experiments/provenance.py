"""What a result depends on besides its scenario: time, command, versions, machine, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

_LIBRARIES = ("numpy", "pydantic", "PyYAML", "matplotlib", "pyarrow", "scipy", "Jinja2", "os-ken", "ryu")


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
