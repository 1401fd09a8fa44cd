import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.builders import build
from topologies.model import FabricKind, FabricSpec
from workloads.algorithms import ALGORITHMS
from workloads.bandwidth import BUS_FACTORS, bandwidth
from workloads.collectives import (
    COLLECTIVES,
    all_ranks,
    all_to_all,
    by_domain,
    collective,
    collective_on,
    rail_rings,
    ring_all_reduce,
    send_recv,
    uneven_all_to_all,
)
from workloads.errors import CollectiveError

FAST = settings(derandomize=True, deadline=None, max_examples=60)


@FAST
@given(n=st.integers(2, 20), size_bytes=st.integers(20, 10**9))
def test_ring_moves_the_closed_form_of_bytes(n: int, size_bytes: int) -> None:
    schedule = ring_all_reduce({"all": range(n)}, size_bytes, n)
    assert schedule.bytes_by_operation() == {
        "reduce-scatter": (n - 1) * size_bytes,
        "all-gather": (n - 1) * size_bytes,
    }
    per_edge = schedule.bytes_by_pair()
    assert set(per_edge) == {(i, (i + 1) % n) for i in range(n)}
    for total in per_edge.values():
        assert abs(total - 2 * (n - 1) / n * size_bytes) < 2
    assert [len(phase) for phase in schedule.phases()] == [n, n]


@FAST
@given(n=st.integers(2, 12))
def test_ring_bytes_equal_those_of_the_stepwise_algorithm(n: int) -> None:
    """Send parts of unequal size around step by step, and count."""
    size_bytes = 10 * n + 3
    parts = [size_bytes // n + (part < size_bytes % n) for part in range(n)]
    sent = {"reduce-scatter": [0] * n, "all-gather": [0] * n}
    sums = [[{rank} for _ in range(n)] for rank in range(n)]
    for step in range(n - 1):
        moves = [(rank, (rank - step) % n) for rank in range(n)]
        carried = [(rank, part, set(sums[rank][part])) for rank, part in moves]
        for rank, part, value in carried:
            sums[(rank + 1) % n][part] |= value
            sent["reduce-scatter"][rank] += parts[part]
    for step in range(n - 1):
        for rank in range(n):
            part = (rank + 1 - step) % n
            assert sums[rank][part] == set(range(n))
            sums[(rank + 1) % n][part] = set(sums[rank][part])
            sent["all-gather"][rank] += parts[part]
    assert all(value == set(range(n)) for row in sums for value in row)

    schedule = ring_all_reduce({"all": range(n)}, size_bytes, n)
    for transfer in schedule.transfers:
        assert transfer.size_bytes == sent[transfer.tag.operation][transfer.src]


@FAST
@given(n=st.integers(2, 16), size_bytes=st.integers(16, 10**8))
def test_all_to_all_reaches_every_pair_once(n: int, size_bytes: int) -> None:
    schedule = all_to_all({"all": range(n)}, size_bytes, n)
    pairs = [(transfer.src, transfer.dst) for transfer in schedule.transfers]
    assert sorted(pairs) == sorted(itertools.permutations(range(n), 2))
    assert all(abs(transfer.size_bytes - size_bytes / n) < 1 for transfer in schedule.transfers)
    phases = schedule.phases()
    assert len(phases) == n - 1
    for phase in phases:
        assert sorted(transfer.src for transfer in phase) == list(range(n))
        assert sorted(transfer.dst for transfer in phase) == list(range(n))


def test_rail_rings_run_together_and_stay_on_their_rail() -> None:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 3, 4))
    groups = rail_rings(fabric)
    assert list(groups) == ["rail0", "rail1", "rail2", "rail3"]
    schedule = ring_all_reduce(groups, 3000, 12, seed=7)
    assert schedule.group_size == 3
    assert schedule.seed == 7
    assert len(schedule.phases()) == 2
    for transfer in schedule.transfers:
        rails = {fabric.gpu_of_rank(end).rail for end in (transfer.src, transfer.dst)}
        assert rails == {int(transfer.tag.group.removeprefix("rail"))}
    assert all_ranks(fabric) == {"all": tuple(range(12))}


@pytest.mark.parametrize(
    ("groups", "size_bytes", "words"),
    [
        ({}, 100, "at least one group"),
        ({"a": [0]}, 100, "at least 2 ranks"),
        ({"a": [0, 1], "b": [2, 3, 4]}, 100, "2, 3 ranks"),
        ({"a": [0, 9]}, 100, "rank 9 does not exist"),
        ({"a": [0, 1], "b": [1, 2]}, 100, "rank 1 takes part twice"),
        ({"a": [0, 1, 2]}, 2, "at least 3 bytes"),
    ],
)
def test_bad_groups_and_sizes_are_refused(groups: dict[str, list[int]], size_bytes: int, words: str) -> None:
    for make in (ring_all_reduce, all_to_all):
        with pytest.raises(CollectiveError, match=words):
            make(groups, size_bytes, 6)


def test_rail_groups_need_two_domains() -> None:
    for spec in (FabricSpec(FabricKind.RAIL_ONLY, 1, 4), FabricSpec(FabricKind.IDEAL, 4, 4)):
        with pytest.raises(CollectiveError, match="at least 2 domains"):
            rail_rings(build(spec))


@pytest.mark.parametrize(
    ("collective", "factor"),
    [("all-reduce", 1.5), ("all-gather", 0.75), ("reduce-scatter", 0.75), ("all-to-all", 0.75), ("broadcast", 1.0),
     ("reduce", 1.0), ("send-recv", 1.0)],
)  # fmt: skip
def test_bus_bandwidth_of_four_ranks(collective: str, factor: float) -> None:
    result = bandwidth(collective, 4, 1e9, 2.0)
    assert result.algbw_gbps == pytest.approx(4.0)
    assert result.busbw_gbps == pytest.approx(4.0 * factor)
    assert BUS_FACTORS[collective].text in result.formula


def test_a_perfect_ring_has_the_bus_bandwidth_of_its_links() -> None:
    """Each of n ranks sends 2(n-1)/n S over a link of 100 Gbit/s: busbw is 100 Gbit/s whatever n is."""
    for n in (2, 5, 16):
        duration_s = 2 * (n - 1) / n * 1e9 * 8 / 100e9
        assert bandwidth("all-reduce", n, 1e9, duration_s).busbw_gbps == pytest.approx(100.0)


def test_bad_bandwidths_are_refused() -> None:
    for args in (("gossip", 4, 1.0, 1.0), ("all-reduce", 1, 1.0, 1.0), ("all-reduce", 4, 1.0, 0.0)):
        with pytest.raises(CollectiveError):
            bandwidth(*args)


@pytest.mark.parametrize("form", ["bulk", "stepwise"])
def test_every_collective_runs_on_every_grouping(form: str) -> None:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 3))
    for kind, known in ALGORITHMS.items():
        if kind == "send-recv":
            continue
        for algorithm in known:
            for grouping in ("all", "rails"):
                made = collective_on(fabric, kind, grouping, 12_000, algorithm=algorithm, form=form, name="x", seed=3)
                assert made.collective == kind
                assert made.is_phased or form == "stepwise"
                assert {end for one in made.transfers for end in (one.src, one.dst)} == set(range(12))
                assert made.group_size == (12 if grouping == "all" else 4)


def test_the_default_of_every_collective_is_its_first_algorithm_in_bulk() -> None:
    for kind, make in COLLECTIVES.items():
        assert make({"all": range(6)}, 600, 6) == collective(kind, {"all": range(6)}, 600, 6)
        assert make({"all": range(6)}, 600, 6).algorithm in ("pipelined ring", "shifted phases", "direct")


def test_the_root_is_where_a_broadcast_starts_and_a_reduce_ends() -> None:
    groups = {"a": (4, 2, 0), "b": (1, 3, 5)}
    for form in ("bulk", "stepwise"):
        cast = collective("broadcast", groups, 90, 6, root=1, form=form)
        assert {one.dst for one in cast.transfers} == {0, 4, 5, 1}, "the roots, 2 and 3, receive nothing"
        assert {one.src for one in collective("reduce", groups, 90, 6, root=1, form=form).transfers} == {0, 4, 5, 1}
    with pytest.raises(CollectiveError, match="the root is member 3, but the groups have members 0 to 2"):
        collective("broadcast", groups, 90, 6, root=3)


def test_send_recv_and_uneven_all_to_all() -> None:
    assert send_recv({"a": (0, 3), "b": (2, 1)}, 70, 4).bytes_by_pair() == {(0, 3): 70, (2, 1): 70}
    with pytest.raises(CollectiveError, match="between 2 ranks"):
        send_recv({"a": (0, 1, 2)}, 70, 4)
    splits = ((5, 1, 0), (0, 0, 7), (2, 0, 1))
    made = uneven_all_to_all({"a": (0, 1, 2), "b": (5, 4, 3)}, splits, 6)
    assert made.bytes_by_pair() == {(0, 1): 1, (1, 2): 7, (2, 0): 2, (5, 4): 1, (4, 3): 7, (3, 5): 2}
    assert made.size_bytes == 7
    assert made.is_phased
    with pytest.raises(CollectiveError, match="splits are of 2 ranks, but the groups have 3"):
        uneven_all_to_all({"a": (0, 1, 2)}, ((1, 2), (3, 4)), 6)
    with pytest.raises(CollectiveError, match="must send something"):
        uneven_all_to_all({"a": (0, 1)}, ((1, 0), (0, 1)), 6)


def test_groups_by_domain() -> None:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 3, 4))
    assert by_domain(fabric, {"a": (9, 1, 2, 5, 6, 10)}) == ({"a": (1, 2, 5, 6, 9, 10)}, 2)
    with pytest.raises(CollectiveError, match=r"rails \[1, 2\] in one domain"):
        by_domain(fabric, {"a": (1, 2, 5)})
    with pytest.raises(CollectiveError, match="1, 2 ranks a domain"):
        by_domain(fabric, {"a": (0, 1, 4, 5), "b": (2, 6)})
