"""The fault diagnosis of a run while it goes on, from what its engine reports. Pure but for a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from controller.diagnosis.collector import LinkCounters, Window
from controller.diagnosis.network import Network
from controller.diagnosis.replayed import Ended, Report, Teller
from controller.diagnosis.telemetry import Communicator, Message, RankOperation, Telemetry
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

    What is judged is judged by the routes in force: with new ones it begins anew, and what began before is left out.
    """

    def __init__(
        self,
        schedule: Schedule,
        fabric: Fabric,
        scale: Scale,
        policy: RoutingPolicy | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._rest_until = clock, float("-inf")
        self._fabric, self._scale, self._policy = fabric, scale, policy
        self._teller = Teller(schedule, scale)
        self._links_down: frozenset[str] = frozenset()
        self._since_s = self._now_s = 0.0
        self._counted = {link.id: place for place, link in enumerate(fabric.failure_targets())}
        begun = self._teller.begin()
        self._communicators = [one for one in begun if isinstance(one, Communicator)]
        self._newest: dict[tuple[str, int], RankOperation] = {}
        self._remember(begun)
        self._watch = self._begin()
        self._watch.take(begun)

    def _begin(self) -> Watch:
        if self._policy is None:
            return Watch()
        routes = Routes(self._fabric, Failures(links=self._links_down), self._policy)
        return Watch(Network(routes, self._scale))

    @property
    def window(self) -> Window:
        """What the diagnosis knows now."""
        return self._watch.collector.window(self._now_s)

    def take(self, message: Mapping[str, Any], links_down: frozenset[str]) -> list[dict[str, Any]]:
        """The verdicts that one more message of the run brings, for viewers; ``links_down`` are those routed around."""
        self._now_s = message.get("t_s", self._now_s)
        if links_down != self._links_down:
            self._links_down, self._since_s = links_down, self._now_s
            self._watch = self._begin()
            self._watch.take([*self._communicators, *self._newest.values()])
        if message["event"] == "links" and self._policy is not None:
            self._watch.take((), self._counters(message))
            return []
        if message["event"] != "transfers":
            return []
        ended = tuple(Ended(number, start_s, end_s, received)
                      for number, _status, start_s, end_s, received, _reason in message["ended"])  # fmt: skip
        told = self._teller.report(Report(message["t_s"], ended, dict(message["active"])))
        self._remember(told)
        self._watch.take(one for one in told if not (isinstance(one, Message) and self._is_old(one)))
        if self._clock() < self._rest_until:
            return []
        began = self._clock()
        alarms = self._watch.look(message["t_s"])
        self._rest_until = self._clock() + (self._clock() - began) * REST
        return [verdict_message(alarm) for alarm in alarms]

    def _remember(self, told: Iterable[Telemetry]) -> None:
        """Keep the newest operation of every rank: one that it entered before new routes is entered still."""
        for one in told:
            if isinstance(one, RankOperation):
                self._newest[one.communicator, one.rank] = one

    def _is_old(self, message: Message) -> bool:
        """Whether a message began on routes that are not in force any more."""
        return self._since_s > 0 and message.start_s is not None and message.start_s < self._since_s

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
