"""Figures that were counted in the real files by other means, where no other test asserts them."""

from __future__ import annotations

import pytest

from tests.real_inputs import needs_inputs, real
from workloads.importers.model import Kind, Total, Workload
from workloads.importers.registry import Options, import_files

pytestmark = needs_inputs


def imported(*patterns: str, **options: object) -> Workload:
    found = import_files([path for pattern in patterns for path in real(pattern)], Options(**options))
    assert isinstance(found, Workload)
    return found


def total(workload: Workload, kind: Kind, label: str | None = None) -> Total:
    (found,) = [
        one for one in workload.report.totals if one.kind is kind and label in (None, one.label) and not one.part
    ]
    return found


OUT_BYTES = (53_952, 58_048, 60_096, 104_128, 69_824, 53_952, 57_024, 58_560)


@pytest.mark.parametrize("rank", range(8))
def test_what_every_rank_of_the_recommendation_model_receives(rank: int) -> None:
    trace = imported(f"pytorch-kineto/param_dlrm_8ranks/worker{rank}_*")
    found = total(trace, Kind.ALL_TO_ALL)
    assert (found.calls, found.in_bytes, found.out_bytes) == (5, 64_448, OUT_BYTES[rank])
    assert sum(OUT_BYTES) == 515_584 == 8 * 64_448
    if rank == 0:
        assert found.duration_s == pytest.approx(3_999e-6)
        assert total(trace, Kind.ALL_REDUCE).duration_s == pytest.approx(1_799e-6)
    executed = total(imported(f"pytorch-et/param_dlrm_8ranks/dlrm_eg_{rank}.json.gz"), Kind.ALL_TO_ALL)
    assert (executed.in_bytes, executed.out_bytes) == (64_448, OUT_BYTES[rank])


def test_the_uneven_splits_of_all_ranks_together() -> None:
    found = imported("pytorch-et/param_dlrm_8ranks/*.gz")
    uneven = [operation for operation in found.operations if operation.splits]
    (splits,) = {operation.splits for operation in uneven if len(set(operation.splits[3])) > 1}
    assert [size // 4 for size in splits[3]] == [96, 224, 288, 1664, 592, 96, 192, 240]
    assert [row[3] // 4 for row in splits] == [1664] * 8
    assert sum(map(sum, splits)) == 108_544 == 8 * 13_568


def test_counts_of_events_and_nodes() -> None:
    assert imported("pytorch-kineto/hta_dlrm_rank0of16.json.gz").report.facts["events"] == 108_936
    newest = imported("pytorch-kineto/tracelens_vllm_tp8_b200_rank0of8.json.gz")
    assert newest.report.facts["events"] == 24_656
    assert newest.report.facts["outside_nccl_kernels"] == 73
    assert total(newest, Kind.ALL_GATHER).duration_s == pytest.approx(21.95e-6, abs=0.01e-6)
    assert imported("pytorch-et/param_resnet_rank0of1*").report.facts["nodes"] == 14_391
    assert imported("chakra-et/chakra_resnet_graph.0.json.gz", gpus=8).report.facts["nodes"] == 3_664


def test_the_messages_of_a_ring_written_as_sends() -> None:
    found = imported("chakra-et/astra_custom_ring_allreduce_8npus_1MB/*.et")
    sends = [operation for operation in found.operations if operation.kind is Kind.SEND_RECV]
    assert {operation.size_bytes for operation in sends} == {131_072}
    assert len(sends) == 8 * 14
    assert {(members[1] - members[0]) % 8 for operation in sends for members in operation.groups} == {1}


def test_the_iterations_of_measured_results() -> None:
    seconds = imported("aicb-csv/results_A100_example.csv").report.facts["iteration_s"]
    assert [round(one * 1000) for one in seconds[:2]] == [7_950, 3_298]
    assert len(seconds) == 11
    assert all(433 <= one * 1000 <= 474 for one in seconds[2:])
