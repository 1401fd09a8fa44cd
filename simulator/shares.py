"""What long flows should get: their max-min fair rates on the paths that the routing gives them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.errors import SimulationError
from simulator.fair_share import max_min_rates
from simulator.fluid import TCP_GOODPUT
from simulator.paths import PairPaths, directed_links, link_positions
from topologies.model import Fabric
from topologies.scale import Scale


def fair_rates_mbps(
    fabric: Fabric, paths: PairPaths, pairs: Sequence[tuple[int, int]], scale: Scale, goodput: float = TCP_GOODPUT
) -> list[float]:
    """Max-min fair payload rate of one endless flow per (source rank, destination rank), in emulated Mbit/s.

    ``goodput`` is the payload share of a link's rate. Raises SimulationError for a pair without a path.
    """
    positions = link_positions(fabric)
    capacity_mbps = np.repeat([scale.emulated_rate_mbps(link.rate_mbps) for link in fabric.links], 2)
    crossed = []
    for src, dst in pairs:
        link_ids = paths(src, dst)
        if link_ids is None:
            raise SimulationError(f"rank {src} has no path to rank {dst}")
        crossed.append(directed_links(fabric, positions, src, dst, link_ids))
    return [float(rate) for rate in max_min_rates(capacity_mbps * goodput, crossed)]
