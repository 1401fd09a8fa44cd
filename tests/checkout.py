"""The checkout as a newcomer gets it: the files that version control knows, and nothing that was made from them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def tracked_files() -> list[str]:
    """The paths of all files under version control; skips the test where there is none."""
    done = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        pytest.skip("this is no clone of the repository: git ls-files failed")
    return [file for file in done.stdout.splitlines() if (ROOT / file).exists()]


def clean_copy(target: Path) -> Path:
    """Copy those files into ``target``, which is given back."""
    for file in tracked_files():
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, target / file)
    return target
