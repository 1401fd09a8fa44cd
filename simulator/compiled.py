"""Functions that numba compiles on their first call and keeps compiled on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """``function`` in machine code; floating-point operations keep their order, so that results are reproducible."""
    return cast(F, njit(cache=True, fastmath=False)(function))
