"""Max-min fair rates of flows over links of limited capacity, by progressive filling.

All flows grow at the same pace until a link is full; the flows over it stop there, the others grow on (Bertsekas and
Gallager, Data Networks, section 6.5.2). At the end, no flow could go faster without slowing one that is no faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.errors import SimulationError

TIE = 1e-12
"""Links whose fair shares differ by less than this share of themselves are full at the same time."""


def max_min_rates(capacity: NDArray[np.float64], paths: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Max-min fair rate of every flow, in the unit of ``capacity``.

    ``capacity[j]`` is what directed link j can carry, and ``paths[i]`` the links of flow i; a link listed twice counts
    twice. Raises SimulationError for a flow over no link, and for capacities that are negative or not finite.
    """
    if not np.all(np.isfinite(capacity)) or np.any(capacity < 0):
        raise SimulationError("a link capacity must be a number of 0 or more")
    lengths = np.fromiter((len(path) for path in paths), dtype=np.intp, count=len(paths))
    if np.any(lengths == 0):
        raise SimulationError(f"flow {int(np.argmin(lengths))} crosses no link, so it has no fair rate")
    links = np.fromiter((link for path in paths for link in path), dtype=np.intp, count=int(lengths.sum()))
    flows = np.repeat(np.arange(len(paths)), lengths)

    rates = np.zeros(len(paths))
    left = capacity.astype(np.float64)
    while flows.size:
        users = np.bincount(links, minlength=len(left))
        share = np.full(len(left), np.inf)
        np.divide(left, users, out=share, where=users > 0)
        level = max(float(share.min()), 0.0)
        full = share <= level * (1 + TIE)
        stopped = np.zeros(len(paths), dtype=bool)
        stopped[flows[full[links]]] = True
        rates[stopped] = level
        gone = stopped[flows]
        left -= level * np.bincount(links[gone], minlength=len(left))
        np.maximum(left, 0.0, out=left)
        flows, links = flows[~gone], links[~gone]
    return rates
