"""The controller's events: JSON objects, one a line, for whoever started it."""

from __future__ import annotations

import json
import threading
import time
from typing import Any, TextIO


def now_s() -> float:
    """Seconds on the machine's monotonic clock, which all processes share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class EventWriter:
    """Writes events to a stream, each as one flushed line with ``event`` and ``t_s``."""

    def __init__(self, stream: TextIO) -> None:
        """Write to ``stream``."""
        self._stream = stream
        self._lock = threading.Lock()

    def __call__(self, event: str, **fields: Any) -> None:
        """Write one event."""
        line = json.dumps({"event": event, "t_s": round(now_s(), 6), **fields}) + "\n"
        with self._lock:
            self._stream.write(line)
            self._stream.flush()
