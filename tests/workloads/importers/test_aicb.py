from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_inputs import needs_inputs, real
from tests.workloads.importers.makers import total, workload, write_text
from topologies.importers.errors import MalformedFileError, TruncatedFileError
from workloads.importers.errors import RankCountError
from workloads.importers.expand import to_schedule
from workloads.importers.model import Kind, Workload

SETUP, WARMUP = "set-up, not part of an iteration", "warm-up, not part of an iteration"


def everywhere(found: Workload, kind: str, label: str | None = None) -> tuple[int, int]:
    """Calls and bytes of a kind, used and set aside together."""
    rows = [row for row in found.report.totals if row.kind.value == kind and label in (None, row.label)]
    return sum(row.calls for row in rows), sum(row.size_bytes for row in rows)


@needs_inputs
class TestRealWorkloads:
    def test_gpt_13b(self) -> None:
        found = workload(*real("aicb-csv/G13B-*"))
        assert (found.ranks, found.report.read, found.report.facts["epoch_ends"]) == (128, 181, 2)
        assert everywhere(found, "all-reduce", "tp") == (167, 3_397_410_820)
        assert everywhere(found, "all-reduce", "dp") == (5, 36)
        assert everywhere(found, "all-gather", "dp") == (3, 3_211_479_136)
        assert everywhere(found, "reduce-scatter", "dp") == (1, 6_422_958_080)
        assert everywhere(found, "broadcast", "tp") == (3, 17_472)
        groups = {op.label: op.groups for op in found.operations}
        assert groups["tp"][1] == tuple(range(8, 16))
        assert groups["dp"][1] == tuple(range(1, 128, 8))

    def test_llama_65b_in_eight_stages(self) -> None:
        found = workload(*real("aicb-csv/L65B-*"))
        facts = found.report.facts
        assert (found.ranks, facts["rows"], facts["sections"], facts["epoch_ends"]) == (128, 21_058, 8, 16)
        assert everywhere(found, "all-reduce", "tp") == (20_608, 691_489_734_656)
        assert everywhere(found, "send") == everywhere(found, "recv") == (112, 3_758_096_384)
        assert everywhere(found, "all-reduce", "embedding") == (2, 295_698_432)
        assert everywhere(found, "broadcast")[0] == 136
        messages = [op for op in found.operations if op.kind is Kind.SEND_RECV]
        assert len(messages) == 112
        assert all(abs(a - b) == 16 for op in messages for a, b in op.groups)
        assert len(messages[0].groups) == 16

    def test_a_pipeline_is_passed_in_turn(self) -> None:
        """The first message out of the last stage waits, through the others, for one from each stage before it."""
        found = workload(*real("aicb-csv/L65B-*"))
        by_id = {op.id: op for op in found.operations}
        first = next(op for op in found.operations if op.kind is Kind.SEND_RECV and op.groups[0][0] == 112)
        seen, waiting = set(), list(first.after)
        while waiting:
            one = waiting.pop()
            if one not in seen:
                seen.add(one)
                waiting.extend(by_id[one].after)
        senders = {by_id[one].groups[0][0] for one in seen if by_id[one].kind is Kind.SEND_RECV}
        assert senders == {0, 16, 32, 48, 64, 80, 96}

    def test_zero_2_and_3(self) -> None:
        two = workload(*real("aicb-csv/L7B-D1-C01_*"))
        assert (two.report.read, everywhere(two, "broadcast")) == (308, (291, 13_476_831_232))
        assert everywhere(two, "all-reduce") == (8, 13_476_831_233)
        assert everywhere(two, "all-gather") == (6, 13_476_831_744)
        assert everywhere(two, "barrier") == (1, 0)
        three = workload(*real("aicb-csv/L7B-D1-C02_*"))
        assert (three.report.read, everywhere(three, "all-gather")) == (1_243, (938, 40_431_026_176))
        assert everywhere(three, "reduce-scatter") == (7, 13_476_831_232)
        assert everywhere(three, "broadcast") == (291, 13_476_831_232)
        assert (everywhere(three, "all-reduce"), everywhere(three, "barrier")) == ((2, 9), (3, 0))

    def test_a_micro_test_does_not_tell_its_ranks(self) -> None:
        (path,) = real("aicb-csv/all_to_all_workload.csv")
        found = workload(path)
        assert found.ranks is None
        assert everywhere(found, "all-to-all") == (2_000, 214_748_364_800)
        assert total(found, "all-to-all", part=WARMUP).calls == 100
        assert workload(path, gpus=8).operations[0].groups == (tuple(range(8)),)

    def test_measured_results_tell_their_ranks(self) -> None:
        found = workload(*real("aicb-csv/results_A100_example.csv"))
        facts = found.report.facts
        assert (found.ranks, facts["rows"], facts["epoch_ends"]) == (8, 8_538, 11)
        assert everywhere(found, "all-to-all", "ep") == (1_280, 42_949_672_960)
        assert everywhere(found, "all-to-all", "tp") == (1_280, 10_737_418_240)
        assert everywhere(found, "all-gather", "tp") == (3_840, 118_153_564_160)
        assert everywhere(found, "reduce-scatter", "tp") == (1_920, 107_374_182_400)
        assert everywhere(found, "all-reduce", "tp") == (120, 671_580_200)
        assert [round(time, 3) for time in facts["iteration_s"][:2]] == [7.950, 3.298]
        assert any("2 of 11 iterations" in warning for warning in found.report.warnings)
        assert any("comm_group_size is none, 2, 4" in warning for warning in found.report.warnings)


HEADER = "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count\n"


def row(
    kind: str, group: str = "tp_group", size: object = 2, size_bytes: int = 64, stage: str = "", more: str = ""
) -> str:
    return f"CommType.{kind},CommGroup.{group},{size},{size_bytes},{stage},None,None,{more},None,None,None,1\n"


def test_an_exchange_between_stages_does_not_block(tmp_path: Path) -> None:
    """Both neighbours post a receive and then a send to each other: neither may wait for the other."""
    path = write_text(
        tmp_path / "w.csv",
        "[ pp_stage0: [rank0, rank1] ]\n" + HEADER
        + row("all_reduce") + row("isend", "pp_group", 1, 10, more="send_next")
        + row("irecv", "pp_group", 1, 30, more="recv_next") + row("isend", "pp_group", 1, 20, more="send_next")
        + row("all_reduce", size_bytes=99)
        + "[ pp_stage1: [rank2, rank3] ]\n" + HEADER
        + row("irecv", "pp_group", 1, 10, more="recv_prev") + row("all_reduce", size_bytes=77)
        + row("irecv", "pp_group", 1, 20, more="recv_prev") + row("isend", "pp_group", 1, 30, more="send_prev"),
    )  # fmt: skip
    found = workload(path)
    by_size = {op.size_bytes: op for op in found.operations}
    assert by_size[30].after == (by_size[77].id,)
    assert by_size[20].groups == ((0, 2), (1, 3))
    assert set(by_size[99].after) >= {by_size[30].id}
    assert by_size[77].after == (by_size[10].id,)
    assert to_schedule(found).left_out == {}


def test_set_up_barriers_and_computing_are_set_aside(tmp_path: Path) -> None:
    path = write_text(
        tmp_path / "w.csv",
        "[rank0 ~ rank3]\n" + HEADER + row("broadcast", stage="init.x") + row("barrier", "all", 4, 999)
        + row("epoch_end") + "CommType.computation,None,None,0,forward,None,None,,2.5,None,None,1\n"
        + row("all_reduce"),
    )  # fmt: skip
    found = workload(path)
    (operation,) = found.operations
    assert operation.gap_s == pytest.approx(2.5e-3)
    assert operation.groups == ((0, 1), (2, 3))
    assert found.report.read == 5
    assert total(found, "barrier", part="barrier, which moves nothing").size_bytes == 0


@pytest.mark.parametrize(
    ("text", "error", "sentence"),
    [
        ("[rank0 ~ rank3]\n" + HEADER + row("all_reduce") + "CommType.all_re", TruncatedFileError, "line 4, its last"),
        (
            HEADER + "CommType.all_reduce,x\n" + row("all_reduce"),
            MalformedFileError,
            "the row has 2 columns, the header 12",
        ),
        (HEADER + row("all_dance"), MalformedFileError, "'all_dance' is no communication"),
        (HEADER + row("all_reduce").replace(",64,", ",big,"), MalformedFileError, "line 2: .*'big'"),
        ("[rank one]\n" + HEADER + row("all_reduce"), MalformedFileError, "does not name ranks"),
        ("[rank0 ~ rank2]\n" + HEADER + row("all_reduce"), RankCountError, "3 ranks cannot be cut into tp groups of 2"),
        (HEADER.replace("stage,", ""), MalformedFileError, "the header lacks stage"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        workload(write_text(tmp_path / "w.csv", text))


def test_a_header_alone_goes_on_with_the_section(tmp_path: Path) -> None:
    found = workload(write_text(tmp_path / "w.csv", (HEADER + row("all_reduce")) * 2), gpus=4)
    assert [(op.groups, op.after) for op in found.operations] == [(((0, 1), (2, 3)), ()), (((0, 1), (2, 3)), (0,))]
