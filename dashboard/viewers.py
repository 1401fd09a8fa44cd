"""Those who look at the page: each has a short queue of its own, so that a slow or vanished one harms nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from dashboard.backlog import Backlog

MOST_WAITING = 100
"""Messages that a viewer can be behind; then its stream ends, and its browser joins anew with the present state."""

MOST_VIEWERS = 200
HEARTBEAT_S = 15.0


class Viewers:
    """Everyone who looks. All methods are called on the server's event loop."""

    def __init__(self) -> None:
        self._backlog: Backlog[bytes] = Backlog()
        self._queues: set[asyncio.Queue[bytes | None]] = set()

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def full(self) -> bool:
        """Whether nobody else may join."""
        return len(self._queues) >= MOST_VIEWERS

    def publish(self, message: dict[str, Any]) -> None:
        """Show a message to everyone, now; whoever is too far behind is let go."""
        text = encoded(message)
        self._backlog.add(message, text)
        for queue in list(self._queues):
            if queue.qsize() >= MOST_WAITING:
                self._queues.discard(queue)
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(None)
            else:
                queue.put_nowait(text)

    def close(self) -> None:
        """End all streams."""
        for queue in self._queues:
            queue.put_nowait(None)
        self._queues.clear()

    async def stream(self) -> AsyncIterator[bytes]:
        """Server-sent events for one viewer: the present state, what was kept, then everything as it comes."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        backlog = self._backlog.items()
        self._queues.add(queue)
        try:
            yield b"retry: 1000\n\n" + b"".join(backlog)
            while True:
                try:
                    text = await asyncio.wait_for(queue.get(), HEARTBEAT_S)
                except asyncio.TimeoutError:
                    text = b": still here\n\n"
                if text is None:
                    return
                yield text
        finally:
            self._queues.discard(queue)


def encoded(message: dict[str, Any]) -> bytes:
    """A message as one server-sent event."""
    return b"data: " + json.dumps(message, separators=(",", ":")).encode() + b"\n\n"
