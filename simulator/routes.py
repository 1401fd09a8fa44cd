"""The controller's routes as a router of the simulator, so that both back ends send every pair the same way."""

from __future__ import annotations

from controller.policy import RoutingPolicy
from simulator.path_table import PathTable
from simulator.paths import PairPaths, Router
from topologies.model import Fabric, Failures


def controller_router(fabric: Fabric, policy: RoutingPolicy | None = None) -> Router:
    """Paths that the controller computes for ``fabric`` under any failures; each pair is computed once."""
    known: dict[Failures, PairPaths] = {}

    def router(failures: Failures) -> PairPaths:
        if failures not in known:
            known[failures] = PathTable(fabric, failures, policy)
        return known[failures]

    return router
