from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.importers.makers import kineto, nccl_kernel, workload, write_json
from workloads.importers import expand
from workloads.importers.errors import ExpansionError, RankCountError
from workloads.importers.expand import pair_bytes, to_schedule
from workloads.importers.groups import ParallelGroups, blocks, family, strided
from workloads.importers.merge import _timed_waits
from workloads.importers.model import ImportReport, Kind, Operation, Workload
from workloads.operations_file import operations_to_dict
from workloads.schedule import Schedule


def trace(tmp_path: Path, *kernels: Any, world: int = 4) -> Any:
    return workload(write_json(tmp_path / "t.json", kineto(list(kernels), 0, world)))


def test_groups_only_wait_for_their_own_ranks(tmp_path: Path) -> None:
    found = trace(
        tmp_path,
        nccl_kernel(0, "allreduce", 100, [0, 1], "a"),
        nccl_kernel(20, "allreduce", 100, [0, 1], "a"),
        nccl_kernel(40, "allreduce", 100, [0, 1, 2, 3], "all"),
    )
    schedule = to_schedule(found).schedule
    by_id = schedule.by_id
    pairs = [transfer for transfer in schedule.transfers if transfer.tag.group != "all"]
    for transfer in pairs:
        waited = {by_id[one].src for one in transfer.after} | {by_id[one].dst for one in transfer.after}
        assert waited <= {transfer.src, transfer.dst}
    first_of_all = next(transfer for transfer in schedule.transfers if transfer.tag.group == "all")
    assert {by_id[one].src for one in first_of_all.after} == {0, 1, 2, 3}
    assert {transfer.tag.operation for transfer in schedule.transfers} == {"reduce-scatter", "all-gather"}


def test_an_all_reduce_has_the_bytes_of_a_ring(tmp_path: Path) -> None:
    schedule = to_schedule(trace(tmp_path, nccl_kernel(0, "allreduce", 1000, range(4)))).schedule
    assert schedule.total_bytes == 4 * 2 * 3 * 1000
    assert schedule.ranks == 4
    assert Schedule.from_dict(schedule.to_dict()) == schedule


def test_a_larger_fabric_may_be_given_and_a_smaller_one_not(tmp_path: Path) -> None:
    found = trace(tmp_path, nccl_kernel(0, "allreduce", 1000, range(4)))
    assert to_schedule(found, gpus=16).schedule.ranks == 16
    with pytest.raises(RankCountError, match="more than the 2 GPUs"):
        to_schedule(found, gpus=2)


def test_what_is_left_out_is_counted_and_passed_through(tmp_path: Path) -> None:
    found = trace(
        tmp_path,
        nccl_kernel(0, "allreduce", 1000, range(4)),
        nccl_kernel(20, "barrier", 0, range(4)),
        nccl_kernel(40, "allreduce", 1, range(4), dtype="Byte"),
    )
    expansion = to_schedule(found)
    assert expansion.left_out == {"barrier, which moves nothing": 1}
    assert expansion.missing == {}
    last = [transfer for transfer in expansion.schedule.transfers if transfer.size_bytes < 100]
    assert last[0].after, "the call after the barrier waits for the one before it"
    assert any("less than a byte per rank" in note for note in expansion.notes)


def test_computing_is_the_delay_of_the_first_phase_and_passes_what_is_left_out(tmp_path: Path) -> None:
    found = trace(
        tmp_path,
        nccl_kernel(0, "allreduce", 1000, range(4)),
        nccl_kernel(25, "allreduce", 1000, range(4)),
        nccl_kernel(40, "barrier", 0, range(4)),
        nccl_kernel(57, "allreduce", 1000, range(4)),
    )
    delays = [transfer.delay_s for transfer in to_schedule(found).schedule.transfers]
    expected_us = [0] * 8 + [15] * 4 + [0] * 4 + [5 + 7] * 4 + [0] * 4
    assert delays == pytest.approx([microseconds * 1e-6 for microseconds in expected_us])


def test_a_broadcast_starts_at_its_root() -> None:
    report = ImportReport("x", "x", (), 3, 3, 0, 0, {}, (), {}, (), ())
    operation = Operation(0, Kind.BROADCAST, "all", ((0, 1, 2),), 90, root=2)
    schedule = to_schedule(Workload("w", 3, (operation,), report)).schedule
    assert schedule.bytes_by_pair() == {(2, 0): 90, (0, 1): 90}


def test_a_collective_without_an_algorithm_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expand, "COLLECTIVES", {"all-reduce": expand.COLLECTIVES["all-reduce"]})
    found = trace(tmp_path, nccl_kernel(0, "allreduce", 10, range(4)), nccl_kernel(20, "all_to_all", 8, range(4)))
    assert to_schedule(found).missing == {"all-to-all: no algorithm yet": 1}
    with pytest.raises(ExpansionError, match=r"no transfer between ranks \(1 x all-to-all: no algorithm yet\)"):
        to_schedule(trace(tmp_path, nccl_kernel(0, "all_to_all", 8, range(4))))


def test_only_the_sender_of_a_message_waits_for_what_it_did_before() -> None:
    report = ImportReport("x", "x", (), 3, 3, 0, 0, {}, (), {}, (), ())
    made = (
        Operation(0, Kind.ALL_GATHER, "all", ((0, 1),), 90),
        Operation(1, Kind.ALL_GATHER, "all", ((2, 3),), 90),
        Operation(2, Kind.SEND_RECV, "pp", ((0, 2),), 90, after=(0, 1)),
        Operation(3, Kind.ALL_GATHER, "all", ((2, 3),), 90, after=(1, 2)),
    )
    schedule = to_schedule(Workload("w", 4, made, report)).schedule
    waits = [transfer.after for transfer in schedule.transfers]
    assert waits == [(), (), (), (), (0, 1), (2, 3, 4), (2, 3, 4)]


def test_a_large_workload_is_a_small_schedule() -> None:
    report = ImportReport("x", "x", (), 32_768, 32_768, 0, 0, {}, (), {}, (), ())
    groups = ParallelGroups(range(32_768), 8, 1, 1).tensor()
    made = [Operation(at, Kind.ALL_REDUCE, "tp", groups, 1 << 20, after=(at - 1,) if at else ()) for at in range(100)]
    found = to_schedule(Workload("w", 32_768, tuple(made), report)).operations
    assert found.transfer_count == 100 * 2 * 32_768
    assert len(json.dumps(operations_to_dict(found))) < 20_000


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.data(), st.integers(2, 9))
def test_shares_add_up_to_what_each_rank_sends(data: st.DataObject, n: int) -> None:
    sizes = st.tuples(*[st.integers(0, 10**9)] * n)
    sent, received = data.draw(sizes), data.draw(sizes)
    operation = Operation(
        0, Kind.ALL_TO_ALL, "", (tuple(range(n)),), max(sent), sent_bytes=sent, received_bytes=received
    )
    matrix = pair_bytes(operation)
    assert tuple(map(sum, matrix)) == sent
    total = sum(received)
    for row, size in zip(matrix, sent, strict=True):
        for part, weight in zip(row, received, strict=True):
            assert part >= 0
            if total:
                assert abs(part - size * weight / total) < 1 + 1e-6 * size


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=12))
def test_times_give_every_order_and_no_other(spans: list[tuple[int, int]]) -> None:
    """A call must come after exactly those that had ended when it started, directly or through others."""
    times = [(float(start), float(start + length)) for start, length in sorted(spans)]
    waits = _timed_waits(times)
    reach: dict[int, set[int]] = {}

    def before(position: int) -> set[int]:
        if position not in reach:
            direct = waits[position][0]
            reach[position] = set(direct).union(*(before(one) for one in direct))
        return reach[position]

    for position, (start, _) in enumerate(times):
        ended = {
            other
            for other, (_, other_end) in enumerate(times)
            if other_end < start or (other_end == start and other < position)
        }
        assert before(position) == ended
        if ended:
            assert waits[position][1] == start - max(times[other][1] for other in ended)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_parallel_groups_partition_the_ranks(tp: int, replicas: int, ep: int, pp: int) -> None:
    n = tp * replicas * ep * pp
    groups = ParallelGroups(range(n), tp, pp, ep)
    for found, size in (
        (groups.tensor(), tp), (groups.data(), replicas * ep), (groups.expert(), ep), (groups.expert_data(), replicas),
    ):  # fmt: skip
        assert {len(group) for group in found} == {size}
        assert sorted(rank for group in found for rank in group) == list(range(n))
    # Experts and their copies cross in exactly one rank.
    for expert in groups.expert():
        for copies in groups.expert_data():
            assert len(set(expert) & set(copies)) <= 1
    assert all(b - a == n // pp for stage in range(pp - 1) for a, b in groups.neighbours(stage))


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4), st.data())
def test_a_family_follows_from_any_of_its_groups(size: int, stride: int, copies: int, data: st.DataObject) -> None:
    n = size * stride * copies
    block = data.draw(st.integers(0, copies - 1)) * size * stride
    member = strided(block + data.draw(st.integers(0, stride - 1)), stride, size)
    found = family(member, n)
    assert member in found
    assert math.prod((len(found), size)) == n
    assert sorted(rank for group in found for rank in group) == list(range(n))


def test_a_group_without_a_pattern_is_its_own_family() -> None:
    assert family((0, 1, 3), 6) == ((0, 1, 3),)
    assert family((1, 2), 4) == ((1, 2),)
    assert family((3, 0), 4) == ((3, 0),)
    with pytest.raises(RankCountError, match="10 ranks cannot be cut into groups of 4"):
        blocks(4, 10)
