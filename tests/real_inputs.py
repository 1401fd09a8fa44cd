"""Where the real input files are: the folder in RAILBED_INPUTS, else the one beside the checkout. Else tests skip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "inputs"
INPUTS = Path(os.environ.get("RAILBED_INPUTS", _BESIDE))

needs_inputs = pytest.mark.skipif(not INPUTS.is_dir(), reason="the real input files are not here: set RAILBED_INPUTS")


def real(*patterns: str) -> list[Path]:
    """The real files that match the patterns, each pattern's sorted; at least one of each."""
    found = []
    for pattern in patterns:
        matches = sorted(INPUTS.glob(pattern))
        assert matches, f"no real file matches {pattern}"
        found += matches
    return found
