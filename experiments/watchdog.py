"""A bound for every stage of an experiment, so that nothing hangs for ever."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from experiments.errors import StageTimeoutError

STAGE_LIMIT_S = 3600.0
"""Bound of planning, of a simulated run and of drawing, in seconds of this machine."""

SPARE_S = 180.0
SLOWEST_FACTOR = 5.0
"""A live run may take this many times its predicted duration, and :data:`SPARE_S` to bring its fabric up."""


def live_limit_s(predicted_s: float) -> float:
    """Bound of a run on live hosts that is predicted to take ``predicted_s`` of emulated time."""
    return SPARE_S + SLOWEST_FACTOR * predicted_s


@contextmanager
def limited(stage: str, limit_s: float) -> Iterator[None]:
    """Raise StageTimeoutError in the block once it has taken ``limit_s``.

    It works by a signal, which only the main thread of a process gets; in another thread the block is not bounded.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number: int, frame: FrameType | None) -> None:
        raise StageTimeoutError(f"{stage} took longer than {limit_s:g} s and was given up")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
