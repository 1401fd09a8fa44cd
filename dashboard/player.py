"""Shows a recording again, at any speed, for everyone who looks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

from dashboard.backlog import Backlog
from dashboard.errors import ActionError
from dashboard.recording import Shown

SLOWEST, FASTEST = 0.05, 100.0

Publish = Callable[[dict[str, Any]], None]


class Player:
    """Plays ``shown``; everyone sees the same moment. Runs on the server's event loop."""

    def __init__(self, shown: Sequence[Shown], publish: Publish, speed: float) -> None:
        """Raises ActionError for a speed outside 0.05 to 100."""
        self._shown = shown
        self._publish = publish
        self._speed = check_speed(speed)
        self._paused = False
        self._next = 0
        self._at_s = 0.0
        self._moved = False
        self._wake = asyncio.Event()

    def order(self, order: Any) -> None:
        """Change ``speed``, ``paused`` or the time ``at_s``, what is named; raises ActionError for other input."""
        if not isinstance(order, dict) or not order or not set(order) <= {"speed", "paused", "at_s"}:
            raise ActionError("a replay is told 'speed', 'paused' or 'at_s'")
        speed = check_speed(order.get("speed", self._speed))
        paused = order.get("paused", self._paused)
        at_s = order.get("at_s")
        if not isinstance(paused, bool):
            raise ActionError("'paused' must be true or false")
        if at_s is not None and not (_is_number(at_s) and at_s >= 0):
            raise ActionError("'at_s' must be a time in seconds, 0 or more")
        self._speed, self._paused = speed, paused
        if at_s is not None:
            self._seek(float(at_s))
        self._tell()
        self._wake.set()

    async def play(self) -> None:
        """Play until cancelled; at the end it waits for orders."""
        self._seek(0.0)
        self._tell()
        clock = asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            if self._paused or self._next == len(self._shown):
                await self._wake.wait()
                continue
            due_s = self._shown[self._next].at_s
            began_s = clock()
            try:
                await asyncio.wait_for(self._wake.wait(), max(0.0, due_s - self._at_s) / self._speed)
            except asyncio.TimeoutError:
                self._advance(due_s)
            else:
                if not self._moved:
                    self._at_s = min(due_s, self._at_s + (clock() - began_s) * self._speed)
            self._moved = False

    def _advance(self, at_s: float) -> None:
        """Show what is due up to ``at_s``."""
        self._at_s = at_s
        while self._next < len(self._shown) and self._shown[self._next].at_s <= at_s:
            self._publish(self._shown[self._next].message)
            self._next += 1
        self._tell()

    def _seek(self, at_s: float) -> None:
        """Show the moment ``at_s``: what was shown up to it and still matters."""
        self._moved = True
        self._at_s = min(at_s, self._shown[-1].at_s)
        past = [shown.message for shown in self._shown if shown.at_s <= self._at_s]
        self._next = len(past)
        for message in compact(past):
            self._publish(message)
        self._tell()

    def _tell(self) -> None:
        self._publish({
            "event": "replay", "at_s": round(self._at_s, 2), "length_s": self._shown[-1].at_s, "speed": self._speed,
            "paused": self._paused,
        })  # fmt: skip


def compact(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of what was shown one after the other, what a viewer who joins needs: the last states, and the last others."""
    backlog: Backlog[dict[str, Any]] = Backlog()
    for message in messages:
        backlog.add(message, message)
    return backlog.items()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def check_speed(value: Any) -> float:
    """A speed that can be played; raises ActionError for any other."""
    if not _is_number(value) or not SLOWEST <= value <= FASTEST:
        raise ActionError(f"the speed must be a number from {SLOWEST:g} to {FASTEST:g}")
    return float(value)
