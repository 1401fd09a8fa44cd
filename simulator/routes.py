"""The controller's routes as a router of the simulator, so that both back ends send every pair the same way."""

from __future__ import annotations

from collections.abc import Sequence

from controller.policy import RoutingPolicy
from controller.routing import Routes
from simulator.paths import PairPaths, Router
from topologies.model import Fabric, Failures


def controller_router(fabric: Fabric, policy: RoutingPolicy | None = None) -> Router:
    """Paths that the controller computes for ``fabric`` under any failures; each pair is computed once."""
    known: dict[Failures, PairPaths] = {}

    def router(failures: Failures) -> PairPaths:
        if failures not in known:
            known[failures] = _pair_paths(Routes(fabric, failures, policy))
        return known[failures]

    return router


def _pair_paths(routes: Routes) -> PairPaths:
    known: dict[tuple[int, int], Sequence[str] | None] = {}

    def paths(src: int, dst: int) -> Sequence[str] | None:
        if (src, dst) not in known:
            path = routes.path(routes.fabric.gpu_of_rank(src), routes.fabric.gpu_of_rank(dst))
            known[src, dst] = path.links if path else None
        return known[src, dst]

    return paths
