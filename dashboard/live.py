"""Watches a running fabric and tells what is to be shown, from threads of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dashboard.drawing import draw
from dashboard.loads import Counters, rates_mbps
from topologies.errors import RailbedError

if TYPE_CHECKING:
    from emulator.manager import RunningFabric

INTERVAL_S = 0.4
"""Time between two looks at the links: 2.5 a second."""

IMPAIRMENTS_S = 4.0
"""Time between two looks at what is wrong with links; an action or a controller's event brings it forward."""

RETRY_S = 1.0
RUN_INTERVAL_S = 0.4

Publish = Callable[[dict[str, Any]], None]


class LiveSource:
    """Shows the fabric that ``attach`` gives; one that ends and comes up again is shown again."""

    def __init__(self, attach: Callable[[], RunningFabric], publish: Publish) -> None:
        """``publish`` is called from threads of this object."""
        self._attach = attach
        self._publish = publish
        self._over = threading.Event()
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="dashboard-links", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def look_again(self) -> None:
        """Read what is wrong with the links at the next look."""
        self._changed.set()

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()
        self._thread.join(RETRY_S + INTERVAL_S)

    def _watch(self) -> None:
        while not self._over.is_set():
            with suppress(RailbedError):
                self._show(self._attach())
            if not self._over.is_set():
                self._publish({"event": "gone"})
            self._over.wait(RETRY_S)

    def _show(self, fabric: RunningFabric) -> None:
        """Show one fabric until it ends (then a RailbedError is raised) or nobody watches any more."""
        self._publish({"event": "fabric", "name": fabric.name, **draw(fabric.fabric, fabric.scale).to_dict()})
        threading.Thread(target=self._follow, args=(fabric,), name="dashboard-runs", daemon=True).start()
        seen = fabric.observe(0, impairments=True)
        since, before, wrong, read_s = seen["next"], _counters(seen), None, time.monotonic()
        while not self._over.is_set():
            if seen["impairments"] is not None and seen["impairments"] != wrong:
                wrong = seen["impairments"]
                self._publish({"event": "impairments", "links": wrong})
            self._over.wait(INTERVAL_S)
            read = self._changed.is_set() or bool(seen["events"]) or time.monotonic() - read_s >= IMPAIRMENTS_S
            if read:
                self._changed.clear()
                read_s = time.monotonic()
            seen = fabric.observe(since, impairments=read)
            since = seen["next"]
            after = _counters(seen)
            out, back = rates_mbps(before, after)
            before = after
            self._publish({"event": "loads", "t_s": round(after.t_s, 3), "a_to_b_mbps": out, "b_to_a_mbps": back})
            for event in seen["events"]:
                self._publish({"event": "controller", "what": event})

    def _follow(self, fabric: RunningFabric) -> None:
        """Tell of the runs on a fabric until it ends."""
        shown: dict[str, Any] = {}
        told_s = 0.0
        with suppress(RailbedError, OSError):
            for message in fabric.follow():
                if self._over.is_set():
                    return
                ends = message["event"] in ("run-start", "run-end")
                shown = run_shown(shown, message)
                if shown and (ends or time.monotonic() - told_s >= RUN_INTERVAL_S):
                    told_s = time.monotonic()
                    self._publish(shown)


def run_shown(shown: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    """The message about the present run after one more message of it; empty if none was begun."""
    if message["event"] == "run-start":
        return {
            "event": "run", "running": True, "name": message["name"], "engine": message["engine"], "t_s": 0.0,
            "transfers": message["transfers"], "ended": 0, "failed": 0, "active": 0,
        }  # fmt: skip
    if not shown:
        return {}
    shown = {**shown, "t_s": round(message.get("t_s", shown["t_s"]), 2)}
    if message["event"] == "transfers":
        ended = message["ended"]
        failed = sum(1 for transfer in ended if transfer["status"] != "complete")
        return {
            **shown,
            "active": len(message["active"]),
            "ended": shown["ended"] + len(ended),
            "failed": shown["failed"] + failed,
        }
    return {**shown, "running": False, "active": 0} if message["event"] == "run-end" else shown


def _counters(seen: dict[str, Any]) -> Counters:
    return Counters(seen["t_s"], seen["a_to_b_bytes"], seen["b_to_a_bytes"])
