"""Collectives as schedules of bulk transfers, over any groups of ranks.

All groups of one schedule run at the same time, and a barrier across all of them ends each phase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from topologies.model import Fabric, FabricKind
from workloads.errors import CollectiveError
from workloads.schedule import Schedule, Tag, Transfer

ALL_REDUCE = "all-reduce"
ALL_TO_ALL = "all-to-all"

PIPELINED_RING = "pipelined ring"
SHIFTED_PHASES = "shifted phases"

Groups = Mapping[str, Sequence[int]]
_Send = tuple[str, str, int, int, int]  # operation, group, source rank, destination rank, size in bytes


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


def ring_all_reduce(groups: Groups, size_bytes: int, ranks: int, *, name: str = ALL_REDUCE, seed: int = 0) -> Schedule:
    """Ring all-reduce of a ``size_bytes`` buffer per rank, as two bulk phases: reduce-scatter, then all-gather.

    A ring of n ranks cuts the buffer into n parts. In each phase every rank sends all parts but one to its neighbour,
    (n-1)/n * size_bytes, in n-1 steps; a pipelined ring keeps the wire busy throughout, so one flow per ring edge
    carries the whole of it. ``ranks`` is the number of ranks of the fabric. Raises CollectiveError for groups that are
    empty, unequal or overlapping, and for sizes below one byte per part.
    """
    check_groups(groups, size_bytes, ranks)
    scatter: list[_Send] = []
    gather: list[_Send] = []
    for group, members in groups.items():
        n = len(members)
        parts = _split(size_bytes, n)
        for index, src in enumerate(members):
            dst = members[(index + 1) % n]
            # Rank i reduces part i+1 last: it ends with it, so it never sends it; in the all-gather it starts with it.
            scatter.append(("reduce-scatter", group, src, dst, size_bytes - parts[(index + 1) % n]))
            gather.append(("all-gather", group, src, dst, size_bytes - parts[(index + 2) % n]))
    meaning = "buffer that every rank holds; each rank sends 2(n-1)/n of it"
    return _schedule(name, ALL_REDUCE, PIPELINED_RING, groups, size_bytes, meaning, ranks, seed, (scatter, gather))


def all_to_all(groups: Groups, size_bytes: int, ranks: int, *, name: str = ALL_TO_ALL, seed: int = 0) -> Schedule:
    """All-to-all in n-1 phases; in phase p the i-th rank of a group sends size_bytes/n to the (i+p)-th.

    ``size_bytes`` is the send buffer of one rank, as in nccl-tests, including the part that it keeps. Raises
    CollectiveError as :func:`ring_all_reduce` does.
    """
    n = check_groups(groups, size_bytes, ranks)
    parts = _split(size_bytes, n)
    phases: list[list[_Send]] = []
    for shift in range(1, n):
        phase: list[_Send] = []
        for group, members in groups.items():
            for index, src in enumerate(members):
                target = (index + shift) % n
                phase.append((ALL_TO_ALL, group, src, members[target], parts[target]))
        phases.append(phase)
    meaning = "send buffer of one rank; each rank sends 1/n of it to each of the n-1 others and keeps 1/n"
    return _schedule(name, ALL_TO_ALL, SHIFTED_PHASES, groups, size_bytes, meaning, ranks, seed, phases)


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


COLLECTIVES: dict[str, Callable[..., Schedule]] = {ALL_REDUCE: ring_all_reduce, ALL_TO_ALL: all_to_all}
GROUPINGS: dict[str, Callable[[Fabric], dict[str, tuple[int, ...]]]] = {"all": all_ranks, "rails": rail_rings}


def collective_on(
    fabric: Fabric, collective: str, grouping: str, size_bytes: int, *, name: str, seed: int = 0
) -> Schedule:
    """The schedule of a collective of :data:`COLLECTIVES` over a grouping of :data:`GROUPINGS`.

    Rings are rail-aligned; an all-to-all goes by rank. Raises CollectiveError as the functions there do.
    """
    groups: Groups = GROUPINGS[grouping](fabric)
    if collective == ALL_REDUCE:
        groups = rail_aligned(fabric, groups)
    return COLLECTIVES[collective](groups, size_bytes, len(fabric.gpus), name=name, seed=seed)


def _schedule(
    name: str,
    collective: str,
    algorithm: str,
    groups: Groups,
    size_bytes: int,
    size_meaning: str,
    ranks: int,
    seed: int,
    phases: Sequence[Sequence[_Send]],
) -> Schedule:
    transfers: list[Transfer] = []
    before: tuple[int, ...] = ()
    for number, phase in enumerate(phases):
        first = len(transfers)
        for operation, group, src, dst, part_bytes in phase:
            tag = Tag(operation, collective, group, number)
            transfers.append(Transfer(len(transfers), src, dst, part_bytes, before, tag))
        before = tuple(range(first, len(transfers)))
    group_size = len(next(iter(groups.values())))
    return Schedule(name, collective, algorithm, ranks, group_size, size_bytes, size_meaning, seed, tuple(transfers))


def _split(size_bytes: int, parts: int) -> list[int]:
    """``size_bytes`` in ``parts`` whole numbers that differ by at most one."""
    each, rest = divmod(size_bytes, parts)
    return [each + (part < rest) for part in range(parts)]


def check_groups(groups: Groups, size_bytes: int, ranks: int) -> int:
    """Number of ranks in each group; raises CollectiveError unless a collective of that size can be made over them.

    Groups must be equally large, of at least 2 ranks, disjoint and within ``ranks``; ``size_bytes`` at least one byte
    per rank of a group.
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
    if size_bytes < n:
        raise CollectiveError(
            f"{size_bytes} bytes cannot be cut into {n} parts, one per rank; the size must be at least {n} bytes"
        )
    return n
