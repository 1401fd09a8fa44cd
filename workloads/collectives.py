"""Collectives as schedules of transfers, over any groups of ranks.

All groups of one schedule run at the same time. In the bulk form a barrier across all of them ends each phase; in the
stepwise form every transfer waits only for what its algorithm needs (:mod:`workloads.algorithms`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from topologies.model import Fabric, FabricKind
from workloads.algorithms import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    BULK,
    DIRECT,
    GATHER,
    REDUCE,
    REDUCE_SCATTER,
    SCATTER,
    SEND_RECV,
    SIZE_MEANINGS,
    STEPWISE,
    Flows,
    check_shape,
    find_algorithm,
    flows,
    uneven_flows,
)
from workloads.errors import CollectiveError
from workloads.schedule import Schedule, Tag, Transfer

PIPELINED_RING = "pipelined ring"
SHIFTED_PHASES = "shifted phases"

Groups = Mapping[str, Sequence[int]]


def all_ranks(fabric: Fabric) -> dict[str, tuple[int, ...]]:
    """One group, ``all``, of every rank in rank order."""
    return {"all": tuple(range(len(fabric.gpus)))}


def rail_rings(fabric: Fabric) -> dict[str, tuple[int, ...]]:
    """One group per rail (``rail0``, ...): the GPUs of that rail, by domain. They load every NIC at once.

    Raises CollectiveError for a fabric with one domain, whose rails hold one GPU each.
    """
    if fabric.kind is FabricKind.IDEAL or fabric.spec.domains < 2:
        raise CollectiveError(
            "a group per rail needs at least 2 domains, but this fabric has one: use the group 'all', or more domains"
        )
    rails = fabric.spec.rails
    return {f"rail{rail}": tuple(range(rail, len(fabric.gpus), rails)) for rail in range(rails)}


def collective(
    kind: str,
    groups: Groups,
    size_bytes: int,
    ranks: int,
    *,
    algorithm: str | None = None,
    form: str = BULK,
    local: int = 1,
    root: int = 0,
    name: str = "",
    seed: int = 0,
) -> Schedule:
    """A collective of ``size_bytes``, in the sense of nccl-tests, by every group at the same time.

    ``kind`` and ``algorithm`` are those of :data:`workloads.algorithms.ALGORITHMS`; None is the first one there.
    ``local`` is the number of consecutive members of a group that share a domain: algorithms with a phase in the
    domain need it, and rings keep to their rails by it; :func:`by_domain` orders groups so. ``root`` is the position
    in every group of the root of a broadcast or reduce. ``ranks`` is the number of ranks of the fabric. Raises
    CollectiveError for groups that are empty, unequal or overlapping, and for sizes and groups that the algorithm
    can't be made with.
    """
    n = check_groups(groups, size_bytes, ranks, kind, algorithm, local)
    if not 0 <= root < n:
        raise CollectiveError(f"the root is member {root}, but the groups have members 0 to {n - 1}")
    made = flows(kind, algorithm, n, size_bytes, local, form)
    rooted = {group: (*members[root:], *members[:root]) for group, members in groups.items()} if root else groups
    return _schedule(name or kind, kind, algorithm, form, rooted, made, size_bytes, SIZE_MEANINGS[kind], ranks, seed)


def ring_all_reduce(groups: Groups, size_bytes: int, ranks: int, *, name: str = ALL_REDUCE, seed: int = 0) -> Schedule:
    """Ring all-reduce of a ``size_bytes`` buffer per rank, as two bulk phases: reduce-scatter, then all-gather.

    A ring of n ranks cuts the buffer into n parts. In each phase every rank sends all parts but one to its neighbour,
    (n-1)/n * size_bytes, in n-1 steps; a pipelined ring keeps the wire busy throughout, so one flow per ring edge
    carries the whole of it. Raises CollectiveError as :func:`collective` does.
    """
    return collective(ALL_REDUCE, groups, size_bytes, ranks, name=name, seed=seed)


def ring_all_gather(groups: Groups, size_bytes: int, ranks: int, *, name: str = ALL_GATHER, seed: int = 0) -> Schedule:
    """Ring all-gather into a receive buffer of ``size_bytes``, as one bulk phase: every rank sends (n-1)/n of it."""
    return collective(ALL_GATHER, groups, size_bytes, ranks, name=name, seed=seed)


def ring_reduce_scatter(
    groups: Groups, size_bytes: int, ranks: int, *, name: str = REDUCE_SCATTER, seed: int = 0
) -> Schedule:
    """Ring reduce-scatter of a send buffer of ``size_bytes``, as one bulk phase: every rank sends (n-1)/n of it."""
    return collective(REDUCE_SCATTER, groups, size_bytes, ranks, name=name, seed=seed)


def ring_broadcast(groups: Groups, size_bytes: int, ranks: int, *, name: str = BROADCAST, seed: int = 0) -> Schedule:
    """Broadcast of ``size_bytes`` from the first member along the ring, as one bulk phase of n-1 flows."""
    return collective(BROADCAST, groups, size_bytes, ranks, name=name, seed=seed)


def ring_reduce(groups: Groups, size_bytes: int, ranks: int, *, name: str = REDUCE, seed: int = 0) -> Schedule:
    """Reduce of ``size_bytes`` around the ring to the first member, as one bulk phase of n-1 flows."""
    return collective(REDUCE, groups, size_bytes, ranks, name=name, seed=seed)


def all_to_all(groups: Groups, size_bytes: int, ranks: int, *, name: str = ALL_TO_ALL, seed: int = 0) -> Schedule:
    """All-to-all in n-1 phases; in phase p the i-th rank of a group sends size_bytes/n to the (i+p)-th.

    ``size_bytes`` is the send buffer of one rank, as in nccl-tests, including the part that it keeps. Raises
    CollectiveError as :func:`collective` does.
    """
    return collective(ALL_TO_ALL, groups, size_bytes, ranks, name=name, seed=seed)


def uneven_all_to_all(
    groups: Groups,
    splits: Sequence[Sequence[int]],
    ranks: int,
    *,
    algorithm: str | None = None,
    form: str = BULK,
    local: int = 1,
    name: str = ALL_TO_ALL,
    seed: int = 0,
) -> Schedule:
    """All-to-all in which the i-th member of every group sends ``splits[i][j]`` bytes to the j-th; 0 sends nothing.

    The size is the largest send buffer of a rank. Raises CollectiveError as :func:`collective` does, and for splits
    that are not square, negative, or all 0 between different members.
    """
    enough_bytes = max(map(len, groups.values()), default=0)  # the splits tell the sizes
    n = check_groups(groups, enough_bytes, ranks, ALL_TO_ALL, algorithm, local)
    if len(splits) != n:
        raise CollectiveError(f"the splits are of {len(splits)} ranks, but the groups have {n}")
    made = uneven_flows(tuple(tuple(row) for row in splits), algorithm, local, form)
    if not made.flows:
        raise CollectiveError("every rank keeps all of its buffer; an all-to-all must send something to another rank")
    size_bytes = max(sum(row) for row in splits)
    meaning = "largest send buffer of a rank, with the part that it keeps"
    return _schedule(name, ALL_TO_ALL, algorithm, form, groups, made, size_bytes, meaning, ranks, seed)


def gather(groups: Groups, size_bytes: int, ranks: int, *, name: str = GATHER, seed: int = 0) -> Schedule:
    """Gather into a buffer of ``size_bytes`` at the first member: every other one sends its n-th, at the same time."""
    return collective(GATHER, groups, size_bytes, ranks, name=name, seed=seed)


def scatter(groups: Groups, size_bytes: int, ranks: int, *, name: str = SCATTER, seed: int = 0) -> Schedule:
    """Scatter of a buffer of ``size_bytes`` at the first member: it sends every other one its n-th."""
    return collective(SCATTER, groups, size_bytes, ranks, name=name, seed=seed)


def send_recv(groups: Groups, size_bytes: int, ranks: int, *, name: str = SEND_RECV, seed: int = 0) -> Schedule:
    """``size_bytes`` from the first to the second member of every group; raises CollectiveError for other groups."""
    return collective(SEND_RECV, groups, size_bytes, ranks, name=name, seed=seed)


def by_domain(fabric: Fabric, groups: Groups) -> tuple[dict[str, tuple[int, ...]], int]:
    """The groups with their members sorted by domain and rail, and the number of them in each domain.

    Raises CollectiveError where domains hold different numbers of members, or members on different rails: a
    hierarchical collective needs rings that stay on their rail.
    """
    ordered: dict[str, tuple[int, ...]] = {}
    rails_of: set[tuple[int, ...]] = set()
    for group, members in groups.items():
        ordered[group] = tuple(sorted(members))
        gpus = [fabric.gpu_of_rank(rank) for rank in ordered[group]]
        found = [tuple(gpu.rail for gpu in there) for _, there in groupby(gpus, key=lambda gpu: gpu.domain)]
        if len(set(found)) > 1:
            raise CollectiveError(
                f"group '{group}' has ranks on rails {list(found[0])} in one domain and on other rails in another; "
                "a hierarchical collective needs the same rails in every domain"
            )
        rails_of.add(found[0])
    sizes = sorted({len(rails) for rails in rails_of})
    if len(sizes) != 1:
        raise CollectiveError(f"the groups have {', '.join(map(str, sizes))} ranks a domain; they must be equally many")
    return ordered, sizes[0]


def rail_aligned(fabric: Fabric, groups: Groups) -> dict[str, tuple[int, ...]]:
    """The groups in the order of a ring that keeps to its rails: in every second domain the rails run backwards.

    The ring so leaves a domain on the rail on which it enters the next, as NCCL builds its rings unless told to cross
    NICs (NCCL_CROSS_NIC). With an odd number of domains the last edge, back to the first, still crosses rails.
    """
    ordered = {}
    for group, members in groups.items():
        by_domain: dict[int, list[int]] = {}
        for rank in sorted(members):
            by_domain.setdefault(fabric.gpu_of_rank(rank).domain, []).append(rank)
        turns = enumerate(by_domain.values())
        ordered[group] = tuple(rank for turn, ranks in turns for rank in (reversed(ranks) if turn % 2 else ranks))
    return ordered


COLLECTIVES: dict[str, Callable[..., Schedule]] = {
    ALL_REDUCE: ring_all_reduce,
    ALL_GATHER: ring_all_gather,
    REDUCE_SCATTER: ring_reduce_scatter,
    BROADCAST: ring_broadcast,
    REDUCE: ring_reduce,
    ALL_TO_ALL: all_to_all,
    GATHER: gather,
    SCATTER: scatter,
}
"""By name, the collective over any groups in its default algorithm; the first member is the root where there is one."""

GROUPINGS: dict[str, Callable[[Fabric], dict[str, tuple[int, ...]]]] = {"all": all_ranks, "rails": rail_rings}


def collective_on(
    fabric: Fabric,
    kind: str,
    grouping: str,
    size_bytes: int,
    *,
    algorithm: str | None = None,
    form: str = BULK,
    name: str,
    seed: int = 0,
) -> Schedule:
    """The schedule of a collective over a grouping of :data:`GROUPINGS`.

    Rings are rail-aligned; algorithms with a phase in the domain get their groups by domain; all others go by rank.
    Raises CollectiveError as :func:`collective` does.
    """
    groups: Groups = GROUPINGS[grouping](fabric)
    chosen, found = find_algorithm(kind, algorithm)
    local = 1
    if found.needs_local:
        groups, local = by_domain(fabric, groups)
    elif kind != ALL_TO_ALL and chosen != DIRECT:
        groups = rail_aligned(fabric, groups)
    return collective(
        kind, groups, size_bytes, len(fabric.gpus), algorithm=chosen, form=form, local=local, name=name, seed=seed
    )


def _schedule(
    name: str,
    kind: str,
    algorithm: str | None,
    form: str,
    groups: Groups,
    made: Flows,
    size_bytes: int,
    size_meaning: str,
    ranks: int,
    seed: int,
) -> Schedule:
    chosen, found = find_algorithm(kind, algorithm)
    transfers = _in_phases(kind, groups, made) if form == BULK else _by_need(kind, groups, made)
    text = found.bulk_name if form == BULK else f"{chosen}, {STEPWISE}"
    n = len(next(iter(groups.values())))
    return Schedule(name, kind, text, ranks, n, size_bytes, size_meaning, seed, tuple(transfers))


def _in_phases(kind: str, groups: Groups, made: Flows) -> list[Transfer]:
    """The flows of all groups phase by phase, with a barrier of all groups between phases."""
    transfers: list[Transfer] = []
    before: tuple[int, ...] = ()
    for phase, members_of in groupby(made.flows, key=lambda flow: flow.phase):
        together = tuple(members_of)
        first = len(transfers)
        for group, members in groups.items():
            for flow in together:
                tag = Tag(flow.operation, kind, group, phase)
                transfers.append(
                    Transfer(len(transfers), members[flow.src], members[flow.dst], flow.size_bytes, before, tag)
                )
        before = tuple(range(first, len(transfers)))
    return transfers


def _by_need(kind: str, groups: Groups, made: Flows) -> list[Transfer]:
    transfers: list[Transfer] = []
    for group, members in groups.items():
        first = len(transfers)
        for flow in made.flows:
            after = tuple(first + before for before in flow.after)
            tag = Tag(flow.operation, kind, group, flow.phase)
            transfers.append(
                Transfer(len(transfers), members[flow.src], members[flow.dst], flow.size_bytes, after, tag)
            )
    return transfers


def check_groups(
    groups: Groups,
    size_bytes: int,
    ranks: int,
    kind: str = ALL_REDUCE,
    algorithm: str | None = None,
    local: int = 1,
) -> int:
    """Number of ranks in each group; raises CollectiveError unless a collective of that size can be made over them.

    Groups must be equally large, of at least 2 ranks, disjoint and within ``ranks``; the size at least what the
    algorithm can cut into parts.
    """
    if not groups:
        raise CollectiveError("a collective needs at least one group of ranks")
    sizes = {len(members) for members in groups.values()}
    if len(sizes) > 1:
        raise CollectiveError(f"the groups have {', '.join(map(str, sorted(sizes)))} ranks; they must be equally large")
    n = sizes.pop()
    if n < 2:
        raise CollectiveError(f"a collective needs at least 2 ranks per group; these groups have {n}")
    seen: set[int] = set()
    for group, members in groups.items():
        for rank in members:
            if not 0 <= rank < ranks:
                raise CollectiveError(f"group '{group}': rank {rank} does not exist; the ranks are 0 to {ranks - 1}")
            if rank in seen:
                raise CollectiveError(f"group '{group}': rank {rank} takes part twice; groups must not overlap")
            seen.add(rank)
    chosen, _ = find_algorithm(kind, algorithm)
    check_shape(kind, chosen, n, size_bytes, local)
    return n
