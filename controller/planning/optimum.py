"""The optimum that a plan is held against: the demands as divisible flows, by a linear program (HiGHS)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from controller.errors import PlanningError
from controller.planning.traffic import Demand, Lane
from controller.planning.usable import UsablePaths
from controller.policy import RoutingPolicy
from controller.routing import Routes
from topologies.model import NO_FAILURES, Fabric, Failures


def least_busiest_s(
    fabric: Fabric, demands: Sequence[Demand], policy: RoutingPolicy, failures: Failures = NO_FAILURES
) -> float:
    """The least time that the busiest lane can need for one round, with any share of a demand on any usable path.

    No plan is faster: a plan has a few channels for each demand, here they are as many as it has paths. Raises
    PlanningError for a demand without a path.
    """
    usable = UsablePaths(Routes(fabric, failures, policy))
    columns: list[tuple[int, Lane]] = []
    balance: list[tuple[int, int, float]] = []
    wanted: list[float] = []
    for demand in demands:
        if not usable.connected(demand.src, demand.dst):
            raise PlanningError(f"there is no path from {demand.src.id} to {demand.dst.id}: leave this demand out")
        rows = {demand.src.switch_id: len(wanted)}
        wanted.append(demand.size_bytes)
        edge = [demand.src.switch_id]
        while edge:
            here = edge.pop()
            for lane, there in usable.steps(here, demand.dst):
                balance.append((rows[here], len(columns), 1.0))
                if there != demand.dst.switch_id:
                    if there not in rows:
                        rows[there] = len(wanted)
                        wanted.append(0.0)
                        edge.append(there)
                    balance.append((rows[there], len(columns), -1.0))
                columns.append((rows[here], lane))
    order = {lane: row for row, lane in enumerate(dict.fromkeys(lane for _, lane in columns))}
    scale = max(wanted)
    count = len(columns)
    loads = [(order[lane], column, 1.0) for column, (_, lane) in enumerate(columns)]
    most = min(fabric.link(link_id).rate_mbps for link_id, _ in order)
    loads += [(row, count, -fabric.link(lane[0]).rate_mbps / most) for lane, row in order.items()]
    found = linprog(
        c=np.append(np.zeros(count), 1.0),
        A_ub=_matrix(loads, len(order), count + 1),
        b_ub=np.zeros(len(order)),
        A_eq=_matrix(balance, len(wanted), count + 1),
        b_eq=np.array(wanted) / scale,
        method="highs",
    )
    assert found.success, found.message
    return float(found.fun) * scale * 8e-6 / most


def _matrix(entries: Sequence[tuple[int, int, float]], rows: int, columns: int) -> coo_matrix:
    row, column, value = zip(*entries, strict=True)
    return coo_matrix((value, (row, column)), shape=(rows, columns))
