from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.real_inputs import needs_inputs, real
from tests.workloads.importers.makers import total, workload, write_json
from topologies.importers.errors import MalformedFileError
from workloads.importers.errors import NoCollectivesError, RankDisagreementError
from workloads.importers.expand import pair_bytes, to_schedule
from workloads.importers.model import Kind


@needs_inputs
class TestRealTraces:
    def test_all_ranks_of_a_run_with_uneven_splits(self) -> None:
        found = workload(*real("pytorch-et/param_dlrm_8ranks/*"), strict=True)
        assert (found.ranks, len(found.operations), found.report.facts["nodes"]) == (8, 8, 8 * 1_675)
        assert found.report.set_aside["wait, which moves nothing"] == 8 * 5
        reduced, exchanged = total(found, "all-reduce"), total(found, "all-to-all")
        assert (reduced.calls, reduced.size_bytes) == (8 * 3, 8 * 2_485_252)
        assert (exchanged.calls, exchanged.in_bytes) == (8 * 5, 8 * (64_256 + 192))
        (uneven,) = [op for op in found.operations if op.splits]
        matrix = pair_bytes(uneven)
        assert [sum(column) for column in zip(*matrix, strict=True)] == [
            3_072, 7_168, 9_216, 53_248, 18_944, 3_072, 6_144, 7_680,
        ]  # fmt: skip
        assert matrix[3] == tuple(4 * count for count in (96, 224, 288, 1664, 592, 96, 192, 240))
        assert {sum(row) for row in matrix} == {13_568}

    def test_the_profiler_and_the_execution_trace_of_a_run_agree(self) -> None:
        nodes, kernels = (workload(*real(f"{kind}/param_dlrm_8ranks/*")) for kind in ("pytorch-et", "pytorch-kineto"))

        def sizes(found: Any) -> list[tuple[Kind, int | None]]:
            return sorted((op.kind, op.size_bytes) for op in found.operations)

        assert sizes(nodes) == sizes(kernels)

    def test_attributes_of_a_newer_schema(self) -> None:
        found = workload(*real("pytorch-et/param_resnet_rank1of2_schema1.1.0.json.gz"))
        assert (found.ranks, found.report.facts["nodes"]) == (2, 14_392)
        assert (total(found, "all-reduce").calls, total(found, "all-reduce").size_bytes) == (15, 306_684_384)
        assert (total(found, "broadcast").calls, total(found, "broadcast").size_bytes) == (6, 638_712)
        assert found.report.set_aside["wait, which moves nothing"] == 6
        assert {op.groups for op in found.operations} == {((0, 1),)}

    def test_one_rank_alone_sends_nothing(self) -> None:
        found = workload(*real("pytorch-et/param_resnet_rank0of1_schema1.0.3.json.gz"))
        assert (found.ranks, total(found, "all-reduce").size_bytes) == (1, 306_684_384)
        with pytest.raises(ValueError, match=r"no transfer between ranks \(21 x group of one rank\)"):
            to_schedule(found)


def tensor(elements: int, width: int = 4) -> list[Any]:
    return [1, 2, 0, elements, width, "cuda:0"]


def old_node(
    number: int, rank: int, name: str, elements: int, ins: Sequence[int] = (), outs: Sequence[int] = (), got: int = 0
) -> dict[str, Any]:
    inputs = [tensor(elements), number, 94_000 + rank, rank, name, list(ins), list(outs)]
    return {"name": "record_param_comms", "id": number, "inputs": inputs, "outputs": [tensor(got or elements)]}


def trace(path: Path, nodes: Sequence[Any], schema: str = "1.0.1") -> Path:
    return write_json(path, {"schema": schema, "pid": 1, "time": "now", "nodes": list(nodes)})


def test_the_order_is_that_of_the_node_numbers(tmp_path: Path) -> None:
    nodes = [old_node(9, 0, "allreduce", 9), old_node(2, 0, "allreduce", 2)]
    other = [old_node(2, 1, "allreduce", 2), old_node(9, 1, "allreduce", 9)]
    found = workload(trace(tmp_path / "0.json", nodes), trace(tmp_path / "1.json", other), strict=True)
    assert [op.size_bytes for op in found.operations] == [8, 36]
    assert found.operations[1].after == (0,)


def test_lists_of_tensors_add_up(tmp_path: Path) -> None:
    node = old_node(1, 0, "allreduce", 1)
    node["inputs"][0] = [[tensor(10), tensor(5, 8)]]
    found = workload(trace(tmp_path / "0.json", [node]), gpus=2)
    assert found.report.totals[0].in_bytes == 80


def test_splits_of_two_ranks_must_fit(tmp_path: Path) -> None:
    def paths(expected: int) -> list[Path]:
        return [
            trace(tmp_path / "0.json", [old_node(1, 0, "all_to_allv", 5, (2, 3), (2, 7), 9)]),
            trace(tmp_path / "1.json", [old_node(1, 1, "all_to_allv", 9, (7, 2), (expected, 2), expected + 2)]),
        ]

    (operation,) = workload(*paths(3)).operations
    assert pair_bytes(operation) == ((8, 12), (28, 8))
    with pytest.raises(RankDisagreementError, match="rank 0 sends 12 bytes to rank 1, which expects 16"):
        workload(*paths(4))


def test_splits_that_are_not_the_tensor_are_malformed(tmp_path: Path) -> None:
    with pytest.raises(MalformedFileError, match="sends 20 bytes, but its splits add up to 16"):
        workload(trace(tmp_path / "0.json", [old_node(1, 0, "all_to_allv", 5, (2, 2), (2, 2))]))


def test_groups_come_from_the_list_of_groups_or_from_start_and_stride(tmp_path: Path) -> None:
    groups = '[{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 4},' \
        '{"pg_name": "7", "pg_desc": "x", "ranks": [1, 3], "group_size": 2}]'  # fmt: skip
    init = {"name": "## process_group:init ##", "id": 1, "inputs": {"values": [groups]}}

    def node(number: int, group: str, start: int, stride: int, size: int) -> dict[str, Any]:
        values = [[tensor(6)], number, [group, "x"], 1, "allreduce", [], [], start, stride, size]
        return {"name": "record_param_comms", "id": number, "inputs": {"values": values}, "outputs": {"values": []}}

    nodes = [init, node(2, "7", 0, 1, 2), node(3, "8", 0, 1, 2), node(4, "0", 0, 1, 4)]
    found = workload(trace(tmp_path / "1.json", nodes, "1.1.0-chakra.0.0.4"))
    assert [op.groups for op in found.operations] == [((1, 3), (0, 2)), ((0, 1), (2, 3)), ((0, 1, 2, 3),)]


def test_a_node_that_cannot_be_read_is_malformed(tmp_path: Path) -> None:
    node = {"name": "record_param_comms", "id": 3, "inputs": [1, 2], "outputs": []}
    with pytest.raises(MalformedFileError, match="record_param_comms node 3 cannot be read"):
        workload(trace(tmp_path / "0.json", [node]))


def test_waits_alone_are_no_collectives(tmp_path: Path) -> None:
    node = {"name": "record_param_comms", "id": 3, "inputs": [5, 0, 0, "wait", [], []], "outputs": []}
    with pytest.raises(NoCollectivesError, match="1 x wait"):
        workload(trace(tmp_path / "0.json", [node]))
