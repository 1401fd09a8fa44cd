"""Paths of ranks over directed links, taken from whatever computes the routes.

A *router* gives, for what is broken, a function from (source rank, destination rank) to the ids of the links crossed in
order, or None where there is no path. Directed link ``2*j`` is link j of the fabric from its end ``a`` to ``b``, and
``2*j + 1`` the other way. Host links are left out: they stand for the GPU's own memory and limit nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.errors import SimulationError
from topologies.model import Fabric, Failures, LinkKind
from workloads.schedule import Schedule

PairPaths = Callable[[int, int], Sequence[str] | None]
Router = Callable[[Failures], PairPaths]


NO_LINK = -1
"""Fills up the rows of arrays of directed links."""


def pair_links(
    fabric: Fabric, positions: dict[str, int], paths: PairPaths, src: NDArray[np.int64], dst: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Directed links of many pairs, a row each, NO_LINK behind the last; a row of NO_LINK is no path.

    Routes that know how (:class:`simulator.path_table.PathTable`) compute all at once, others pair by pair.
    """
    together = getattr(paths, "directed", None)
    if together is not None:
        rows: NDArray[np.int32] = together(src, dst)
        return rows
    ends = [(int(one), int(other)) for one, other in zip(src, dst, strict=True)]
    known = {
        pair: directed_links(fabric, positions, *pair, link_ids)
        for pair in dict.fromkeys(ends)
        if (link_ids := paths(*pair)) is not None
    }
    width = max(map(len, known.values()), default=1)
    rows = np.full((len(ends), width), NO_LINK, dtype=np.int32)
    for at, pair in enumerate(ends):
        crossed = known.get(pair, ())
        rows[at, : len(crossed)] = crossed
    return rows


def link_positions(fabric: Fabric) -> dict[str, int]:
    """Position of every link in ``fabric.links`` by its id."""
    return {link.id: position for position, link in enumerate(fabric.links)}


def directed_links(
    fabric: Fabric, positions: dict[str, int], src: int, dst: int, link_ids: Sequence[str]
) -> tuple[int, ...]:
    """Directed links of a path given by link ids; raises SimulationError if they do not lead from src to dst."""
    node = fabric.gpu_of_rank(src).switch_id
    crossed = []
    for link_id in link_ids:
        link = fabric.link(link_id)
        if link.kind is LinkKind.HOST:
            continue
        if node not in (link.a, link.b):
            raise SimulationError(f"the path from rank {src} to {dst} is broken: link {link_id} does not touch {node}")
        crossed.append(2 * positions[link_id] + (node == link.b))
        node = link.other(node)
    if node != fabric.gpu_of_rank(dst).switch_id:
        raise SimulationError(f"the path from rank {src} to {dst} ends at {node}")
    return tuple(crossed)


def link_loads(fabric: Fabric, schedule: Schedule, paths: PairPaths) -> NDArray[np.float64]:
    """Real bytes that the schedule puts on every directed link, each pair on its path; unreachable pairs put none."""
    positions = link_positions(fabric)
    loads = np.zeros(2 * len(fabric.links))
    for (src, dst), size_bytes in schedule.bytes_by_pair().items():
        link_ids = paths(src, dst)
        if link_ids is not None:
            for link in directed_links(fabric, positions, src, dst, link_ids):
                loads[link] += size_bytes
    return loads


def busiest_link(fabric: Fabric, schedule: Schedule, paths: PairPaths, kind: LinkKind = LinkKind.NIC) -> str:
    """Id of the link of that kind that carries most bytes of the schedule, both directions together.

    The first one in the fabric's order wins a tie. Raises SimulationError if the schedule uses no such link.
    """
    loads = link_loads(fabric, schedule, paths).reshape(-1, 2).sum(axis=1)
    candidates = [(loads[position], -position, link.id) for position, link in enumerate(fabric.links)
                  if link.kind is kind and loads[position] > 0]  # fmt: skip
    if not candidates:
        raise SimulationError(f"'{schedule.name}' uses no {kind.value} link of this fabric: name the link to fail")
    return max(candidates)[2]


def detour_links(fabric: Fabric, schedule: Schedule, router: Router, failed_link_id: str) -> dict[str, int]:
    """Links that the schedule's pairs use in place of a failed link, with the real bytes that would move to each.

    Only pairs whose healthy path crosses the failed link count, and of their new paths only the links that the old one
    did not have. Sorted by bytes, most first, then in the fabric's order.
    """
    healthy, repaired = router(Failures()), router(Failures(links=frozenset({failed_link_id})))
    moved: dict[str, int] = {}
    for (src, dst), size_bytes in schedule.bytes_by_pair().items():
        old = healthy(src, dst)
        if old is None or failed_link_id not in old:
            continue
        for link_id in repaired(src, dst) or ():
            if link_id not in old and fabric.link(link_id).kind is not LinkKind.HOST:
                moved[link_id] = moved.get(link_id, 0) + size_bytes
    positions = link_positions(fabric)
    return dict(sorted(moved.items(), key=lambda item: (-item[1], positions[item[0]])))
