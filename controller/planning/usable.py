"""The catalogue of usable paths: between two GPUs, all shortest live paths, kept as the next lanes at every switch.

A pair of a big fabric has thousands of paths but few lanes; the cheapest path is found over the lanes, the costs of
which add up, without listing the paths.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from controller.planning.traffic import Lane
from controller.routing import Routes
from topologies.model import Gpu, LinkKind

Step = tuple[Lane, str]
"""A lane and the switch that it leads to."""


class UsablePaths:
    """The usable paths on the fabric of ``routes``, under its failures.

    They are the ones that a placement can name: at each switch any port on a shortest path to the destination.
    """

    def __init__(self, routes: Routes) -> None:
        """Nothing is searched yet."""
        self.routes = routes
        self._steps = lru_cache(maxsize=None)(self._find_steps)

    def steps(self, switch_id: str, dst: Gpu) -> tuple[Step, ...]:
        """The lanes by which a packet for ``dst`` may leave a switch; none at its own switch, or without a path."""
        return self._steps(switch_id, dst)

    def _find_steps(self, switch_id: str, dst: Gpu) -> tuple[Step, ...]:
        link_by_port = self.routes.fabric.link_by_port
        links = (link_by_port[switch_id, port] for port in self.routes.ports(switch_id, dst))
        return tuple(((link.id, switch_id), link.other(switch_id)) for link in links if link.kind is not LinkKind.HOST)

    def connected(self, src: Gpu, dst: Gpu) -> bool:
        """Whether there is any usable path."""
        return self.routes.alive(src) and bool(self.routes.ports(src.switch_id, dst))

    def cheapest(self, src: Gpu, dst: Gpu, cost: Callable[[Lane], float]) -> tuple[Lane, ...]:
        """The lanes of the path with the least sum of costs; the first in port order among equals."""
        best: dict[str, tuple[float, Lane | None, str]] = {dst.switch_id: (0.0, None, "")}

        def least(switch_id: str) -> float:
            known = best.get(switch_id)
            if known is None:
                ways = [(cost(lane) + least(there), at) for at, (lane, there) in enumerate(self.steps(switch_id, dst))]
                value, at = min(ways)
                known = best[switch_id] = (value, *self.steps(switch_id, dst)[at])
            return known[0]

        least(src.switch_id)
        lanes = []
        _, lane, there = best[src.switch_id]
        while lane is not None:
            lanes.append(lane)
            _, lane, there = best[there]
        return tuple(lanes)

    def choices(self, dst: Gpu, lanes: tuple[Lane, ...]) -> frozenset[str]:
        """The links of a path at which there was a choice: what a placement names."""
        return frozenset(link_id for link_id, switch_id in lanes if len(self.steps(switch_id, dst)) > 1)
