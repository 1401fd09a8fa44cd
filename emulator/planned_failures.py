"""Failures at planned moments of a run, each driven by a thread of its own."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from emulator.kernel import be_prompt
from workloads.failures import FailureKind, LinkFailure
from workloads.records import Event, EventKind

SetLink = Callable[[str, bool], dict[str, Any]]
"""Takes a link down or up and returns when all switches have answered; see :meth:`LinkControl.set_link`."""

Impair = Callable[[LinkFailure, bool], None]
"""Impairs a link otherwise than by taking it down, or mends it."""


def impairment_for(failure: LinkFailure, on: bool, own_rate_mbps: float) -> dict[str, Any]:
    """What :meth:`LinkControl.impair` is told for a failure that leaves the link up, or (not ``on``) for its end."""
    if failure.kind is FailureKind.BLACKHOLE:
        return {"blackhole": failure.direction, "on": on}
    if failure.kind is FailureKind.DEGRADE:
        return {"rate_mbps": own_rate_mbps * failure.rate_share if on else None}
    if failure.kind is FailureKind.DELAY:
        return {"delay_ms": failure.delay_s * 1000 if on else 0.0, "jitter_ms": 0.0}
    return {"loss_share": failure.loss_share if on else 0.0}


class FailureDrivers:
    """A thread per failure. ``start_s`` is the monotonic time that the failures' times count from."""

    def __init__(self, failures: Sequence[LinkFailure], start_s: float, set_link: SetLink, impair: Impair) -> None:
        self._start_s = start_s
        self._set_link, self._impair = set_link, impair
        self._events: list[Event] = []
        self._holding_down: Counter[str] = Counter()  # failures that want a link down: the last one to end restores it
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._drive, args=(failure,), name=f"fail {failure.link_id}", daemon=True)
            for failure in failures
        ]
        for thread in self._threads:
            thread.start()

    def finish(self) -> list[Event]:
        """Stop waiting and mend what is broken at this moment; all that was done, in order of time."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        return sorted(self._events, key=lambda event: event.t_s)

    def _drive(self, failure: LinkFailure) -> None:
        be_prompt()  # a busy machine must not make the failure late
        if self._over.wait(self._until(failure.at_s)):
            return
        self._switch(failure, up=False)
        self._over.wait(None if failure.restore_s is None else self._until(failure.restore_s))
        self._switch(failure, up=True)

    def _until(self, t_s: float) -> float:
        return max(0.0, self._start_s + t_s - time.monotonic())

    def _switch(self, failure: LinkFailure, up: bool) -> None:
        if failure.kind is not FailureKind.DOWN:
            kind = EventKind.MENDED if up else EventKind.IMPAIRED
            changed_s = self._tried(failure.link_id, lambda: self._impair(failure, not up))
            self._note(changed_s, kind, failure.link_id, failure.text)
            return
        with self._lock:
            self._holding_down[failure.link_id] += -1 if up else 1
            wanted = self._holding_down[failure.link_id]
        if wanted != (0 if up else 1):  # another failure holds it down
            return
        result: dict[str, Any] = {}
        changed_s = self._tried(failure.link_id, lambda: result.update(self._set_link(failure.link_id, up)))
        # While the kernel takes a link down it still carries traffic; while it takes it up it may do so already.
        changed_s = result.get("changed_s", changed_s) + (0.0 if up else result.get("set_s", 0.0))
        self._note(changed_s, EventKind.LINK_UP if up else EventKind.LINK_DOWN, failure.link_id)

    def _tried(self, link_id: str, action: Callable[[], object]) -> float:
        """Monotonic time at which the action began; what went wrong is told as an event."""
        began_s = time.monotonic()
        try:
            action()
        except Exception as error:
            self._note(time.monotonic(), EventKind.NOTE, link_id, str(error))
        return began_s

    def _note(self, monotonic_s: float, kind: EventKind, link_id: str, detail: str = "") -> None:
        self._events.append(Event(monotonic_s - self._start_s, kind, link_id, detail))
