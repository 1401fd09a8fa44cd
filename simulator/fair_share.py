"""Max-min fair rates of flows over links of limited capacity.

No flow could go faster without slowing one that is no faster. :mod:`simulator.filling` finds these rates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.errors import SimulationError
from simulator.filling import fill, join
from simulator.network import network


def max_min_rates(capacity: NDArray[np.float64], paths: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Max-min fair rate of every flow, in the unit of ``capacity``.

    ``capacity[j]`` is what directed link j can carry, and ``paths[i]`` the links of flow i; a link listed twice counts
    twice. Raises SimulationError for a flow over no link, and for capacities that are negative or not finite.
    """
    if not np.all(np.isfinite(capacity)) or np.any(capacity < 0):
        raise SimulationError("a link capacity must be a number of 0 or more")
    first = np.zeros(len(paths) + 1, dtype=np.int64)
    np.cumsum(np.fromiter((len(path) for path in paths), dtype=np.int64, count=len(paths)), out=first[1:])
    lengths = np.diff(first)
    if np.any(lengths == 0):
        raise SimulationError(f"flow {int(np.argmin(lengths))} crosses no link, so it has no fair rate")
    links = np.fromiter((link for path in paths for link in path), dtype=np.int32, count=int(first[-1]))
    net = network(capacity, first, links, np.ones(len(links)), np.full(len(paths), np.inf))
    join(net, np.arange(len(paths), dtype=np.int32))
    fill(net)
    return net.rate
