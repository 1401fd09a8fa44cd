"""Classes of equal flows of operations over families of groups, found without making their transfers.

Every distinct collective of an operation schedule is laid out once over all groups of its family, whatever the number
of times it is called. Colour refinement (:mod:`simulator.folding`) then finds the classes: of flows, of groups (whose
ranks enter and leave together), of ranks and of links. One group of all ranks on a fabric that a turn by one domain
maps onto itself is not even laid out: the flows of one domain stand for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.errors import SimulationError
from simulator.folding import Crossings, Partition, Waits, dense, first_members, quotient, refine
from simulator.paths import NO_LINK, PairPaths, link_positions, pair_links
from simulator.work import crossings, unique_rows
from topologies.model import NO_FAILURES, Fabric, FabricKind, Failures, LinkKind, SwitchKind
from workloads.algorithms import ALL_TO_ALL, DIRECT, Flows, find_algorithm
from workloads.families import AnyFamily, Family
from workloads.operations import Call, OperationSchedule

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MAX_FLOWS = 6_000_000
"""Flows that are laid out at most, over all distinct collectives of a schedule; about 0.3 GB a million."""


@dataclass(frozen=True)
class Templates:
    """Classes of flows, in order of collective, class of groups and phase.

    Class i crosses link classes ``link[first[i]:first[i+1]]`` with ``weight`` flows on each link. ``phases`` has, by
    collective and class of groups, the classes of each phase. ``units`` has by family the classes of its groups, each
    with the classes of its ranks; ``entering`` by collective and class of groups those of its ranks that must be there
    before anything moves. ``counts`` has the flows of each collective, all groups together. ``link_class`` is
    by directed link, ``member`` a link of each class.
    """

    first: Ints
    link: Ints
    weight: Floats
    size_bytes: Ints
    phases: dict[tuple[Call, int], tuple[Ints, ...]]
    units: dict[AnyFamily, dict[int, tuple[int, ...]]]
    entering: dict[tuple[Call, int], tuple[int, ...]]
    counts: dict[Call, int]
    link_class: Ints
    member: Ints


def plain(call: Call) -> Call:
    """The call without its computing: calls that are equal so move the same."""
    return replace(call, delay_s=0.0)


def templates_of(fabric: Fabric, schedule: OperationSchedule, paths: PairPaths, failures: Failures) -> Templates:
    """The classes of all flows of a schedule; raises SimulationError for a pair without a path and for too many."""
    calls = dict.fromkeys(plain(call) for operation in schedule.operations for call in operation.calls)
    if failures == NO_FAILURES and len(calls) == 1 and _turns(fabric):
        call = next(iter(calls))
        if _is_whole_exchange(call, schedule.ranks):
            return _turned(fabric, call, paths)
    return _laid_out(fabric, schedule, list(calls), paths)


def members_of(family: AnyFamily) -> Ints:
    """The members of every group, a row each."""
    if not isinstance(family, Family):
        return np.array(family.listed, dtype=np.int64)
    rows = np.full((1, 1), family.first, dtype=np.int64)
    for axis, (count, apart) in [(0, one) for one in family.between] + [(1, one) for one in family.inside]:
        steps = np.arange(count, dtype=np.int64) * apart
        if axis == 0:
            rows = (rows[:, None, :] + steps[None, :, None]).reshape(-1, rows.shape[1])
        else:
            rows = (rows[:, :, None] + steps[None, None, :]).reshape(rows.shape[0], -1)
    return rows


@dataclass(frozen=True)
class _Layout:
    """All flows of all distinct collectives, a place each: ends, bytes, phase, group, and number of the collective."""

    src: Ints
    dst: Ints
    size_bytes: Ints
    phase: Ints
    group: Ints
    number: Ints


def _layout(
    moving: Sequence[tuple[Call, Flows]], members: dict[AnyFamily, Ints], first_group: dict[AnyFamily, int]
) -> _Layout:
    columns: list[list[Ints]] = [[np.zeros(0, dtype=np.int64)] for _ in range(6)]
    for number, (call, made) in enumerate(moving):
        rows = members[call.family]
        src, dst, size_bytes, phase = (
            np.array([getattr(flow, key) for flow in made.flows], dtype=np.int64)
            for key in ("src", "dst", "size_bytes", "phase")
        )
        groups = first_group[call.family] + np.repeat(np.arange(len(rows)), len(src))
        found = (rows[:, src].ravel(), rows[:, dst].ravel(), np.tile(size_bytes, len(rows)), np.tile(phase, len(rows)),
                 groups, np.full(len(groups), number))  # fmt: skip
        for column, part in zip(columns, found, strict=True):
            column.append(part)
    return _Layout(*(np.concatenate(column) for column in columns))


def _laid_out(fabric: Fabric, schedule: OperationSchedule, calls: Sequence[Call], paths: PairPaths) -> Templates:
    members = {call.family: members_of(call.family) for call in calls}
    starts = np.cumsum([0, *(len(rows) for rows in members.values())]).tolist()
    first_group = dict(zip(members, starts[:-1], strict=True))
    moving = [(call, made) for call in calls if (made := _flows(schedule, call)) is not None]
    counts = {call: len(made.flows) * call.family.group_count for call, made in moving}
    if sum(counts.values()) > MAX_FLOWS:
        raise SimulationError(
            f"'{schedule.name}' has {sum(counts.values()):,} different flows, but at most {MAX_FLOWS:,} are laid out; "
            "use smaller groups, or one all-to-all of all ranks on a rail-only fabric with one switch a rail"
        )
    laid = _layout(moving, members, first_group)
    rows = pair_links(fabric, link_positions(fabric), paths, laid.src, laid.dst)
    lost = np.flatnonzero(rows[:, 0] == NO_LINK)
    if len(lost):
        src, dst = (fabric.gpu_of_rank(int(one[lost[0]])).id for one in (laid.src, laid.dst))
        raise SimulationError(f"'{schedule.name}' sends from {src} to {dst}, but no path leads there")
    crossed = crossings(rows)
    part = _refined(fabric, schedule.ranks, laid, crossed, list(members.values()))
    flows, links = len(laid.src), 2 * len(fabric.links)
    link_class = dense(part.links[:links])
    item_class = dense(part.items[:flows])
    member = first_members(item_class)
    phases: dict[tuple[Call, int], list[list[int]]] = {}
    for at, one in enumerate(member.tolist()):
        there = phases.setdefault((moving[laid.number[one]][0], int(part.gates[laid.group[one]])), [])
        while len(there) <= laid.phase[one]:
            there.append([])
        there[laid.phase[one]].append(at)
    units: dict[AnyFamily, dict[int, tuple[int, ...]]] = {}
    for family, ranks in members.items():
        classes = part.gates[first_group[family] : first_group[family] + len(ranks)]
        units[family] = {
            int(classes[group]): tuple(np.unique(part.links[links + ranks[group]]).tolist())
            for group in first_members(dense(classes)).tolist()
        }
    return Templates(
        *quotient(crossed, item_class, link_class, member), laid.size_bytes[member],
        {key: tuple(np.array(one, dtype=np.int64) for one in there if one) for key, there in phases.items()},
        units, _entering(moving, members, first_group, part, links), counts, link_class, first_members(link_class),
    )  # fmt: skip


def _entering(
    moving: Sequence[tuple[Call, Flows]], members: dict[AnyFamily, Ints], first_group: dict[AnyFamily, int],
    part: Partition, links: int,
) -> dict[tuple[Call, int], tuple[int, ...]]:  # fmt: skip
    found = {}
    for call, made in moving:
        who = sorted({flow.src for flow in made.flows if flow.enters}) if call.posted else range(call.family.group_size)
        if call.posted and len(who) > 1:
            raise SimulationError(
                f"family '{call.family.name}' has posted receives for sends of {len(who)} ranks of a group; operations "
                "are simulated with one such rank, others as a whole schedule of transfers"
            )
        ranks = members[call.family][:, list(who)]
        for group, row in enumerate(ranks):
            key = call, int(part.gates[first_group[call.family] + group])
            if key not in found:
                found[key] = tuple(np.unique(part.links[links + row]).tolist())
    return found


def _refined(fabric: Fabric, ranks: int, laid: _Layout, crossed: Crossings, members: Sequence[Ints]) -> Partition:
    """Classes of flows and groups (items), of groups (gates), and of links and ranks (links).

    A group is an item too, which crosses its ranks as if they were links: so ranks tell apart what their groups do.
    """
    flows, links = len(laid.src), 2 * len(fabric.links)
    family_of = np.repeat(np.arange(len(members)), [len(rows) for rows in members])
    groups = len(family_of)
    rank_of = np.concatenate([rows.ravel() for rows in members])
    group_of = np.repeat(np.arange(groups), np.concatenate([np.full(len(rows), rows.shape[1]) for rows in members]))
    both = Crossings(
        np.concatenate((crossed.flow, flows + group_of)), np.concatenate((crossed.link, links + rank_of))
    )  # fmt: skip
    rates = np.repeat([0.0 if link.kind is LinkKind.HOST else link.rate_mbps for link in fabric.links], 2)
    gate_of = np.concatenate((laid.group, np.arange(groups)))
    kinds = unique_rows([laid.number, laid.phase, laid.size_bytes])
    return refine(
        np.concatenate((kinds, flows + family_of)), gate_of, family_of,
        unique_rows([np.concatenate((rates, np.full(ranks, -1.0)))]), Waits(gate_of, np.arange(flows + groups)), [both],
    )  # fmt: skip


def _flows(schedule: OperationSchedule, call: Call) -> Flows | None:
    made = call.flows(schedule.form)
    return made if made is not None and made.flows else None


def _turns(fabric: Fabric) -> bool:
    """Whether a turn by one domain (on the ideal fabric: by one GPU) maps the fabric and its routes onto itself."""
    kinds = {switch.kind for switch in fabric.switches}
    uniform = all(len({link.rate_mbps for link in fabric.links if link.kind is kind}) <= 1 for kind in LinkKind)
    plain_ = fabric.kind in (FabricKind.IDEAL, FabricKind.RAIL_ONLY) and fabric.spec.uplinks == 1
    return plain_ and uniform and kinds <= {SwitchKind.GPU, SwitchKind.NVSWITCH, SwitchKind.RAIL}


def _is_whole_exchange(call: Call, ranks: int) -> bool:
    """Whether a call is a direct all-to-all of all ranks, in order, with equal sizes."""
    family = call.family
    return (
        call.collective == ALL_TO_ALL
        and find_algorithm(ALL_TO_ALL, call.algorithm)[0] == DIRECT
        and not call.splits
        and not call.posted
        and call.size_bytes % ranks == 0
        and family.group_count == 1
        and family.group_size == ranks
        and np.array_equal(members_of(family)[0], np.arange(ranks))
    )


def _turned(fabric: Fabric, call: Call, paths: PairPaths) -> Templates:
    """The flows of one domain, each for those that it is turned into; phase p shifts by p + 1 ranks."""
    ranks = len(fabric.gpus)
    own = 1 if fabric.kind is FabricKind.IDEAL else fabric.spec.rails
    src = np.tile(np.arange(own, dtype=np.int64), ranks - 1)
    dst = (src + np.repeat(np.arange(1, ranks), own)) % ranks
    rows = pair_links(fabric, link_positions(fabric), paths, src, dst)
    kinds = list(LinkKind)
    rank_of = {gpu.switch_id: rank % own for rank, gpu in enumerate(fabric.gpus)}
    of_link = np.array([kinds.index(link.kind) * own + rank_of.get(link.a, 0) for link in fabric.links])
    link_class = dense(np.stack((2 * of_link, 2 * of_link + 1), axis=1).ravel())
    crossed = crossings(rows)
    first = np.concatenate(([0], np.cumsum((rows != NO_LINK).sum(axis=1)))).astype(np.int64)
    phases = tuple(np.arange(ranks - 1, dtype=np.int64)[:, None] * own + np.arange(own))
    sizes = np.full(len(src), call.size_bytes // ranks, dtype=np.int64)
    return Templates(
        first, link_class[crossed.link], np.ones(len(crossed.link)), sizes, {(call, 0): phases},
        {call.family: {0: (0,)}}, {(call, 0): (0,)}, {call: ranks * (ranks - 1)}, link_class, first_members(link_class),
    )  # fmt: skip
