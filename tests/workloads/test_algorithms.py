from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.executor import Buffers, execute
from workloads.algorithms import (
    ALGORITHMS,
    BULK,
    CHUNKS,
    STEPWISE,
    TREE,
    Send,
    binary_tree,
    double_binary_tree,
    flows,
    sends,
    shared,
    uneven_flows,
)
from workloads.bandwidth import BUS_FACTORS
from workloads.errors import CollectiveError

FAST = settings(derandomize=True, deadline=None, max_examples=60)
EVERY = [(collective, name) for collective, known in ALGORITHMS.items() for name in known]
SIZES = [2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17]


def locals_of(collective: str, name: str, n: int) -> list[int]:
    """All cuts of n ranks into domains, for algorithms that care; a ring takes any."""
    if name == "ring":
        return sorted({1, 2, 3, n})
    return [k for k in range(1, n + 1) if n % k == 0] if ALGORITHMS[collective][name].needs_local else [1]


def start_and_end(collective: str, n: int, blocks: int, rng: random.Random) -> tuple[Buffers, Buffers]:
    """What every position holds before, and what it must hold after; blocks that don't matter are left out."""
    own = [{block: rng.randrange(1, 1 << 40) for block in range(blocks)} for _ in range(n)]
    total = {block: sum(buffer[block] for buffer in own) for block in range(blocks)}
    if collective == "all-reduce":
        return own, [dict(total) for _ in range(n)]
    if collective == "reduce-scatter":
        return own, [{rank: total[rank]} for rank in range(n)]
    if collective == "reduce":
        return own, [dict(total)] + [{} for _ in range(n - 1)]
    if collective == "all-gather":
        return [{rank: own[rank][rank]} for rank in range(n)], [
            {block: own[block][block] for block in range(n)} for _ in range(n)
        ]
    if collective == "gather":
        return [{rank: own[rank][rank]} for rank in range(n)], [{block: own[block][block] for block in range(n)}]
    if collective == "scatter":
        return [own[0]] + [{} for _ in range(n - 1)], [{rank: own[0][rank]} for rank in range(n)]
    if collective in ("broadcast", "send-recv"):
        return [own[0]] + [{} for _ in range(n - 1)], [dict(own[0]) for _ in range(n)]
    assert collective == "all-to-all"
    value = {(src, dst): own[src][src * n + dst] for src in range(n) for dst in range(n)}
    before = [{src * n + dst: value[src, dst] for dst in range(n)} for src in range(n)]
    return before, [{src * n + dst: value[src, dst] for src in range(n)} for dst in range(n)]


@pytest.mark.parametrize(("collective", "name"), EVERY)
def test_every_algorithm_carries_the_right_numbers(collective: str, name: str) -> None:
    rng = random.Random(5)
    for n in [2] if collective == "send-recv" else SIZES:
        for local in locals_of(collective, name, n):
            for chunks in (1, 3):
                made = sends(collective, name, n, local, chunks)
                before, wanted = start_and_end(collective, n, ALGORITHMS[collective][name].blocks(n, chunks), rng)
                for _ in range(3):
                    after = execute(made, before, rng)
                    for rank, numbers in enumerate(wanted):
                        found = {block: after[rank].get(block) for block in numbers}
                        assert found == numbers, f"{n} ranks, {local} a domain, rank {rank}"


@pytest.mark.parametrize(("collective", "name"), [pair for pair in EVERY if pair[0] != "send-recv"])
def test_the_executor_sees_a_missing_dependency_and_a_missing_send(collective: str, name: str) -> None:
    """Without it the proof above would prove nothing."""
    rng = random.Random(1)
    n, local = 6, 3
    made = sends(collective, name, n, local, 1)
    before, wanted = start_and_end(collective, n, ALGORITHMS[collective][name].blocks(n, 1), rng)

    def right(made: Sequence[Send]) -> bool:
        try:
            after = execute(made, before, rng)
        except KeyError:
            return False
        return all({b: after[rank].get(b) for b in numbers} == numbers for rank, numbers in enumerate(wanted))

    assert right(made)
    if any(made[one].after for one in range(len(made))) and name != "direct" and collective != "all-to-all":
        assert not all(right([replace(send, after=()) for send in made]) for _ in range(20))
    cut = [replace(send, blocks=send.blocks[:0]) if at == len(made) // 2 else send for at, send in enumerate(made)]
    assert not right(cut)


@pytest.mark.parametrize(("collective", "name"), EVERY)
def test_bulk_and_stepwise_put_the_same_bytes_on_every_edge(collective: str, name: str) -> None:
    for n in [2] if collective == "send-recv" else SIZES:
        for local in locals_of(collective, name, n):
            size_bytes = 16 * n * CHUNKS + 2 * CHUNKS
            totals = []
            for form in (BULK, STEPWISE):
                edges: Counter[tuple[int, int, str]] = Counter()
                for flow in flows(collective, name, n, size_bytes, local, form).flows:
                    edges[flow.src, flow.dst, flow.operation] += flow.size_bytes
                totals.append(edges)
            assert totals[0] == totals[1]


@FAST
@given(st.integers(2, 24), st.integers(1, 10**6), st.data())
def test_bytes_are_those_of_the_closed_forms(n: int, scale: int, data: st.DataObject) -> None:
    """A rank sends its bus factor times the size of nccl-tests, on average over the ranks."""
    size_bytes = n * n * scale
    for collective, name in EVERY:
        if collective == "send-recv":
            continue
        local = data.draw(st.sampled_from(locals_of(collective, name, n)))
        total = sum(flow.size_bytes for flow in flows(collective, name, n, size_bytes, local).flows)
        factor = BUS_FACTORS[collective].factor(n)
        if collective in ("broadcast", "reduce"):
            assert total == (n - 1) * size_bytes  # every rank but one receives, or sends, the whole
        elif collective in ("gather", "scatter"):
            assert total == round(factor * size_bytes)  # of the root alone
        elif name.startswith("two-phase"):
            domains = n // local
            # A byte crosses the domain if its rail differs, and the rail if its domain differs.
            assert total == n * size_bytes * (local - 1) // local + n * size_bytes * (domains - 1) // domains
        else:
            assert total == round(n * factor * size_bytes)


def test_the_hierarchical_all_reduce_is_that_of_its_parts() -> None:
    """In the domain 2(K-1)/K of the buffer per rank, on the rail 2(D-1)/D of a K-th of it."""
    domains, local, size_bytes = 4, 8, 4 * 8 * 1000
    inside: Counter[int] = Counter()
    rail: Counter[int] = Counter()
    for flow in flows("all-reduce", "hierarchical", domains * local, size_bytes, local).flows:
        if flow.src // local == flow.dst // local:
            inside[flow.src] += flow.size_bytes
        else:
            assert flow.src % local == flow.dst % local, "it leaves its rail"
            rail[flow.src] += flow.size_bytes
    assert set(inside.values()) == {2 * (local - 1) * size_bytes // local}
    assert set(rail.values()) == {2 * (domains - 1) * size_bytes // domains // local}


def test_a_ring_keeps_to_its_rails() -> None:
    """With an even number of domains no edge changes both domain and rail."""
    for collective in ("all-reduce", "all-gather", "reduce-scatter"):
        for flow in flows(collective, "ring", 24, 24_000, 4).flows:
            same_domain, same_rail = flow.src // 4 == flow.dst // 4, flow.src % 4 == flow.dst % 4
            assert same_domain != same_rail


def test_the_two_phase_all_to_all_stays_on_nvlink_and_rails() -> None:
    domains, local, size_bytes = 3, 4, 12 * 100
    made = flows("all-to-all", "two-phase", domains * local, size_bytes, local).flows
    for flow in made:
        same_domain = flow.src // local == flow.dst // local
        assert same_domain == (flow.operation == "shuffle in the domain")
        assert same_domain or flow.src % local == flow.dst % local
    shuffled = sum(flow.size_bytes for flow in made if flow.operation == "shuffle in the domain")
    # The overhead of changing rails: (K-1)/K of all bytes pass the domain once more.
    assert shuffled == domains * local * size_bytes * (local - 1) // local


@pytest.mark.parametrize("n", range(2, 70))
def test_double_binary_trees(n: int) -> None:
    depth_limit = 2 * n.bit_length()
    inner = []
    for parents in double_binary_tree(n):
        assert parents.count(-1) == 1
        children = Counter(parent for parent in parents if parent >= 0)
        assert max(children.values()) <= 2
        inner.append(set(children))
        for position in range(n):
            above, depth = position, 0
            while parents[above] >= 0:
                above, depth = parents[above], depth + 1
            assert depth <= depth_limit, "not a tree"
    assert inner[0] & inner[1] <= ({0} if n % 2 else set())


def test_a_binary_tree_as_in_the_paper() -> None:
    assert binary_tree(8) == [-1, 2, 4, 2, 0, 6, 4, 6]


@FAST
@given(st.integers(2, 9), st.data())
def test_uneven_all_to_all_moves_every_part(n: int, data: st.DataObject) -> None:
    row = st.tuples(*[st.sampled_from([0, 0, 1, 7, 1000])] * n)
    splits = data.draw(st.tuples(*[row] * n))
    for form in (BULK, STEPWISE):
        moved: Counter[tuple[int, int]] = Counter()
        for flow in uneven_flows(splits, None, 1, form).flows:
            moved[flow.src, flow.dst] += flow.size_bytes
        assert moved == {(a, b): splits[a][b] for a in range(n) for b in range(n) if a != b and splits[a][b]}
    for local in locals_of("all-to-all", "two-phase", n):
        for form in (BULK, STEPWISE):
            made = uneven_flows(splits, "two-phase", local, form).flows
            assert all(flow.size_bytes for flow in made)
            received = Counter(dict.fromkeys(range(n), 0))
            for flow in made:
                if flow.operation == "all-to-all on the rail":
                    received[flow.dst] += flow.size_bytes
            for rank in range(n):
                far = sum(splits[src][rank] for src in range(n) if src // local != rank // local)
                assert received[rank] == far


@FAST
@given(st.sampled_from([pair for pair in EVERY if pair[0] != "send-recv"]), st.integers(2, 13), st.data())
def test_who_must_enter_and_who_may_leave(pair: tuple[str, str], n: int, data: st.DataObject) -> None:
    """Both ends of a flow have entered before it; a rank has left when no flow of its own is still to end."""
    collective, name = pair
    local = data.draw(st.sampled_from(locals_of(collective, name, n)))
    form = data.draw(st.sampled_from([BULK, STEPWISE]))
    made = flows(collective, name, n, 1000 * n, local, form)
    entered: list[set[int]] = []
    cone: list[set[int]] = []
    for number, flow in enumerate(made.flows):
        assert all(before < number for before in flow.after)
        ranks = set(flow.enters).union(*(entered[before] for before in flow.after))
        assert {flow.src, flow.dst} <= ranks
        entered.append(ranks)
        cone.append({number}.union(*(cone[before] for before in flow.after)))
    for rank, ends in enumerate(made.exits):
        done = set().union(*(cone[end] for end in ends))
        assert {number for number, flow in enumerate(made.flows) if rank in (flow.src, flow.dst)} <= done


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("gossip", None, 4, 100), "unknown collective 'gossip'; the collectives are all-reduce"),
        (("all-reduce", "star", 4, 100), "no all-reduce is made by 'star'; it is made by ring, double binary tree"),
        (("all-reduce", "hierarchical", 6, 100, 4), "6 ranks cannot be cut into domains of 4"),
        (("all-gather", None, 1, 100), "at least 2 ranks"),
        (("all-gather", None, 7, 6), "at least 7 bytes"),
        (("all-reduce", TREE, 7, 1), "at least 2 bytes"),
        (("send-recv", None, 3, 6), "between 2 ranks"),
        (("all-gather", None, 3, 6, 1, "gas"), "unknown form 'gas'; the forms are bulk, stepwise"),
    ],
)
def test_what_cannot_be_made_is_refused(args: tuple[object, ...], words: str) -> None:
    with pytest.raises(CollectiveError, match=words):
        flows(*args)  # type: ignore[arg-type]


def test_bad_splits_are_refused() -> None:
    for splits in (((1, 2), (3,)), ((1, -2), (3, 4))):
        with pytest.raises(CollectiveError, match="2 rows of 2 sizes"):
            uneven_flows(splits)


@FAST
@given(st.integers(0, 10**15), st.lists(st.floats(0, 1e6), min_size=1, max_size=40).filter(any))
def test_shares_add_up(total: int, weights: list[float]) -> None:
    parts = shared(total, weights)
    assert sum(parts) == total
    whole = sum(weights)
    for part, weight in zip(parts, weights, strict=True):
        assert part >= 0
        assert weight or not part
        assert abs(part - total * weight / whole) <= 1 + 1e-9 * total
