"""The nearest known name, for messages about an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[object], cutoff: float = 0.6) -> str:
    """``did you mean 'x'? `` with the known name most like ``name``, or nothing; ``cutoff`` is difflib's."""
    near = difflib.get_close_matches(str(name), [str(one) for one in known], n=1, cutoff=cutoff)
    return f"did you mean '{near[0]}'? " if near else ""
