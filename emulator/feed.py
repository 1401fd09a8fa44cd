"""What happens on a fabric while it happens: a bounded line of messages that any number of readers follow."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]

MOST_KEPT = 1_000
"""Messages that a slow reader can be behind; then it misses the oldest, and is told how many."""


class Feed:
    """Messages to whoever follows. Nobody who publishes ever waits for a reader."""

    def __init__(self, most_kept: int = MOST_KEPT) -> None:
        self._kept: deque[Message] = deque(maxlen=most_kept)
        self._published = 0
        self._news = threading.Condition()

    def publish(self, message: Message) -> None:
        """Append a message."""
        with self._news:
            self._kept.append(message)
            self._published += 1
            self._news.notify_all()

    def follow(self, over: threading.Event, wait_s: float = 0.2) -> Iterator[Message]:
        """Messages from now on, until ``over`` is set (looked at every ``wait_s``).

        A reader that is too slow gets ``{"event": "missed", "count": n}`` in place of what it missed.
        """
        with self._news:
            read = self._published
        while not over.is_set():
            with self._news:
                if read == self._published:
                    self._news.wait(wait_s)
                new = self._published - read
                fresh = list(self._kept)[-new:] if new else []
                read = self._published
            if len(fresh) < new:
                yield {"event": "missed", "count": new - len(fresh)}
            yield from fresh
