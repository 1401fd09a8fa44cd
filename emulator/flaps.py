"""Flapping links: down and up again and again, at absolute times, in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from emulator.errors import ImpairmentError
from topologies.errors import RailbedError

MOST_FLAPS = 10_000


class Flaps:
    """The flapping links of one fabric; ``set_link`` takes a link down or up."""

    def __init__(self, set_link: Callable[[str, bool], dict[str, Any]]) -> None:
        self._set_link = set_link
        self._running: dict[str, tuple[threading.Thread, threading.Event]] = {}
        self._lock = threading.Lock()

    def start(self, link_id: str, down_s: float, up_s: float, count: int) -> None:
        """Flap ``link_id`` ``count`` times; raises ImpairmentError for impossible values and if it flaps already."""
        if down_s <= 0 or up_s <= 0 or not 1 <= count <= MOST_FLAPS:
            raise ImpairmentError(
                f"link {link_id} cannot flap {count} times, {down_s:g} s down and {up_s:g} s up: "
                f"the times must be above 0 and the count 1 to {MOST_FLAPS}"
            )
        with self._lock:
            if link_id in self._running and self._running[link_id][0].is_alive():
                raise ImpairmentError(f"link {link_id} flaps already; 'railbed failures --reset' ends it")
            over = threading.Event()
            thread = threading.Thread(target=self._flap, args=(link_id, down_s, up_s, count, over), daemon=True)
            self._running[link_id] = (thread, over)
            thread.start()

    def stop_all(self) -> None:
        """End all flapping; the links are up when this returns."""
        with self._lock:
            running = list(self._running.values())
            self._running.clear()
        for _, over in running:
            over.set()
        for thread, _ in running:
            thread.join()

    def _flap(self, link_id: str, down_s: float, up_s: float, count: int, over: threading.Event) -> None:
        started_s = time.monotonic()
        for number in range(count):
            down_at_s = started_s + number * (down_s + up_s)
            if over.wait(max(0.0, down_at_s - time.monotonic())):
                return
            self._set(link_id, up=False)
            over.wait(max(0.0, down_at_s + down_s - time.monotonic()))
            self._set(link_id, up=True)

    def _set(self, link_id: str, up: bool) -> None:
        try:
            self._set_link(link_id, up)
        except RailbedError:
            # A controller that is late with a repair must not end the flapping: the next change comes anyway, and
            # the controller's own events tell what it did.
            return
