from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest

from tests.real_inputs import needs_inputs, real
from tests.workloads.importers.makers import event, kineto, nccl_kernel, refusal, total, workload, write_json
from topologies.importers.errors import MalformedFileError, TruncatedFileError
from workloads.importers.errors import (
    NoCollectivesError,
    RankCountError,
    RankDisagreementError,
    StrictImportError,
)
from workloads.importers.expand import pair_bytes, to_schedule
from workloads.importers.model import Kind
from workloads.importers.pytorch import collective


@needs_inputs
class TestRealTraces:
    def test_a_new_trace_is_read_from_its_kernels(self) -> None:
        found = workload(*real("pytorch-kineto/hta_ddp_resnet_rank0of2.json.gz"))
        assert found.ranks == 2
        assert found.report.facts["events"] == 40_573
        reduced, sent = total(found, "all-reduce"), total(found, "broadcast")
        assert (reduced.calls, reduced.size_bytes, round(reduced.duration_s * 1e6, 1)) == (15, 306_684_384, 46_762.2)
        assert (sent.calls, sent.size_bytes, round(sent.duration_s * 1e6, 1)) == (6, 638_712, 114.3)
        assert found.report.set_aside["wait, which moves nothing"] == 6
        buckets = [op.size_bytes for op in found.operations if op.kind is Kind.ALL_REDUCE]
        assert buckets[:5] == [8_196_000, 31_502_336, 26_255_360, 26_550_272, 9_724_160]
        assert buckets == buckets[:5] * 3
        assert all(op.groups == ((0, 1),) for op in found.operations)

    def test_an_old_trace_is_read_from_its_annotations(self) -> None:
        found = workload(*real("pytorch-kineto/hta_dlrm_rank0of16.json.gz"))
        exchanged, scattered, gathered, reduced = (
            total(found, kind) for kind in ("all-to-all", "reduce-scatter", "all-gather", "all-reduce")
        )
        assert (exchanged.calls, exchanged.in_bytes, exchanged.out_bytes) == (55, 157_873_564, 146_205_964)
        assert (scattered.calls, scattered.in_bytes, scattered.out_bytes) == (10, 587_202_560, 73_400_320)
        assert (gathered.calls, gathered.in_bytes, gathered.out_bytes) == (10, 73_400_320, 587_202_560)
        assert (reduced.calls, reduced.unknown) == (10, 0)  # the annotations themselves tell the size
        assert found.report.facts["nccl_kernels"] == 80
        assert sum(found.report.facts["nccl_kernel_us"].values()) == 190_345
        halves = tuple(tuple(range(first, first + 8)) for first in (0, 8))
        assert {op.groups for op in found.operations if op.kind is Kind.ALL_GATHER} == {halves}
        assert any("blocks of 8 consecutive ranks" in rule for rule in found.report.rules)

    @pytest.mark.parametrize(
        ("rank", "sent", "received", "kernel_us"),
        [(0, 850_250_752, 774_753_280, 396_199), (1, 745_202_432, 742_976_512, 379_053)],
    )
    def test_one_of_128_ranks_stands_for_all(self, rank: int, sent: int, received: int, kernel_us: int) -> None:
        path = real(f"pytorch-kineto/hta_sampled_128ranks/sampled_rank-{rank}.json.gz")
        found = workload(*path)
        exchanged, gathered = total(found, "all-to-all"), total(found, "all-gather")
        assert (found.ranks, found.report.known_ranks) == (128, 1)
        assert (exchanged.calls, exchanged.in_bytes, exchanged.out_bytes) == (4, sent, received)
        assert (gathered.calls, gathered.in_bytes, gathered.out_bytes) == (2, 33_554_432, 2_147_483_648)
        assert total(found, "all-reduce").calls == 4
        assert sum(found.report.facts["nccl_kernel_us"].values()) == kernel_us
        assert {len(op.groups) for op in found.operations if op.kind is Kind.ALL_GATHER} == {2}
        with pytest.raises(StrictImportError, match="127 of 128 ranks are missing"):
            workload(*path, strict=True)

    def test_two_samples_of_different_steps_disagree(self) -> None:
        with pytest.raises(RankDisagreementError, match="all-reduce has 107822144 bytes on rank 0 and 105033720"):
            workload(*real("pytorch-kineto/hta_sampled_128ranks/*"))

    def test_all_ranks_of_a_run_fit_together(self) -> None:
        found = workload(*real("pytorch-kineto/param_dlrm_8ranks/*"), strict=True)
        assert (found.ranks, len(found.operations)) == (8, 8)
        exchanged = [op for op in found.operations if op.kind is Kind.ALL_TO_ALL]
        sums = [sum(op.received_bytes or (op.size_bytes or 0,) * 8) for op in exchanged]
        assert sum(sums) == total(found, "all-to-all").in_bytes == 515_584
        (uneven,) = [op for op in exchanged if op.received_bytes]
        # 64,448 bytes in all go out of every rank; what each gets differs.
        assert set(uneven.sent_bytes) == {13_568}
        assert uneven.received_bytes == (3_072, 7_168, 9_216, 53_248, 18_944, 3_072, 6_144, 7_680)
        reduced = [op.size_bytes for op in found.operations if op.kind is Kind.ALL_REDUCE]
        assert reduced == [1_576_964, 448, 907_840]
        assert to_schedule(found).left_out == {}

    def test_communication_outside_nccl_is_warned_of(self) -> None:
        found = workload(*real("pytorch-kineto/tracelens_vllm_tp8_b200_rank0of8.json.gz"))
        (operation,) = found.operations
        assert (operation.kind, operation.size_bytes) == (Kind.ALL_GATHER, 402_176)
        assert operation.groups == (tuple(range(8)),)
        assert found.report.set_aside["communication kernel outside NCCL"] == 73
        (warning,) = found.report.warnings
        assert "2,119.5 us" in warning
        assert "vllm::all_reduce (73 calls, 385661952 bytes)" in warning

    def test_a_cut_gzip_file_is_truncated(self, tmp_path: Path) -> None:
        whole = real("pytorch-kineto/hta_ddp_resnet_rank0of2.json.gz")[0].read_bytes()
        for share in (0.001, 0.3, 0.999):
            cut = tmp_path / "cut.json.gz"
            cut.write_bytes(whole[: int(len(whole) * share)])
            with pytest.raises(TruncatedFileError, match=r"cut\.json\.gz is truncated"):
                workload(cut)


def one(tmp_path: Path, *events: Any, **more: Any) -> Path:
    return write_json(tmp_path / "trace.json", kineto(events, **more))


def test_gzip_and_plain_give_the_same(tmp_path: Path) -> None:
    trace = kineto([nccl_kernel(0, "allreduce", 1000, [0, 1, 2, 3])])
    plain = workload(write_json(tmp_path / "a.json", trace))
    zipped = workload(write_json(tmp_path / "a.json.gz", trace))
    assert plain.operations == zipped.operations
    assert plain.operations[0].size_bytes == 4000


def test_the_header_may_come_after_the_events(tmp_path: Path) -> None:
    trace = kineto([nccl_kernel(0, "allreduce", 10, range(4))], rank=2)
    info = trace.pop("distributedInfo")
    found = workload(write_json(tmp_path / "a.json", {**trace, "distributedInfo": info}))
    assert found.ranks == 4


def test_overlapping_calls_do_not_wait_for_each_other(tmp_path: Path) -> None:
    found = workload(
        one(
            tmp_path,
            nccl_kernel(0, "allreduce", 10, range(4), "0", duration_us=100),
            nccl_kernel(50, "allreduce", 10, range(4), "1", duration_us=100),
            nccl_kernel(170, "allreduce", 10, range(4), "0", duration_us=10),
        )
    )
    first, second, third = found.operations
    assert (first.after, second.after, third.after) == ((), (), (0, 1))
    assert third.gap_s == pytest.approx(20e-6)


def test_a_group_of_known_members_is_repeated_over_the_missing_ranks(tmp_path: Path) -> None:
    found = workload(
        one(
            tmp_path,
            nccl_kernel(0, "allreduce", 10, [0, 2], "5"),
            nccl_kernel(20, "allreduce", 10, [0, 1], "6"),
            world=8,
        )
    )
    assert found.operations[0].groups == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert found.operations[1].groups == ((0, 1), (2, 3), (4, 5), (6, 7))


def test_known_ranks_are_not_filled_in_twice(tmp_path: Path) -> None:
    paths = [
        write_json(tmp_path / f"{rank}.json", kineto([nccl_kernel(0, "allreduce", 10, [rank, rank + 1])], rank, 8))
        for rank in (0, 2)
    ]
    found = workload(*paths)
    groups = [group for operation in found.operations for group in operation.groups]
    assert sorted(groups) == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_members_cut_off_by_the_writer_come_from_the_list_of_groups(tmp_path: Path) -> None:
    kernel = nccl_kernel(0, "allreduce", 10, range(4), "9")
    kernel["args"]["Process Group Ranks"] = "[0, 1, ..."
    trace = kineto([kernel], world=8)
    trace["distributedInfo"]["pg_config"] = [{"pg_name": "9", "pg_size": 4, "ranks": [0, 2, 4, 6]}]
    found = workload(write_json(tmp_path / "a.json", trace))
    assert found.operations[0].groups == ((0, 2, 4, 6), (1, 3, 5, 7))


def test_uneven_splits_of_all_ranks_are_exact(tmp_path: Path) -> None:
    rows = ((0, 3, 5), (7, 2, 1), (4, 4, 4))
    paths = []
    for rank, row in enumerate(rows):
        column = [other[rank] for other in rows]
        kernel = nccl_kernel(
            0, "all_to_allv", sum(row), range(3),
            **{"In split size": str(list(row)), "Out split size": str(column), "Out msg nelems": sum(column)},
        )  # fmt: skip
        paths.append(write_json(tmp_path / f"{rank}.json", kineto([kernel], rank, 3)))
    (operation,) = workload(*paths, strict=True).operations
    assert pair_bytes(operation) == tuple(tuple(4 * count for count in row) for row in rows)


def test_splits_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    paths = []
    for rank in (0, 1):
        splits = {"In split size": "[1, 3]", "Out split size": "[1, 2]" if rank else "[1, 3]"}
        kernel = nccl_kernel(0, "all_to_allv", 4, range(2), **splits)
        paths.append(write_json(tmp_path / f"{rank}.json", kineto([kernel], rank, 2)))
    with pytest.raises(RankDisagreementError, match="rank 0 sends 12 bytes to rank 1, which expects 4 from it"):
        workload(*paths)


def test_ranks_that_make_different_calls_are_refused(tmp_path: Path) -> None:
    def files(*calls: list[Any]) -> list[Path]:
        return [
            write_json(tmp_path / f"{rank}.json", kineto(events, rank, len(calls))) for rank, events in enumerate(calls)
        ]

    both = range(2)
    with pytest.raises(RankDisagreementError, match=r"rank 0 makes 2 calls .* but rank 1 makes 1"):
        workload(*files([nccl_kernel(0, "allreduce", 1, both), nccl_kernel(20, "allreduce", 1, both)],
                        [nccl_kernel(0, "allreduce", 1, both)]))  # fmt: skip
    with pytest.raises(RankDisagreementError, match="rank 0 makes it a all-reduce, rank 1 a broadcast"):
        workload(*files([nccl_kernel(0, "allreduce", 1, both)], [nccl_kernel(0, "broadcast", 1, both)]))
    a, b = nccl_kernel(0, "allreduce", 1, both, "a"), nccl_kernel(20, "allreduce", 1, both, "b")
    c, d = nccl_kernel(0, "allreduce", 1, both, "b"), nccl_kernel(20, "allreduce", 1, both, "a")
    with pytest.raises(RankDisagreementError, match="orders that contradict each other"):
        workload(*files([a, b], [c, d]))


def test_files_of_one_rank_or_of_two_runs_are_refused(tmp_path: Path) -> None:
    kernel = nccl_kernel(0, "allreduce", 1, range(2))
    first = write_json(tmp_path / "a.json", kineto([kernel], 0, 2))
    again = write_json(tmp_path / "b.json", kineto([kernel], 0, 2))
    larger = write_json(tmp_path / "c.json", kineto([kernel], 1, 4))
    with pytest.raises(RankDisagreementError, match="are both of rank 0"):
        workload(first, again)
    with pytest.raises(RankDisagreementError, match="of a run of 2 ranks"):
        workload(first, larger)


def test_a_fabric_that_is_too_small_is_refused(tmp_path: Path) -> None:
    path = one(tmp_path, nccl_kernel(0, "allreduce", 1, range(4)))
    with pytest.raises(RankCountError, match="of 4 ranks, more than the 2 GPUs"):
        workload(path, gpus=2)
    assert workload(path, gpus=8).ranks == 4


def test_a_trace_without_collectives_is_refused(tmp_path: Path) -> None:
    path = one(tmp_path, event("cpu_op", "aten::mm", 0), event("kernel", "ncclKernel_SendRecv()", 5))
    with pytest.raises(NoCollectivesError, match="1 x NCCL kernel that nothing ties to a collective"):
        workload(path)


def test_record_param_comms_is_the_second_best_source(tmp_path: Path) -> None:
    args = nccl_kernel(0, "allreduce", 6, range(4))["args"]
    found = workload(
        one(
            tmp_path,
            event("cpu_op", "record_param_comms", 0, **args),
            event("cpu_op", "record_param_comms", 20, **{**args, "Collective name": "wait"}),
            event("cpu_op", "record_param_comms", 30, **{**args, "Collective name": "mystery"}),
            event("kernel", "ncclKernel_AllGather()", 5),
        )
    )
    (operation,) = found.operations
    assert (operation.kind, operation.size_bytes, operation.duration_s) == (Kind.ALL_REDUCE, 24, None)
    assert found.report.set_aside["wait, which moves nothing"] == 1
    assert found.report.set_aside["collective of an unknown name ('mystery')"] == 1


def test_the_kernels_name_is_no_evidence(tmp_path: Path) -> None:
    found = workload(
        one(
            tmp_path,
            event(
                "cpu_op", "c10d::alltoall_base_", 0, 50,
                **{"Input Dims": [[8], [4], []], "Input type": ["long", "long", ""]},
            ),
            event("user_annotation", "nccl:all_to_all", 5, 30, **{"Input Dims": [[4]], "Input type": ["long"]}),
            event("cuda_runtime", "cudaLaunchKernel", 10, 5, correlation=77),
            event("kernel", "ncclKernel_AllReduce_RING()", 100, 20, tid=7, correlation=77),
        )
    )  # fmt: skip
    (operation,) = found.operations
    assert (operation.kind, operation.size_bytes, operation.duration_s) == (Kind.ALL_TO_ALL, 32, pytest.approx(20e-6))


def test_unknown_sizes_are_counted_and_never_guessed(tmp_path: Path) -> None:
    path = one(tmp_path, event("user_annotation", "nccl:all_reduce", 0), world=2)
    found = workload(path)
    assert found.operations[0].size_bytes is None
    assert total(found, "all-reduce").unknown == 1
    assert any("size of 1 calls is not in the files" in warning for warning in found.report.warnings)
    call = event("user_annotation", "nccl:all_reduce", 0)
    both = [write_json(tmp_path / f"{rank}.json", kineto([call], rank, 2)) for rank in (0, 1)]
    with pytest.raises(StrictImportError, match="size of 2 calls"):
        workload(*both, strict=True)


def test_a_send_whose_peer_is_not_told_is_counted(tmp_path: Path) -> None:
    found = workload(
        one(tmp_path, nccl_kernel(0, "send", 5, range(4)), nccl_kernel(20, "send", 5, [0, 3], "p"), world=4)
    )
    (operation,) = found.operations
    assert (operation.kind, operation.groups) == (Kind.SEND_RECV, ((0, 3),))
    assert found.report.set_aside["send or receive whose peer is not in the file"] == 1


def test_an_event_without_a_time_is_malformed(tmp_path: Path) -> None:
    kernel = nccl_kernel(0, "allreduce", 1, range(2))
    del kernel["ts"]
    with pytest.raises(MalformedFileError, match=r"event 1 .* has no usable time"):
        workload(one(tmp_path, kernel))


def test_damage_anywhere_is_one_sentence(tmp_path: Path) -> None:
    """Bytes changed, cut out or repeated at random: an import, or an error of ours, never any other."""
    trace = kineto([nccl_kernel(20 * number, "allreduce", 10, range(4)) for number in range(20)])
    whole = write_json(tmp_path / "whole.json", trace).read_bytes()
    rng = random.Random(5)
    outcomes = set()
    for _ in range(150):
        data = bytearray(whole)
        at, length = rng.randrange(len(data)), rng.randrange(1, 40)
        what = rng.randrange(3)
        if what == 0:
            data[at] = rng.randrange(256)
        elif what == 1:
            del data[at : at + length]
        else:
            data[at:at] = data[at : at + length]
        broken = tmp_path / "broken.json"
        broken.write_bytes(gzip.compress(bytes(data)) if rng.random() < 0.2 else bytes(data))
        error = refusal(broken)
        outcomes.add(type(error).__name__ if error else "read")
        assert "\n" not in str(error)
    assert "read" in outcomes
    assert "MalformedFileError" in outcomes


def test_neighbours_do_not_overlap_by_rounding(tmp_path: Path) -> None:
    """Clocks that count from 1970 leave a double no digits below a microsecond if they are not shifted."""
    start_us = 1_683_564_901_554_112.0
    kernels = [nccl_kernel(start_us + 3 * number, "allreduce", 10, range(4), duration_us=3) for number in range(50)]
    found = workload(one(tmp_path, *kernels))
    assert [operation.after for operation in found.operations] == [(), *((number,) for number in range(49))]
    assert all(operation.gap_s == 0 for operation in found.operations)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", Kind.ALL_REDUCE),
        ("nccl:all_reduce", Kind.ALL_REDUCE),
        ("allreduce_coalesced", Kind.ALL_REDUCE),
        ("_allgather_base", Kind.ALL_GATHER),
        ("nccl:_all_gather_base", Kind.ALL_GATHER),
        ("all_gather_into_tensor_coalesced", Kind.ALL_GATHER),
        ("c10d::_reduce_scatter_base_", Kind.REDUCE_SCATTER),
        ("reduce_scatter_tensor_coalesced", Kind.REDUCE_SCATTER),
        ("all_to_allv", Kind.ALL_TO_ALL),
        ("c10d::alltoall_base_", Kind.ALL_TO_ALL),
        ("_broadcast_oop", Kind.BROADCAST),
        ("_reduce_oop", Kind.REDUCE),
        ("recvAnySource", Kind.RECV),
        ("coalesced", None),
        ("wait", None),
        ("", None),
    ],
)
def test_names_of_collectives(name: str, kind: Kind | None) -> None:
    assert collective(name) is kind


def test_groups_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RankDisagreementError, match=r"rank 0 makes a call in group '0' \[2, 3\] without being in it"):
        workload(one(tmp_path, nccl_kernel(0, "allreduce", 1, [2, 3])))
    with pytest.raises(MalformedFileError, match=r"the group \[0, 0\] of rank 0 names a rank twice"):
        workload(one(tmp_path, nccl_kernel(0, "allreduce", 1, [0, 0])))
    with pytest.raises(RankCountError, match="rank 9 takes part, but the file states 4 ranks"):
        workload(one(tmp_path, nccl_kernel(0, "allreduce", 1, [0, 9])))


def test_without_a_number_of_ranks_the_groups_tell_it(tmp_path: Path) -> None:
    found = workload(one(tmp_path, nccl_kernel(0, "allreduce", 1, range(6)), world=None))
    assert found.ranks == 6
    assert any("do not say how many ranks there were: 6" in rule for rule in found.report.rules)


def test_the_rank_may_be_in_the_file_name_only(tmp_path: Path) -> None:
    kernels = [nccl_kernel(0, "allreduce", 1, range(2))]
    paths = [write_json(tmp_path / f"step.rank_{rank}.json", kineto(kernels, None, 2)) for rank in (1, 0)]
    found = workload(*paths, strict=True)
    assert (found.ranks, found.report.known_ranks) == (2, 2)
