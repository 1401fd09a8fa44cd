"""The controller's paths of many pairs at once, as arrays of directed links.

Healthy paths are computed in closed form, all pairs together: the same choices that :mod:`controller.routing` makes one
by one, the path hash included. Only a pair whose healthy path crosses something broken is asked of the routing itself;
so is one that it moves to level the load of others. All other pairs keep their path, since taking away a port that
was not chosen never changes a choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from controller.forwarding import LEAF_KINDS, forwarding
from controller.policy import Relay, RoutingPolicy
from controller.routing import Routes
from simulator.hashing import LEAF_SALT, SPINE_SALT, chosen, source_word, target_word
from simulator.paths import NO_LINK, directed_links, link_positions
from topologies.model import NO_FAILURES, Fabric, FabricKind, Failures, LinkKind

Ints = NDArray[np.int64]
Links = NDArray[np.int32]

WIDTH = 8
"""Directed links of the longest healthy path: NVLink to a relay and back, two NICs, up and down a spine."""


class PathTable:
    """Paths of rank pairs on one fabric under one set of failures. Calling it gives one path as link ids."""

    def __init__(self, fabric: Fabric, failures: Failures = NO_FAILURES, policy: RoutingPolicy | None = None) -> None:
        """Raise UnknownElementError for failures that the fabric does not have."""
        self.fabric = fabric
        self.routes = Routes(fabric, failures, policy)
        self._layout = _layout(fabric)
        self._plan = forwarding(fabric, self.routes.policy)
        self._single: dict[tuple[int, int], Sequence[str] | None] = {}

    def __call__(self, src: int, dst: int) -> Sequence[str] | None:
        """Link ids from rank ``src`` to rank ``dst`` in order, host links included; None where there is no path."""
        if (src, dst) not in self._single:
            path = self.routes.path(self.fabric.gpu_of_rank(src), self.fabric.gpu_of_rank(dst))
            self._single[src, dst] = path.links if path else None
        return self._single[src, dst]

    def directed(self, src: Ints, dst: Ints) -> Links:
        """Directed links of every pair, a row each, NO_LINK behind the last; a row of NO_LINK is no path."""
        found = self._healthy(src, dst)
        down = self.routes.links_down
        if not down:
            return found
        positions = self._layout.positions
        dead = np.zeros(2 * len(self.fabric.links) + 1, dtype=bool)
        for link_id in down:
            dead[2 * positions[link_id] : 2 * positions[link_id] + 2] = True
        alive = np.array([self.routes.alive(gpu) for gpu in self.fabric.gpus])
        moved = dead[found].any(axis=1) | ~alive[src] | ~alive[dst] | self._levelled(src, dst)
        rows = []
        for at in np.flatnonzero(moved):
            link_ids = self(int(src[at]), int(dst[at]))
            ends = int(src[at]), int(dst[at])
            rows.append(() if link_ids is None else directed_links(self.fabric, positions, *ends, link_ids))
        wide = max((len(row) for row in rows), default=0)
        if wide > found.shape[1]:
            found = np.pad(found, ((0, 0), (0, wide - found.shape[1])), constant_values=NO_LINK)
        for at, row in zip(np.flatnonzero(moved), rows, strict=True):
            found[at] = NO_LINK
            found[at, : len(row)] = row
        return found

    def _levelled(self, src: Ints, dst: Ints) -> NDArray[np.bool_]:
        """The pairs that may leave their path, although it is alive, to level what orphaned pairs bring."""
        spread, rank, gpus = self.routes.spread, self.fabric.rank, len(self.fabric.gpus)
        to = np.array([rank(gpu) for _, gpu in spread.ports], dtype=np.int64)
        pairs = np.array([rank(one) * gpus + rank(other) for _, one, other in spread.pairs], dtype=np.int64)
        levelled: NDArray[np.bool_] = np.isin(dst, to) | np.isin(src * gpus + dst, pairs)
        return levelled

    def _healthy(self, src: Ints, dst: Ints) -> Links:
        layout, spec = self._layout, self.fabric.spec
        rails = spec.rails
        src_domain, dst_domain = src // rails, dst // rails
        found = np.full((len(src), WIDTH), NO_LINK, dtype=np.int32)
        inside = src_domain == dst_domain
        enter, leave = src.copy(), dst.copy()
        if self.fabric.kind is FabricKind.RAIL_ONLY:
            cross = ~inside & (src % rails != dst % rails)
            at_source = np.array(
                [[self._plan.relays_at_source(one, other) for other in range(rails)] for one in range(rails)]
            )
            early = at_source[src % rails, dst % rails]
            enter = np.where(cross & early, src_domain * rails + dst % rails, src)
            leave = np.where(cross & ~early, dst_domain * rails + src % rails, dst)
        enter, leave = np.where(inside, dst, enter), np.where(inside, dst, leave)
        first = enter != src
        found[first, 0] = 2 * layout.nvlink[src[first]]
        found[first, 1] = 2 * layout.nvlink[enter[first]] + 1
        if not inside.all():
            self._over_nics(found, src, dst, enter, leave, np.flatnonzero(~inside))
        last = leave != dst
        found[last, 6] = 2 * layout.nvlink[leave[last]]
        found[last, 7] = 2 * layout.nvlink[dst[last]] + 1
        return _packed(found)

    def _over_nics(self, found: Links, src: Ints, dst: Ints, enter: Ints, leave: Ints, at: Ints) -> None:
        """Fill columns 2 to 5: up the NIC, up and down a spine where the leaves differ, and down a NIC."""
        layout, rails = self._layout, self.fabric.spec.rails
        enter, leave = enter[at], leave[at]
        plane = (src[at] // rails + dst[at] // rails) % layout.nic.shape[0]
        found[at, 2] = 2 * layout.nic[plane, enter]
        found[at, 5] = 2 * layout.nic[plane, leave] + 1
        leaf, last = layout.leaf[plane, enter], layout.leaf[plane, leave]
        far = leaf != last
        if not far.any():
            return
        at, leaf, last = at[far], leaf[far], last[far]
        src, dst = src[at], dst[at]
        plan, domains = self._plan, self.fabric.spec.domains
        seed = self.routes.policy.seed
        whole = self.fabric.kind is FabricKind.RAIL_ONLY and plan.relay is Relay.SOURCE
        src_ends, dst_ends = (src // rails, src % rails), (dst // rails, dst % rails)
        target = target_word(*dst_ends, domains, True, whole)
        way = chosen(seed, LEAF_SALT, layout.dpid[leaf], source_word(*src_ends, domains, True), target,
                     layout.up_count[leaf])  # fmt: skip
        up = layout.up_first[leaf] + way
        found[at, 3] = 2 * layout.up_link[up]
        spine = layout.up_spine[up]
        row = spine * layout.switches + last
        target = target_word(*dst_ends, domains, plan.one_leaf_per_rail, whole)
        way = chosen(seed, SPINE_SALT, layout.dpid[spine], source_word(*src_ends, domains, False), target,
                     layout.down_count[row])  # fmt: skip
        found[at, 4] = 2 * layout.down_link[layout.down_first[row] + way] + 1


def _packed(found: Links) -> Links:
    """Rows with their links moved to the front, in order, and no more columns than needed."""
    used = found != NO_LINK
    lengths = used.sum(axis=1)
    packed = np.full((len(found), int(lengths.max(initial=1))), NO_LINK, dtype=np.int32)
    packed[np.arange(packed.shape[1]) < lengths[:, None]] = found[used]
    return packed


class _Layout:
    """Positions of links by GPU, leaf and spine. Switches are meant by their place among the fabric's switches."""

    def __init__(self, fabric: Fabric) -> None:
        self.positions = link_positions(fabric)
        order = {switch.id: place for place, switch in enumerate(fabric.switches)}
        rank = {gpu.switch_id: place for place, gpu in enumerate(fabric.gpus)}
        gpus, switches = len(fabric.gpus), len(fabric.switches)
        self.switches = switches
        self.dpid = np.array([switch.dpid for switch in fabric.switches], dtype=np.int64)
        self.nvlink = np.zeros(gpus, dtype=np.int64)
        self.nic = np.zeros((fabric.spec.uplinks, gpus), dtype=np.int64)
        self.leaf = np.zeros((fabric.spec.uplinks, gpus), dtype=np.int64)
        up: list[tuple[int, int, int, int]] = []
        down: list[tuple[int, int, int]] = []
        for position, link in enumerate(fabric.links):
            if link.kind is LinkKind.NVLINK:
                self.nvlink[rank[link.a]] = position
            elif link.kind is LinkKind.NIC:
                switch = fabric.switch_by_id[link.b]
                self.nic[switch.plane, rank[link.a]] = position
                self.leaf[switch.plane, rank[link.a]] = order[link.b]
            elif link.kind is LinkKind.FABRIC:
                assert fabric.switch_by_id[link.a].kind in LEAF_KINDS
                up.append((order[link.a], link.a_port, position, order[link.b]))
                down.append((order[link.b] * switches + order[link.a], link.b_port, position))
        up_rows = np.array(sorted(up), dtype=np.int64).reshape(-1, 4)
        down_rows = np.array(sorted(down), dtype=np.int64).reshape(-1, 3)
        self.up_link, self.up_spine = up_rows[:, 2], up_rows[:, 3]
        self.up_first, self.up_count = _runs(up_rows[:, 0], switches)
        self.down_link = down_rows[:, 2]
        # Rows of a table of spine x leaf would be many; what is not joined has no count.
        self._down_keys, starts, counts = np.unique(down_rows[:, 0], return_index=True, return_counts=True)
        self.down_first, self.down_count = _Sparse(self._down_keys, starts), _Sparse(self._down_keys, counts)


class _Sparse:
    """Values by key, for keys that are all known."""

    def __init__(self, keys: Ints, values: Ints) -> None:
        self._keys, self._values = keys, values

    def __getitem__(self, keys: Ints) -> Ints:
        return self._values[np.searchsorted(self._keys, keys)]


def _runs(keys: Ints, size: int) -> tuple[Ints, Ints]:
    """Where the run of every key starts in sorted ``keys``, and how long it is."""
    counts = np.bincount(keys, minlength=size).astype(np.int64)
    return np.concatenate(([0], np.cumsum(counts)[:-1])), counts


@lru_cache(maxsize=4)
def _layout(fabric: Fabric) -> _Layout:
    return _Layout(fabric)
