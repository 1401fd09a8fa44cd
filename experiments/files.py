"""Files of results: written whole or not at all, owned by whoever called sudo, without what JSON lacks."""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.errors import ResultsError


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


def write_file(path: Path, content: bytes) -> Path:
    """Write a file, and the folders above it, at once or not at all; raises ResultsError where that is impossible."""
    try:
        make_folder(path.parent)
        write_atomically(path, content)
    except OSError as error:
        raise ResultsError(f"{path} cannot be written: {error.strerror}; free space or choose another folder") from None
    return path


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
