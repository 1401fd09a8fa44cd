"""The algorithms of collectives, as sends between positions 0 to n-1 of one group.

An algorithm is one function that tells a *plan* its sends. The plan decides the form. The stepwise form keeps every
send with the blocks of the buffer that it carries, so that an executor can carry numbers in place of bytes and prove
the algorithm. The bulk form joins all sends of a stage over the same edge into one flow, with a barrier of the group
after each stage: what a pipelined ring or tree looks like on the wire once it is under way.

A buffer is cut into blocks. A send waits for all that its source must have received into these blocks before, and for
the previous send over the same edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from typing import Protocol

from workloads.errors import CollectiveError

ALL_REDUCE = "all-reduce"
ALL_GATHER = "all-gather"
REDUCE_SCATTER = "reduce-scatter"
BROADCAST = "broadcast"
REDUCE = "reduce"
ALL_TO_ALL = "all-to-all"
GATHER = "gather"
SCATTER = "scatter"
SEND_RECV = "send-recv"

RING = "ring"
TREE = "double binary tree"
HIERARCHICAL = "hierarchical"
DIRECT = "direct"
TWO_PHASE = "two-phase"
RAIL_FIRST = "two-phase, rail first"

BULK = "bulk"
STEPWISE = "stepwise"
FORMS = (BULK, STEPWISE)

CHUNKS = 8
"""Chunks into which chains and trees cut the buffer (each tree its half) in the stepwise form, to fill the pipeline."""


@dataclass(frozen=True, slots=True)
class Send:
    """One send of the stepwise form. ``blocks`` are added to those of the receiver if ``reduces``, else stored there.

    ``after`` holds positions in the list of sends. ``enters`` are the ends of this send that no send in ``after``
    touches: they must have entered the collective before it.
    """

    src: int
    dst: int
    blocks: range
    reduces: bool
    after: tuple[int, ...]
    enters: tuple[int, ...]
    stage: int
    operation: str


@dataclass(frozen=True, slots=True)
class Flow:
    """One flow of ``size_bytes`` between two positions of a group; ``after`` and ``enters`` as for :class:`Send`."""

    src: int
    dst: int
    size_bytes: int
    after: tuple[int, ...]
    enters: tuple[int, ...]
    phase: int
    operation: str


@dataclass(frozen=True)
class Flows:
    """A collective of one group: its flows, and for every position those after which it has left the collective."""

    flows: tuple[Flow, ...]
    exits: tuple[tuple[int, ...], ...]

    @property
    def starts_at_once(self) -> bool:
        """Whether a position that must enter a send never also waits for another send of the collective."""
        return not any(flow.enters and flow.after for flow in self.flows)


class _Plan(Protocol):
    def stage(self, operation: str) -> None:
        """Begin the next stage."""

    def send(self, src: int, dst: int, blocks: range, *, reduces: bool = False, in_turn: bool = False) -> None:
        """Send blocks; ``in_turn``: not before the last send of the same source to anywhere."""

    def ring(self, members: Sequence[int], part: Callable[[int], range], first: int, reduces: bool) -> None:
        """n-1 steps around a ring: in step s the i-th member sends part ``i + first - s`` to the next one."""

    @property
    def chunks(self) -> int:
        """Chunks to pipeline."""


class StepwisePlan:
    """Keeps every send, with what it waits for."""

    def __init__(self, chunks: int = CHUNKS) -> None:
        self.chunks = chunks
        self.sends: list[Send] = []
        self._stage, self._operation = -1, ""
        self._writers: dict[tuple[int, int], list[int]] = {}
        self._on_edge: dict[tuple[int, int], int] = {}
        self._by_source: dict[int, int] = {}

    def stage(self, operation: str) -> None:
        """Begin the next stage."""
        self._stage, self._operation = self._stage + 1, operation

    def send(self, src: int, dst: int, blocks: range, *, reduces: bool = False, in_turn: bool = False) -> None:
        """Add a send, waiting for the last writes of its blocks at the source and for the edge."""
        needed: set[int] = set()
        for block in blocks:
            needed.update(self._writers.get((src, block), ()))
        if (src, dst) in self._on_edge:
            needed.add(self._on_edge[src, dst])
        if in_turn and src in self._by_source:
            needed.add(self._by_source[src])
        touched = {end for one in needed for end in (self.sends[one].src, self.sends[one].dst)}
        enters = tuple(end for end in (src, dst) if end not in touched)
        number = len(self.sends)
        self.sends.append(Send(src, dst, blocks, reduces, tuple(sorted(needed)), enters, self._stage, self._operation))
        self._on_edge[src, dst] = self._by_source[src] = number
        for block in blocks:
            if reduces:
                self._writers.setdefault((dst, block), []).append(number)
            else:
                self._writers[dst, block] = [number]

    def ring(self, members: Sequence[int], part: Callable[[int], range], first: int, reduces: bool) -> None:
        """Add the n-1 steps of a ring."""
        n = len(members)
        for step in range(n - 1):
            for index, src in enumerate(members):
                self.send(src, members[(index + 1) % n], part((index + first - step) % n), reduces=reduces)


class BulkPlan:
    """Adds up the bytes per edge and stage."""

    chunks = 1

    def __init__(self, block_bytes: Sequence[int]) -> None:
        self._block_bytes = block_bytes
        self._upto = [0, *accumulate(block_bytes)]
        self.stages: list[tuple[str, dict[tuple[int, int], int]]] = []

    def stage(self, operation: str) -> None:
        """Begin the next stage."""
        self.stages.append((operation, {}))

    def send(self, src: int, dst: int, blocks: range, *, reduces: bool = False, in_turn: bool = False) -> None:
        """Add the bytes of the blocks to the edge."""
        edges = self.stages[-1][1]
        edges[src, dst] = edges.get((src, dst), 0) + self._size(blocks)

    def ring(self, members: Sequence[int], part: Callable[[int], range], first: int, reduces: bool) -> None:
        """Add the bytes of a ring: every member sends all parts but one."""
        n = len(members)
        if n < 2:
            return
        sizes = [self._size(part(index)) for index in range(n)]
        whole = sum(sizes)
        edges = self.stages[-1][1]
        for index, src in enumerate(members):
            edge = src, members[(index + 1) % n]
            edges[edge] = edges.get(edge, 0) + whole - sizes[(index + first + 1) % n]

    def _size(self, blocks: range) -> int:
        if blocks.step == 1:
            return self._upto[blocks.stop] - self._upto[blocks.start]
        return sum(self._block_bytes[block] for block in blocks)


def _one(block: int) -> range:
    return range(block, block + 1)


def _aligned(n: int, local: int) -> list[int]:
    """The order of a ring that keeps to its rails: in every second domain of ``local`` positions it runs backwards."""
    domains = [range(first, min(first + local, n)) for first in range(0, n, local)]
    return [one for turn, domain in enumerate(domains) for one in (reversed(domain) if turn % 2 else domain)]


def _ring_all_reduce(plan: _Plan, n: int, local: int) -> None:
    members = _aligned(n, local)
    plan.stage(REDUCE_SCATTER)
    plan.ring(members, _one, 0, True)  # the i-th member ends with the sum of part i+1
    plan.stage(ALL_GATHER)
    plan.ring(members, _one, 1, False)


def _ring_reduce_scatter(plan: _Plan, n: int, local: int) -> None:
    members = _aligned(n, local)
    plan.stage(REDUCE_SCATTER)
    plan.ring(members, lambda part: _one(members[part]), -1, True)


def _ring_all_gather(plan: _Plan, n: int, local: int) -> None:
    members = _aligned(n, local)
    plan.stage(ALL_GATHER)
    plan.ring(members, lambda part: _one(members[part]), 0, False)


def _direct_reduce_scatter(plan: _Plan, n: int, local: int) -> None:
    plan.stage(REDUCE_SCATTER)
    for shift in range(1, n):
        for src in range(n):
            plan.send(src, (src + shift) % n, _one((src + shift) % n), reduces=True)


def _direct_all_gather(plan: _Plan, n: int, local: int) -> None:
    plan.stage(ALL_GATHER)
    for shift in range(1, n):
        for src in range(n):
            plan.send(src, (src + shift) % n, _one(src))


def _direct_all_reduce(plan: _Plan, n: int, local: int) -> None:
    _direct_reduce_scatter(plan, n, local)
    _direct_all_gather(plan, n, local)


def _hierarchical_all_reduce(plan: _Plan, n: int, local: int) -> None:
    """Position = domain * local + rail. Rail r reduces the r-th share of the buffer, cut into one part per domain."""
    domains = n // local
    plan.stage(f"{REDUCE_SCATTER} in the domain")
    for domain in range(domains):
        plan.ring(_domain(domain, local), partial(_share, domains), -1, True)
    plan.stage(f"{REDUCE_SCATTER} on the rail")
    for rail in range(local):
        plan.ring(range(rail, n, local), partial(_part_of_share, domains, rail), -1, True)
    plan.stage(f"{ALL_GATHER} on the rail")
    for rail in range(local):
        plan.ring(range(rail, n, local), partial(_part_of_share, domains, rail), 0, False)
    plan.stage(f"{ALL_GATHER} in the domain")
    for domain in range(domains):
        plan.ring(_domain(domain, local), partial(_share, domains), 0, False)


def _domain(domain: int, local: int) -> range:
    return range(domain * local, (domain + 1) * local)


def _share(domains: int, rail: int) -> range:
    return range(rail * domains, (rail + 1) * domains)


def _part_of_share(domains: int, rail: int, domain: int) -> range:
    return _one(rail * domains + domain)


def binary_tree(n: int) -> list[int]:
    """Parent of every position of a binary tree over 0 to n-1 whose odd positions are leaves; -1 for its root, 0.

    The height of a position is the number of its trailing zero bits, so that an in-order walk visits them in order
    (Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, 2009).
    """
    parents = [-1] * n
    for position in range(1, n):
        low = position & -position
        above = (position ^ low) | (low << 1)
        parents[position] = above if above < n else position ^ low
    return parents


def double_binary_tree(n: int) -> tuple[list[int], list[int]]:
    """Two trees, each as parents by position, in which an inner position of one is a leaf of the other.

    The second is the first one mirrored; with an odd n, shifted by one, where position 0 may be inner in both.
    """
    first = binary_tree(n)
    place = [n - 1 - position for position in range(n)] if n % 2 == 0 else [(position + 1) % n for position in range(n)]
    second = [-1] * n
    for position, parent in enumerate(first):
        second[place[position]] = place[parent] if parent >= 0 else -1
    return first, second


def _tree_all_reduce(plan: _Plan, n: int, local: int) -> None:
    trees = [(parents, _upwards(parents)) for parents in double_binary_tree(n)]
    chunks = plan.chunks
    plan.stage(REDUCE)
    for chunk in range(chunks):
        for tree, (parents, order) in enumerate(trees):
            for child in order:
                plan.send(child, parents[child], _tree_blocks(plan, tree, chunk), reduces=True)
    plan.stage(BROADCAST)
    for chunk in range(chunks):
        for tree, (parents, order) in enumerate(trees):
            for child in reversed(order):
                plan.send(parents[child], child, _tree_blocks(plan, tree, chunk))


def _tree_blocks(plan: _Plan, tree: int, chunk: int) -> range:
    return _one(tree * plan.chunks + chunk)


def _upwards(parents: Sequence[int]) -> list[int]:
    """All positions but the root, children before their parents."""
    depth = [0] * len(parents)
    for position in range(len(parents)):
        above = parents[position]
        while above >= 0:
            depth[position] += 1
            above = parents[above]
    return sorted((position for position, parent in enumerate(parents) if parent >= 0), key=lambda one: -depth[one])


def _chain_broadcast(plan: _Plan, n: int, local: int) -> None:
    plan.stage(BROADCAST)
    for chunk in range(plan.chunks):
        for src, dst in pairwise(_aligned(n, local)):
            plan.send(src, dst, _one(chunk))


def _chain_reduce(plan: _Plan, n: int, local: int) -> None:
    members = _aligned(n, local)
    plan.stage(REDUCE)
    for chunk in range(plan.chunks):
        for src, dst in pairwise((*members[1:], members[0])):
            plan.send(src, dst, _one(chunk), reduces=True)


def _direct_all_to_all(plan: _Plan, n: int, local: int) -> None:
    """Block ``origin * n + destination``. Every rank sends to one other at a time."""
    for shift in range(1, n):
        plan.stage(ALL_TO_ALL)
        for src in range(n):
            dst = (src + shift) % n
            plan.send(src, dst, _one(src * n + dst), in_turn=True)


def _two_phase_all_to_all(plan: _Plan, n: int, local: int) -> None:
    """Position = domain * local + rail: first to the right rail inside the domain, then over that rail."""
    domains = n // local
    for shift in range(1, local):
        plan.stage("shuffle in the domain")
        for src in range(n):
            rail = (src + shift) % local
            dst = src - src % local + rail
            plan.send(src, dst, range(src * n + rail, (src + 1) * n, local), in_turn=True)
    for shift in range(1, domains):
        plan.stage(f"{ALL_TO_ALL} on the rail")
        for src in range(n):
            dst = (src + shift * local) % n
            start = (src - src % local) * n + dst
            plan.send(src, dst, range(start, start + local * n, n), in_turn=True)


def _rail_first_all_to_all(plan: _Plan, n: int, local: int) -> None:
    """Position = domain * local + rail: first over the own rail to the right domain, then to the right rail in it."""
    for shift in range(1, n // local):
        plan.stage(f"{ALL_TO_ALL} on the rail")
        for src in range(n):
            dst = (src + shift * local) % n
            start = src * n + dst - dst % local
            plan.send(src, dst, range(start, start + local), in_turn=True)
    for shift in range(1, local):
        plan.stage("shuffle in the domain")
        for src in range(n):
            rail = src % local
            dst = src - rail + (rail + shift) % local
            plan.send(src, dst, range(rail * n + dst, n * n, local * n), in_turn=True)


def _direct_gather(plan: _Plan, n: int, local: int) -> None:
    plan.stage(GATHER)
    for src in range(1, n):
        plan.send(src, 0, _one(src))


def _direct_scatter(plan: _Plan, n: int, local: int) -> None:
    plan.stage(SCATTER)
    for dst in range(1, n):
        plan.send(0, dst, _one(dst))


def _send_recv(plan: _Plan, n: int, local: int) -> None:
    plan.stage(SEND_RECV)
    plan.send(0, 1, _one(0))


@dataclass(frozen=True)
class Algorithm:
    """One way to make a collective.

    ``blocks`` gives the number of blocks for n ranks and a number of chunks. ``bulk_name`` is what schedules call the
    bulk form. ``needs_local``: it needs to know how many consecutive positions share a domain.
    """

    run: Callable[[_Plan, int, int], None]
    blocks: Callable[[int, int], int]
    bulk_name: str
    needs_local: bool = False


def _n(n: int, chunks: int) -> int:
    return n


def _chunks(n: int, chunks: int) -> int:
    return chunks


def _two_halves(n: int, chunks: int) -> int:
    return 2 * chunks


def _pairs(n: int, chunks: int) -> int:
    return n * n


def _whole(n: int, chunks: int) -> int:
    return 1


ALGORITHMS: dict[str, dict[str, Algorithm]] = {
    ALL_REDUCE: {
        RING: Algorithm(_ring_all_reduce, _n, "pipelined ring"),
        TREE: Algorithm(_tree_all_reduce, _two_halves, "pipelined double binary tree"),
        HIERARCHICAL: Algorithm(_hierarchical_all_reduce, _n, "hierarchical, pipelined rings", needs_local=True),
        DIRECT: Algorithm(_direct_all_reduce, _n, "direct"),
    },
    ALL_GATHER: {
        RING: Algorithm(_ring_all_gather, _n, "pipelined ring"),
        DIRECT: Algorithm(_direct_all_gather, _n, "direct"),
    },
    REDUCE_SCATTER: {
        RING: Algorithm(_ring_reduce_scatter, _n, "pipelined ring"),
        DIRECT: Algorithm(_direct_reduce_scatter, _n, "direct"),
    },
    BROADCAST: {RING: Algorithm(_chain_broadcast, _chunks, "pipelined ring")},
    REDUCE: {RING: Algorithm(_chain_reduce, _chunks, "pipelined ring")},
    ALL_TO_ALL: {
        DIRECT: Algorithm(_direct_all_to_all, _pairs, "shifted phases"),
        TWO_PHASE: Algorithm(_two_phase_all_to_all, _pairs, "two-phase, shifted phases", needs_local=True),
        RAIL_FIRST: Algorithm(
            _rail_first_all_to_all, _pairs, "two-phase, rail first, shifted phases", needs_local=True
        ),
    },
    GATHER: {DIRECT: Algorithm(_direct_gather, _n, "direct")},
    SCATTER: {DIRECT: Algorithm(_direct_scatter, _n, "direct")},
    SEND_RECV: {DIRECT: Algorithm(_send_recv, _whole, "direct")},
}
"""By collective, the algorithms that make it; the first is the default. The root of a rooted one is position 0."""

SIZE_MEANINGS: dict[str, str] = {
    ALL_REDUCE: "buffer that every rank holds",
    ALL_GATHER: "receive buffer of a rank, n parts",
    REDUCE_SCATTER: "send buffer of a rank, n parts",
    BROADCAST: "buffer of the root",
    REDUCE: "buffer that every rank holds",
    ALL_TO_ALL: "send buffer of one rank; each rank sends 1/n of it to each of the n-1 others and keeps 1/n",
    GATHER: "receive buffer of the root, n parts; it keeps its own",
    SCATTER: "send buffer of the root, n parts; it keeps its own",
    SEND_RECV: "buffer that is sent",
}
"""What the size of a collective is, as nccl-tests counts it."""


def find_algorithm(collective: str, name: str | None) -> tuple[str, Algorithm]:
    """The algorithm of that name, or the default one; raises CollectiveError naming those that there are."""
    if collective not in ALGORITHMS:
        raise CollectiveError(f"unknown collective '{collective}'; the collectives are {', '.join(ALGORITHMS)}")
    known = ALGORITHMS[collective]
    name = next(iter(known)) if name is None else name
    if name not in known:
        raise CollectiveError(f"no {collective} is made by '{name}'; it is made by {', '.join(known)}")
    return name, known[name]


def split(size_bytes: int, parts: int) -> list[int]:
    """``size_bytes`` in ``parts`` whole numbers that differ by at most one."""
    each, rest = divmod(size_bytes, parts)
    return [each + (part < rest) for part in range(parts)]


def shared(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """``total`` in whole parts that are in proportion to ``weights`` and add up to it."""
    whole = sum(weights)
    parts = []
    given = 0
    passed: float = 0
    last = max((place for place, weight in enumerate(weights) if weight), default=-1)
    for place, weight in enumerate(weights):
        passed += weight
        upto = total if place >= last else min(total, int(total * passed // whole))
        parts.append(upto - given)
        given = upto
    return tuple(parts)


def check_shape(collective: str, algorithm: str, n: int, size_bytes: int, local: int) -> None:
    """Raise CollectiveError unless the algorithm can be made by n ranks with that size.

    ``local`` is the number of consecutive positions that share a domain.
    """
    _, found = find_algorithm(collective, algorithm)
    if collective == SEND_RECV and n != 2:
        raise CollectiveError(f"a send-recv is between 2 ranks, source and destination; this group has {n}")
    if n < 2:
        raise CollectiveError(f"a collective needs at least 2 ranks per group; these groups have {n}")
    if local < 1 or (found.needs_local and n % local):
        raise CollectiveError(
            f"{algorithm} {collective}: a group of {n} ranks cannot be cut into domains of {local}; "
            "it needs equally many ranks of every domain"
        )
    least = 1 if collective in (BROADCAST, REDUCE, SEND_RECV) else 2 if algorithm == TREE else n
    if size_bytes < least:
        raise CollectiveError(
            f"{size_bytes} bytes cannot be cut into {least} parts, one per rank; "
            f"the size must be at least {least} bytes"
        )


def block_sizes(collective: str, algorithm: str, n: int, size_bytes: int, chunks: int) -> list[int]:
    """Bytes of every block of the buffer."""
    if collective == ALL_TO_ALL:
        return split(size_bytes, n) * n
    if algorithm == TREE:
        return [part for half in split(size_bytes, 2) for part in split(half, chunks)]
    return split(size_bytes, ALGORITHMS[collective][algorithm].blocks(n, chunks))


@lru_cache(maxsize=8)
def sends(collective: str, algorithm: str, n: int, local: int = 1, chunks: int = CHUNKS) -> tuple[Send, ...]:
    """The sends of the stepwise form among n ranks."""
    plan = StepwisePlan(chunks)
    ALGORITHMS[collective][algorithm].run(plan, n, local)
    return tuple(plan.sends)


@lru_cache(maxsize=64)
def flows(collective: str, algorithm: str | None, n: int, size_bytes: int, local: int = 1, form: str = BULK) -> Flows:
    """The flows of a collective of ``size_bytes`` (in nccl-tests' sense) among positions 0 to n-1.

    ``local`` is the number of consecutive positions that share a domain: algorithms with a phase in the domain need
    it, and rings keep to their rails by it. Raises CollectiveError for an unknown collective, algorithm or form, and
    for sizes and groups that it can't be made with.
    """
    name, found = find_algorithm(collective, algorithm)
    check_shape(collective, name, n, size_bytes, local)
    if form == BULK:
        return _bulk(found, n, local, block_sizes(collective, name, n, size_bytes, 1))
    if form != STEPWISE:
        raise CollectiveError(f"unknown form '{form}'; the forms are {', '.join(FORMS)}")
    chunks = max(1, min(CHUNKS, size_bytes // 2 if name == TREE else size_bytes))
    return _stepwise(sends(collective, name, n, local, chunks), n, block_sizes(collective, name, n, size_bytes, chunks))


@lru_cache(maxsize=64)
def uneven_flows(splits: tuple[tuple[int, ...], ...], algorithm: str | None = None, local: int = 1, form: str = BULK
                 ) -> Flows:  # fmt: skip
    """The flows of an all-to-all in which position i sends ``splits[i][j]`` bytes to position j; 0 is no flow.

    Raises CollectiveError as :func:`flows` does, and for splits that are not square or negative.
    """
    n = len(splits)
    name, found = find_algorithm(ALL_TO_ALL, algorithm)
    for row in splits:
        if len(row) != n or min(row) < 0:
            raise CollectiveError(f"the splits of an all-to-all of {n} ranks must be {n} rows of {n} sizes, 0 or more")
    check_shape(ALL_TO_ALL, name, n, n, local)
    block_bytes = [size for row in splits for size in row]
    if form == BULK:
        return _bulk(found, n, local, block_bytes)
    if form != STEPWISE:
        raise CollectiveError(f"unknown form '{form}'; the forms are {', '.join(FORMS)}")
    return _stepwise(sends(ALL_TO_ALL, name, n, local), n, block_bytes)


def _bulk(algorithm: Algorithm, n: int, local: int, block_bytes: Sequence[int]) -> Flows:
    plan = BulkPlan(block_bytes)
    algorithm.run(plan, n, local)
    made: list[Flow] = []
    everyone = tuple(range(n))
    before: tuple[int, ...] = ()
    phase = 0
    for operation, edges in plan.stages:
        first = len(made)
        enters = () if before else everyone
        made.extend(
            Flow(src, dst, size, before, enters, phase, operation) for (src, dst), size in edges.items() if size
        )
        if len(made) > first:
            before = tuple(range(first, len(made)))
            phase += 1
    return Flows(tuple(made), (before,) * n)


def _stepwise(steps: Sequence[Send], n: int, block_bytes: Sequence[int]) -> Flows:
    made: list[Flow] = []
    # For every send the flows that stand for it: itself, or, where it carries nothing, what it waits for.
    stands: list[tuple[int, ...]] = []
    passed_enters: dict[int, tuple[int, ...]] = {}
    for number, step in enumerate(steps):
        size = sum(block_bytes[block] for block in step.blocks)
        after = tuple(sorted({one for before in step.after for one in stands[before]}))
        enters = step.enters
        for before in step.after:
            if before in passed_enters:
                enters = tuple(dict.fromkeys((*enters, *passed_enters[before])))
        if not size:
            stands.append(after)
            passed_enters[number] = enters
            continue
        stands.append((len(made),))
        made.append(Flow(step.src, step.dst, size, after, enters, step.stage, step.operation))
    return Flows(tuple(made), _exits(made, n))


def _exits(made: Sequence[Flow], n: int) -> tuple[tuple[int, ...], ...]:
    """For every position its flows that none of its later flows waits for."""
    open_ends: list[dict[int, None]] = [{} for _ in range(n)]
    for number, flow in enumerate(made):
        for end in (flow.src, flow.dst):
            ends = open_ends[end]
            for before in flow.after:
                ends.pop(before, None)
            ends[number] = None
    return tuple(tuple(ends) for ends in open_ends)
