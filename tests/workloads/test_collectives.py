import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.builders import build
from topologies.model import FabricKind, FabricSpec
from workloads.bandwidth import BUS_FACTORS, bandwidth
from workloads.collectives import all_ranks, all_to_all, rail_rings, ring_all_reduce
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
