"""Which transfers of a schedule are equal, and the paths of their classes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.changes import Change
from simulator.folding import Partition, first_members, quotient, refine
from simulator.paths import NO_LINK, link_positions
from simulator.work import Work, crossings, depths, unique_rows
from topologies.model import Fabric, LinkKind

Ints = NDArray[np.int64]
Rows = NDArray[np.int32]

WORTH = 0.7
"""A partition into more classes than this share of the items is not worth its trouble."""


def partition(
    work: Work, fabric: Fabric, changes: Sequence[Change], paths: Callable[[frozenset[str]], Rows], fold: bool
) -> Partition:
    """Classes of items, gates and directed links; without ``fold``, or where little is equal, each its own.

    ``paths`` gives the directed links of all transfers while the routes know some links to be down.
    """
    items, links = len(work.gate_of), 2 * len(fabric.links)
    whole = Partition(np.arange(items), np.arange(work.gates), np.arange(links))
    if not fold:
        return whole
    states, down = [frozenset[str]()], Counter[str]()
    for change in changes:
        if change.routes and math.isfinite(change.t_s):
            down[change.failure.link_id] += -1 if change.up else 1
            states.append(frozenset(+down))
    rows = [paths(state) for state in dict.fromkeys(states)]
    computations = len(work.duration_s)
    pathless = [np.concatenate((one[:, 0] == NO_LINK, np.zeros(computations, dtype=bool))) for one in rows]
    delays = np.concatenate((work.delay_s, work.duration_s))
    sizes = np.concatenate((work.size_bytes, np.full(computations, -1)))
    # Links that fail are each their own class.
    failing = np.zeros(links, dtype=np.int64)
    positions = link_positions(fabric)
    for number, link_id in enumerate(sorted({change.failure.link_id for change in changes})):
        at = 2 * positions[link_id]
        failing[at : at + 2] = 2 * number + 1, 2 * number + 2
    rates = np.repeat([0.0 if link.kind is LinkKind.HOST else link.rate_mbps for link in fabric.links], 2)
    found = refine(
        unique_rows([sizes, delays, *pathless]), work.gate_of, depths(work.gates, work.gate_of, work.waits),
        unique_rows([rates, failing]), work.waits, [crossings(one) for one in rows],
    )  # fmt: skip
    if int(found.items.max(initial=0)) + 1 > WORTH * items:
        return whole
    # Items in order of their first members: transfers before computations, and what starts first stays first.
    order = np.argsort(np.argsort(first_members(found.items)))
    return Partition(order[found.items], found.gates, found.links)


def paths_of_classes(rows: Rows, part: Partition, members: Ints) -> tuple[Ints, Rows, NDArray[np.float64]]:
    """Of every class of flows its classes of links and weights; plain paths where every class has one member."""
    crossed = crossings(rows)
    if len(members) == len(rows) and len(np.unique(part.links)) == len(part.links):
        first = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum((rows != NO_LINK).sum(axis=1), out=first[1:])
        return first, crossed.link.astype(np.int32), np.ones(len(crossed.link))
    first, link, weight = quotient(crossed, part.items, part.links, members)
    return first, link.astype(np.int32), weight
