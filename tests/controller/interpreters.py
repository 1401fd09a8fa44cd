"""Interpreters for the frameworks that the controller runs on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from emulator import environments

ROOT = environments.PROJECT_ROOT


def interpreter(framework: str) -> str:
    """The Python that has ``framework``; skips the test where there is none for Ryu."""
    if framework == "os-ken":
        return sys.executable
    python = os.environ.get("RAILBED_RYU_PYTHON") or str(environments.interpreter(".venv-ryu"))
    if not Path(python).exists():
        pytest.skip("no interpreter with Ryu 4.34: set RAILBED_RYU_PYTHON or make .venv-ryu (Python 3.10 or 3.11)")
    return python
