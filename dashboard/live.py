"""Watches one running fabric of the page and tells what is to be shown, from threads of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from dashboard.actions import mystery
from dashboard.diagnosing import RunDiagnosis
from dashboard.drawing import draw
from dashboard.loads import Counters, loads
from dashboard.progress import ReportedRun
from dashboard.witness import Witness
from topologies.errors import RailbedError
from topologies.model import Fabric
from workloads.schedule import Schedule

if TYPE_CHECKING:
    from emulator.manager import RunningFabric

INTERVAL_S = 0.4
"""Time between two looks at the links: 2.5 a second."""

IMPAIRMENTS_S = 4.0
"""Time between two looks at what is wrong with links; an action or a controller's event brings it forward."""

RETRY_S = 1.0
RUN_INTERVAL_S = 0.4

Publish = Callable[[dict[str, Any]], None]


class Board:
    """Shows the fabric that ``attach`` gives; one that ends and comes up again is shown again."""

    def __init__(
        self,
        name: str,
        attach: Callable[[], RunningFabric],
        publish: Publish,
        began: Callable[[], None],
        narrow: bool = False,
    ) -> None:
        """``narrow`` says whether it is drawn for half a page.

        ``publish`` and ``began`` (told when the fabric is first seen, or again) are called from threads of this.
        """
        self.name = name
        self.attach = attach
        self.fabric: Fabric | None = None
        self.hidden: dict[str, Any] = {"open": False}
        """What viewers know of a hidden fault."""
        self._publish_as = publish
        self._began = began
        self._narrow = narrow
        self._expected: Schedule | None = None
        self._lock = threading.Lock()
        self._own_changes = 0
        self._own_until_s = 0.0
        self._links_down: frozenset[str] = frozenset()
        self._over = threading.Event()
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"dashboard-{name}", daemon=True)

    def publish(self, message: dict[str, Any]) -> None:
        """Show a message as one of this fabric."""
        self._publish_as({**message, "on": self.name})

    def expect(self, schedule: Schedule) -> None:
        """The next run that begins is one of ``schedule``, so that its calls can be told apart."""
        self._expected = schedule

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Around a change that the page makes: it has a timeline of its own, and is looked at soon."""
        with self._lock:
            self._own_changes += 1
        try:
            yield
        finally:
            with self._lock:
                self._own_changes -= 1
                self._own_until_s = time.monotonic()
            self._changed.set()

    def _is_own(self, t_s: float) -> bool:
        """Whether what happened at the monotonic ``t_s`` is told of by a change that the page has made."""
        with self._lock:
            return self._own_changes > 0 or t_s <= self._own_until_s

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()
        self._thread.join(RETRY_S + INTERVAL_S)

    def _watch(self) -> None:
        while not self._over.is_set():
            with suppress(RailbedError):
                self._show(self.attach())
            if not self._over.is_set():
                self.publish({"event": "gone"})
            self._over.wait(RETRY_S)

    def _show(self, running: RunningFabric) -> None:
        """Show one fabric until it ends (then a RailbedError is raised) or nobody watches any more."""
        self.fabric = running.fabric
        drawing = draw(self.fabric, running.scale, self._narrow)
        self.publish({"event": "fabric", "name": running.name, **drawing.to_dict()})
        self._began()
        threading.Thread(target=self._follow, args=(running,), name="dashboard-runs", daemon=True).start()
        seen = running.observe(0, impairments=True)
        self._links_down = frozenset(one["link"] for one in seen["impairments"] if one["down"])
        since, before, witness = seen["next"], _counters(seen), Witness()
        gone = threading.Event()
        threading.Thread(
            target=self._watch_wrong, args=(running, seen["impairments"], gone), name="dashboard-wrong", daemon=True
        ).start()
        try:
            due_s = time.monotonic() + INTERVAL_S
            while not self._over.wait(max(0.0, due_s - time.monotonic())):
                due_s = max(due_s + INTERVAL_S, time.monotonic())
                seen = running.observe(since)
                since = seen["next"]
                after = _counters(seen)
                self.publish(loads(before, after))
                before = after
                for event in seen["events"]:
                    self._changed.set()
                    self._take_event(event, witness)
        finally:
            gone.set()
            self._changed.set()

    def _take_event(self, event: dict[str, Any], witness: Witness) -> None:
        self.publish({"event": "controller", "what": event})
        if event["event"] == "repaired":
            self._links_down = frozenset(event["links_down"])
        for timeline in witness.take(event):
            if not self._is_own(event["t_s"]):
                self.publish(timeline)

    def _watch_wrong(self, running: RunningFabric, wrong: list[dict[str, Any]], gone: threading.Event) -> None:
        """Show what is wrong with the links whenever it changes. A large fabric takes seconds to tell: loads go on."""
        self.publish({"event": "impairments", "links": wrong})
        self.hidden = {"open": False}
        with suppress(RailbedError):
            while not gone.is_set():
                self._changed.clear()
                hidden = running.mystery()
                if hidden != self.hidden:
                    self.hidden = hidden
                    self.publish(mystery(hidden))
                found = running.impairments()
                if found != wrong:
                    wrong = found
                    self.publish({"event": "impairments", "links": wrong})
                self._changed.wait(IMPAIRMENTS_S)

    def _is_expected(self, start: dict[str, Any]) -> Schedule | None:
        """The schedule of a run that begins, if it is the one that is waited for."""
        schedule = self._expected
        if schedule is None or (schedule.name, len(schedule.transfers)) != (start["name"], start["transfers"]):
            return None
        self._expected = None
        return schedule

    def _diagnosis(self, running: RunningFabric, schedule: Schedule) -> RunDiagnosis:
        foreign = running.status()["controller_kind"] != "railbed"
        policy = None if foreign else running.policy()
        return RunDiagnosis(schedule, running.fabric, running.scale, policy, self._links_down)

    def _diagnosed(self, diagnosis: RunDiagnosis, message: dict[str, Any]) -> bool:
        """Show the verdicts that a message brings; False if the diagnosis cannot go on, which is said."""
        try:
            verdicts = diagnosis.take(message, self._links_down)
        except RailbedError as error:
            self.publish({"event": "said", "text": f"this run is not diagnosed any more: {error}"})
            return False
        if not self.hidden["open"]:  # whoever looks for a hidden fault is to find it
            for verdict in verdicts:
                self.publish(verdict)
        return True

    def _follow(self, running: RunningFabric) -> None:
        """Tell of the runs on a fabric until it ends."""
        run: ReportedRun | None = None
        diagnosis: RunDiagnosis | None = None
        told_s = 0.0
        with suppress(RailbedError, OSError):
            for message in running.follow():
                if self._over.is_set():
                    return
                if message["event"] == "run-start":
                    schedule = self._is_expected(message)
                    run = ReportedRun(message, schedule, running.scale)
                    diagnosis = None if schedule is None else self._diagnosis(running, schedule)
                if run is None:
                    continue
                run.take(message)
                if diagnosis is not None and not self._diagnosed(diagnosis, message):
                    diagnosis = None
                ends = message["event"] in ("run-start", "run-end")
                if ends or time.monotonic() - told_s >= RUN_INTERVAL_S:
                    told_s = time.monotonic()
                    self.publish(run.progress.shown())


def _counters(seen: dict[str, Any]) -> Counters:
    return Counters(seen["t_s"], seen["a_to_b_bytes"], seen["b_to_a_bytes"])
