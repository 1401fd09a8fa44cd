"""The controller's events: JSON objects, one a line, for whoever started it, and for those who listen in."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TextIO

KEPT_EVENTS = 10_000
"""Events that are kept for listeners who come later."""

Listener = Callable[[dict[str, Any]], None]


def now_s() -> float:
    """Seconds on the machine's monotonic clock, which all processes share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class EventWriter:
    """Writes events to a stream, each as one flushed line with ``event``, ``number`` (from 1) and ``t_s``."""

    def __init__(self, stream: TextIO) -> None:
        """Write to ``stream``."""
        self._stream = stream
        self._lock = threading.Lock()
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT_EVENTS)
        self._count = 0
        self._listeners: list[Listener] = []

    def __call__(self, event: str, **fields: Any) -> None:
        """Write one event and tell it to all listeners."""
        with self._lock:
            self._count += 1
            written = {"event": event, "number": self._count, "t_s": round(now_s(), 6), **fields}
            self._stream.write(json.dumps(written) + "\n")
            self._stream.flush()
            self._kept.append(written)
            for listener in self._listeners:
                listener(written)

    def listen(self, listener: Listener, since: int = 0) -> None:
        """Tell ``listener`` every event after number ``since`` that is still kept, and all that come; it must not wait.

        It is called by whoever emits.
        """
        with self._lock:
            for written in self._kept:
                if written["number"] > since:
                    listener(written)
            self._listeners.append(listener)

    def leave(self, listener: Listener) -> None:
        """Tell ``listener`` no more."""
        with self._lock:
            self._listeners.remove(listener)
