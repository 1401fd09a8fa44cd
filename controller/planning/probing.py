"""Path probing: which paths to try so that every link with a choice is tried, and which links the answers condemn.

A probe goes from one GPU to another over a path of its own and comes back over the same links. A link is taken for
broken when it lies on a probe that was lost and on none that came back. Pure: sending the probes is a back end's work.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from controller.placement import Connection, Placement
from controller.planning.traffic import Demand, Lane
from controller.planning.usable import UsablePaths
from controller.policy import RoutingPolicy
from controller.routing import Routes
from topologies.model import NO_FAILURES, Fabric, Failures

FIRST_PROBE_CHANNEL = 10_000
"""Channels of probes are numbered from here on, so that they are never those of a run."""

TIMES = 2
"""Probes that every link with a choice is on, where it has so many paths."""

ATTEMPTS = 6
"""Paths that are drawn over a link before it is left to another pair."""


@dataclass(frozen=True)
class Probe:
    """One path to try; ``chosen`` are its links that another path of the pair avoids."""

    there: Connection
    links: tuple[str, ...]
    chosen: frozenset[str]

    @property
    def back(self) -> Connection:
        """The connection by which the answer comes."""
        return Connection(self.there.dst, self.there.src, self.there.channel)


def probes_for(
    fabric: Fabric, demands: Sequence[Demand], policy: RoutingPolicy, failures: Failures = NO_FAILURES
) -> tuple[Probe, ...]:
    """Probes that cover all links that the demands can do without, few of them."""
    usable = UsablePaths(Routes(fabric, failures, replace(policy, placement=None)))
    lots = random.Random(policy.seed)
    tried: Counter[str] = Counter()
    found: list[Probe] = []
    paths: set[tuple[Lane, ...]] = set()

    def path_over(wanted: Lane, demand: Demand) -> tuple[Lane, ...]:
        """A path over one lane, and else over lanes that are little tried: by lot, so that partners change."""

        def cost(lane: Lane) -> float:
            return -100.0 if lane == wanted else (tried[lane[0]] >= TIMES) + lots.random() / 8

        return usable.cheapest(demand.src, demand.dst, cost)

    for demand in [one for one in demands if usable.connected(one.src, one.dst)] * TIMES:
        avoidable = _avoidable(usable, demand)
        for wanted in avoidable:
            for _ in range(ATTEMPTS):
                if tried[wanted[0]] >= TIMES:
                    break
                lanes = path_over(wanted, demand)
                if lanes not in paths:
                    chosen = frozenset(lane[0] for lane in lanes if lane in avoidable)
                    paths.add(lanes)
                    tried.update(chosen)
                    there = Connection(demand.src, demand.dst, FIRST_PROBE_CHANNEL + len(found))
                    found.append(Probe(there, tuple(link_id for link_id, _ in lanes), chosen))
                    break
    return tuple(found)


def _avoidable(usable: UsablePaths, demand: Demand) -> dict[Lane, None]:
    """The lanes of all paths of a demand that are not on every one of them, in order."""
    found: dict[Lane, None] = {}
    edge = [demand.src.switch_id]
    for here in edge:
        for lane, there in usable.steps(here, demand.dst):
            if lane not in usable.cheapest(demand.src, demand.dst, lambda other, lane=lane: float(other == lane)):  # type: ignore[misc]
                found[lane] = None
            if there not in edge:
                edge.append(there)
    return found


def placement_of(probes: Sequence[Probe]) -> Placement:
    """What the controller is told so that every probe takes its path, there and back."""
    return Placement.of({each: probe.links for probe in probes for each in (probe.there, probe.back)})


def condemned(probes: Sequence[Probe], answered: Collection[Connection]) -> frozenset[str]:
    """The links that are broken, by which probes (named by their way there) were answered."""
    good = {link_id for probe in probes if probe.there in answered for link_id in probe.links}
    lost = {link_id for probe in probes if probe.there not in answered for link_id in probe.chosen}
    return frozenset(lost - good)
