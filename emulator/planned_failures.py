"""Failures at planned moments of a run, each driven by a thread of its own."""

from __future__ import annotations

import threading
import time

from emulator.link_control import LinkControl
from workloads.failures import LinkFailure
from workloads.records import Event, EventKind


class FailureDriver:
    """Takes one link down and up at its planned times, in a thread of its own."""

    def __init__(self, links: LinkControl, failure: LinkFailure, start_s: float) -> None:
        self.events: list[Event] = []
        self._links = links
        self._failure = failure
        self._start_s = start_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._drive, name=f"fail {failure.link_id}", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Stop waiting; a link that is down at this moment is restored."""
        self._over.set()
        self._thread.join()

    def _drive(self) -> None:
        if self._over.wait(max(0.0, self._start_s + self._failure.at_s - time.monotonic())):
            return
        self._switch(up=False)
        if self._failure.restore_s is None:
            self._over.wait()
        else:
            self._over.wait(max(0.0, self._start_s + self._failure.restore_s - time.monotonic()))
        self._switch(up=True)

    def _switch(self, up: bool) -> None:
        link_id = self._failure.link_id
        kind = EventKind.LINK_UP if up else EventKind.LINK_DOWN
        changed_s = time.monotonic()
        try:
            result = self._links.set_link(link_id, up)
        except Exception as error:
            self.events.append(Event(time.monotonic() - self._start_s, EventKind.NOTE, link_id, str(error)))
        else:
            # While the kernel takes a link down it still carries traffic; while it takes it up it may do so already.
            changed_s = result.get("changed_s", changed_s) + (0.0 if up else result.get("set_s", 0.0))
        self.events.append(Event(changed_s - self._start_s, kind, link_id))
