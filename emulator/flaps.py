"""Flapping links: down and up again and again, at absolute times, in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from emulator.errors import ImpairmentError
from topologies.errors import RailbedError

MOST_FLAPS = 10_000

SetLink = Callable[[str, bool], dict[str, Any]]


class Flaps:
    """The flapping links of one fabric; ``set_link`` takes a link down or up."""

    def __init__(self, set_link: SetLink) -> None:
        self._set_link = set_link
        self._running: dict[str, _Flap] = {}
        self._lock = threading.Lock()

    def start(self, link_id: str, down_s: float, up_s: float, count: int) -> None:
        """Flap ``link_id`` ``count`` times; raises ImpairmentError for impossible values and if it flaps already."""
        if not (0 < down_s < threading.TIMEOUT_MAX and 0 < up_s < threading.TIMEOUT_MAX and 1 <= count <= MOST_FLAPS):
            raise ImpairmentError(
                f"link {link_id} cannot flap {count} times, {down_s:g} s down and {up_s:g} s up: "
                f"the times must be above 0 and the count 1 to {MOST_FLAPS}"
            )
        with self._lock:
            if link_id in self._running and self._running[link_id].alive:
                raise ImpairmentError(f"link {link_id} flaps already; 'railbed flap {link_id} --reset' ends it")
            self._running[link_id] = _Flap(self._set_link, link_id, down_s, up_s, count)

    def state(self, link_id: str) -> dict[str, Any]:
        """How a link flaps now: ``flapping``, and if it does its times, its ``count`` and how many ``remaining``."""
        with self._lock:
            flap = self._running.get(link_id)
        if flap is None or not flap.alive:
            return {"link": link_id, "flapping": False}
        return {
            "link": link_id,
            "flapping": True,
            "down_s": flap.down_s,
            "up_s": flap.up_s,
            "count": flap.count,
            "remaining": flap.remaining,
        }

    def stop(self, link_id: str) -> None:
        """End a link's flapping, if it flaps; the link is up when this returns."""
        with self._lock:
            flap = self._running.pop(link_id, None)
        if flap is not None:
            flap.stop()

    def stop_all(self) -> None:
        """End all flapping; the links are up when this returns."""
        with self._lock:
            links = list(self._running)
        for link_id in links:
            self.stop(link_id)


class _Flap:
    """One flapping link, driven by a thread of its own."""

    def __init__(self, set_link: SetLink, link_id: str, down_s: float, up_s: float, count: int) -> None:
        self.down_s, self.up_s, self.count = down_s, up_s, count
        self.remaining = count
        self._set_link = set_link
        self._link_id = link_id
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._drive, name=f"flap {link_id}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether there is more to come."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End it; the link is up when this returns."""
        self._over.set()
        self._thread.join()

    def _drive(self) -> None:
        started_s = time.monotonic()
        for number in range(self.count):
            down_at_s = started_s + number * (self.down_s + self.up_s)
            if self._over.wait(max(0.0, down_at_s - time.monotonic())):
                return
            self._set(up=False)
            self._over.wait(max(0.0, down_at_s + self.down_s - time.monotonic()))
            self._set(up=True)
            self.remaining -= 1

    def _set(self, up: bool) -> None:
        try:
            self._set_link(self._link_id, up)
        except RailbedError:
            # A controller that is late with a repair must not end the flapping: the next change comes anyway, and
            # the controller's own events tell what it did.
            return
