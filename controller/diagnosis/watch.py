"""Watches a stream of telemetry: looks at it again and again, and tells of a fault once it has been seen to last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.diagnosis.collector import Collector, LinkCounters
from controller.diagnosis.diagnose import diagnose
from controller.diagnosis.network import Network
from controller.diagnosis.telemetry import Connection, Telemetry
from controller.diagnosis.thresholds import DEFAULT, Thresholds
from controller.diagnosis.verdict import Diagnosis, Syndrome, Verdict
from topologies.model import Link

Fault = tuple[Syndrome, str]
"""What makes two verdicts the same: the syndrome, and the component's id."""


@dataclass(frozen=True)
class Alarm:
    """A fault that is told of at ``t_s``, with the diagnosis that it is from."""

    t_s: float
    verdict: Verdict
    diagnosis: Diagnosis


class Watch:
    """One watch over one run. Faults are told once, when they were found in ``limits.confirmations`` looks running.

    While more and more connections of a fault turn hot, it waits a little longer: it may be a part that they share.

    A fault is not new if all its hot connections belonged to one of the same syndrome that was told before, or if
    a part that was told of explains them all.
    """

    def __init__(
        self, network: Network | None = None, limits: Thresholds = DEFAULT, link_ids: Sequence[str] = ()
    ) -> None:
        """``link_ids`` are the links whose counters are told, in their order."""
        self.collector = Collector(window_s=limits.window_s, link_ids=tuple(link_ids))
        self.latest: Diagnosis | None = None
        self._network, self._limits = network, limits
        self._seen: dict[Fault, tuple[int, int]] = {}
        self._told: set[Fault] = set()
        self._told_cells: dict[Syndrome, set[tuple[int, int]]] = {}
        self._next_s = 0.0

    def take(self, items: Iterable[Telemetry], counters: LinkCounters | None = None) -> None:
        """Add telemetry, and a reading of the links' counters."""
        for item in items:
            self.collector.take(item)
        if counters is not None:
            self.collector.take_counters(counters)

    def look(self, now_s: float) -> list[Alarm]:
        """Diagnose if it is time again; what is to be told of that has not been told before."""
        if now_s < self._next_s:
            return []
        self._next_s = now_s + self._limits.every_s - 1e-6
        found = self.latest = diagnose(self.collector.window(now_s), self._network, self._limits)
        by_fault: dict[Fault, Verdict] = {}
        ripe: list[Fault] = []
        for one in found.verdicts:
            by_fault.setdefault((one.syndrome, one.component.id), one)
        seen = {}
        for fault, verdict in by_fault.items():
            times, before = self._seen.get(fault, (0, 0))
            seen[fault] = times + 1, len(verdict.evidence.cells)
            grows = times and len(verdict.evidence.cells) > before
            if times + 1 >= (self._limits.patience if grows else self._limits.confirmations):
                ripe.append(fault)
        self._seen = seen
        alarms = []
        for fault in ripe:
            cells = set(by_fault[fault].evidence.cells)
            known = self._told_cells.setdefault(fault[0], set())
            if fault in self._told or (cells and cells <= known) or self._is_known(by_fault[fault]):
                continue
            self._told.add(fault)
            known.update(cells)
            alarms.append(Alarm(now_s, by_fault[fault], found))
        return alarms

    def _is_known(self, verdict: Verdict) -> bool:
        """Whether a part that was told of explains it: a link of it, or connections that cross it there or back."""
        if self._network is None or not verdict.syndrome.is_communication:
            return False
        links = self._network.fabric.link_by_id
        told = {component for syndrome, component in self._told if syndrome.is_communication}
        if verdict.component.id in links and _touches(links[verdict.component.id], told):
            return True
        cells = verdict.evidence.cells
        return bool(cells) and all(
            any(
                _touches(links[lane.link_id], told)
                for ends in ((src, dst), (dst, src))
                for lane in self._network.lanes(Connection(*ends))
            )
            for src, dst in cells
        )


def _touches(link: Link, parts: set[str]) -> bool:
    """Whether a link, or a switch at its end, is among ``parts``."""
    return not parts.isdisjoint((link.id, link.a, link.b))
