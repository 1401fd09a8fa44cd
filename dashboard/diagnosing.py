"""The fault diagnosis of a run while it goes on, from what its engine reports. Pure but for a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from controller.diagnosis.collector import LinkCounters, Window
from controller.diagnosis.network import Network
from controller.diagnosis.replayed import Ended, Report, Teller
from controller.diagnosis.watch import Alarm, Watch
from controller.policy import RoutingPolicy
from controller.routing import Routes
from topologies.model import Fabric, Failures
from topologies.scale import Scale
from workloads.schedule import Schedule

REST = 9.0
"""After a look it rests for so many times what that took: a large fabric is looked at less often, not at more cost."""


class RunDiagnosis:
    """Watches one run of ``schedule`` on ``fabric``; ``policy`` None: its routes are not known (a foreign controller).

    It is for faults that nobody has noticed. Once the controller has, and has changed the routes, there is nothing to
    find out, what is on its way was slow for a known reason, and the rest is judged no more.
    """

    def __init__(
        self,
        schedule: Schedule,
        fabric: Fabric,
        scale: Scale,
        policy: RoutingPolicy | None,
        links_down: frozenset[str] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``links_down`` are those that the routes avoid when the run begins."""
        self._fabric, self._links_down = fabric, links_down
        self._clock, self._rest_until = clock, float("-inf")
        self._now_s = 0.0
        self._over = False
        self._teller = Teller(schedule, scale)
        self._counted = {link.id: place for place, link in enumerate(fabric.failure_targets())}
        self._has_routes = policy is not None
        routes = None if policy is None else Routes(fabric, Failures(links=links_down), policy)
        self._watch = Watch(None if routes is None else Network(routes, scale))
        self._watch.take(self._teller.begin())

    @property
    def window(self) -> Window:
        """What the diagnosis knows now."""
        return self._watch.collector.window(self._now_s)

    def take(self, message: Mapping[str, Any], links_down: frozenset[str]) -> list[dict[str, Any]]:
        """The verdicts that one more message of the run brings, for viewers; ``links_down`` are those avoided now."""
        self._now_s = message.get("t_s", self._now_s)
        self._over = self._over or links_down != self._links_down
        if self._over:
            return []
        if message["event"] == "links" and self._has_routes:
            self._watch.take((), self._counters(message))
        if message["event"] != "transfers":
            return []
        ended = tuple(Ended(number, start_s, end_s, received)
                      for number, _status, start_s, end_s, received, _reason in message["ended"])  # fmt: skip
        self._watch.take(self._teller.report(Report(message["t_s"], ended, dict(message["active"]))))
        if self._clock() < self._rest_until:
            return []
        began = self._clock()
        alarms = self._watch.look(message["t_s"])
        self._rest_until = self._clock() + (self._clock() - began) * REST
        return [verdict_message(alarm) for alarm in alarms]

    def _counters(self, message: Mapping[str, Any]) -> LinkCounters:
        """The counters of a message in the order of all links; those of a GPU to its own switch are not counted."""

        def ordered(counted: list[float]) -> list[float]:
            places = (self._counted.get(link.id) for link in self._fabric.links)
            return [0.0 if place is None else counted[place] for place in places]

        return LinkCounters(message["t_s"], ordered(message["a_to_b_bytes"]), ordered(message["b_to_a_bytes"]))


def verdict_message(alarm: Alarm) -> dict[str, Any]:
    """The message about a fault that was diagnosed: what it is, where, and the numbers behind it."""
    verdict = alarm.verdict
    return {
        "event": "verdict",
        "t_s": round(alarm.t_s, 2),
        "text": verdict.text,
        "component": verdict.component.id,
        "syndrome": verdict.syndrome.value,
        "pattern": verdict.pattern.value,
        "evidence": verdict.evidence.text,
    }
