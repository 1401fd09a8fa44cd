from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_inputs import needs_inputs, real
from tests.workloads.importers.makers import total, workload, write_text
from topologies.importers.errors import CountMismatchError, MalformedFileError, TruncatedFileError
from workloads.importers.errors import NoCollectivesError, RankCountError
from workloads.importers.expand import to_schedule
from workloads.importers.model import Kind


@needs_inputs
class TestRealWorkloads:
    def test_a_mixture_of_experts(self) -> None:
        found = workload(*real("simai-workload-txt/simai/workload_ep_test.txt"))
        rows = {(row.kind.value, row.label): (row.calls, row.size_bytes) for row in found.report.totals if not row.part}
        assert found.ranks == 32
        assert total(found, "all-gather").calls - rows["all-gather", "dp-ep"][0] == 25
        assert rows["all-gather", "tp"][1] + rows["all-gather", "dp"][1] == 308_281_344
        assert rows["reduce-scatter", "tp"][1] + rows["reduce-scatter", "dp"][1] == 163_577_856
        assert found.report.set_aside == {"collective of size 0": 4}
        assert rows["all-reduce", "tp"] == (2, 25_165_824)
        assert rows["all-to-all", "tp"] == (16, 100_663_296)
        assert rows["all-to-all", "ep"] == (16, 402_653_184)
        assert rows["all-gather", "dp-ep"] == (1, 4_718_592)
        assert rows["reduce-scatter", "dp-ep"] == (1, 9_437_184)
        facts = found.report.facts
        compute = tuple(facts[f"{name}_compute_ns"] for name in ("forward", "input_gradient", "weight_gradient"))
        assert compute == (46_454_949, 68_529_082, 22_094_466)
        groups = {op.label: op.groups for op in found.operations}
        assert groups["tp"][:2] == ((0, 1, 2, 3), (4, 5, 6, 7))
        assert groups["dp"][0] == tuple(range(0, 32, 4))
        assert groups["ep"][0] == (0, 4, 8, 12)
        assert groups["dp-ep"][0] == (0, 16)

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("simai/microAllReduce.txt", {"all-reduce": (2, 83_886_080)}),
            ("aicb/G13B-M1-C01_*", {"all-reduce": (171, 6_973_710_352), "all-gather": (1, 3_248_619_520),
                                   "reduce-scatter": (1, 6_497_239_040), "broadcast": (1, 16_384)}),
            ("aicb/L7B-M1-C04_*", {"all-reduce": (139, 9_198_133_264), "all-gather": (1, 6_754_926_592),
                                  "reduce-scatter": (1, 13_509_853_184), "broadcast": (1, 16_384)}),
            ("aicb/all_reduce.txt", {"all-reduce": (19, 2_147_479_552)}),
            ("aicb/all_to_all.txt", {"all-to-all": (19, 2_147_479_552)}),
            ("aicb/muti_all_reduce.txt", {"all-reduce": (19, 2_147_479_552)}),
        ],
    )  # fmt: skip
    def test_totals(self, name: str, expected: dict[str, tuple[int, int]]) -> None:
        found = workload(*real(f"simai-workload-txt/{name}"))
        assert {kind: (total(found, kind).calls, total(found, kind).size_bytes) for kind in expected} == expected
        assert sum(calls for calls, _ in expected.values()) == found.report.used

    def test_a_wrong_count_of_rows_is_refused_unless_told(self) -> None:
        (path,) = real("simai-workload-txt/aicb/L65B-M1-C05_*")
        with pytest.raises(CountMismatchError, match="states 839 rows, but the file has 33"):
            workload(path)
        found = workload(path, any_count=True)
        assert (total(found, "all-reduce").calls, total(found, "all-reduce").size_bytes) == (31, 3_776_499_712)
        assert total(found, "reduce-scatter").size_bytes == 6_236_471_296
        assert total(found, "all-gather").size_bytes == 1
        assert any("states 839 rows" in warning for warning in found.report.warnings)

    def test_a_schedule_for_a_given_number_of_gpus(self) -> None:
        (path,) = real("simai-workload-txt/aicb/all_to_all.txt")
        with pytest.raises(RankCountError, match="give --gpus N"):
            to_schedule(workload(path))
        schedule = to_schedule(workload(path, gpus=4)).schedule
        assert schedule.total_bytes == 3 * 2_147_479_552  # 4 ranks send 3/4 of it each


HEAD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: {pp} vpp: 1 ga: 3 all_gpus: 8 {more}"


def row(
    forward: str = "NONE 0", input_gradient: str = "NONE 0", weight_gradient: str = "NONE 0", times: str = "1 2 3"
) -> str:
    one, two, three = times.split()
    return f"layer -1 {one} {forward} {two} {input_gradient} {three} {weight_gradient} 100"


def text(path: Path, *rows: str, pp: int = 1, more: str = "", count: int | None = None) -> Path:
    lines = [HEAD.format(pp=pp, more=more), str(len(rows) if count is None else count), *rows]
    return write_text(path / "w.txt", "\n".join(lines))


def test_an_iteration_runs_forward_then_backward(tmp_path: Path) -> None:
    found = workload(
        text(
            tmp_path,
            row("ALLREDUCE 1", "ALLREDUCE 2", "ALLREDUCE 3", "1000 2000 3000"),
            row("ALLGATHER 4", "REDUCESCATTER 5", "REDUCESCATTER 6", "10 20 30"),
        )
    )
    by_size = {op.size_bytes: op for op in found.operations}
    assert [op.size_bytes for op in found.operations] == [1, 4, 5, 6, 2, 3]
    assert by_size[4].after == (by_size[1].id,)
    assert by_size[2].after == (by_size[5].id,)  # the weight gradient in between is not waited for
    assert set(by_size[3].after) == {by_size[2].id, by_size[6].id}
    assert by_size[2].gap_s == pytest.approx(2030e-9)


def test_pipeline_messages_join_the_stages(tmp_path: Path) -> None:
    for more in ("pp_comm: 64", "pp_comm 64.0"):
        found = workload(text(tmp_path, row("ALLREDUCE 8"), pp=2, more=more))
        messages = [op for op in found.operations if op.kind is Kind.SEND_RECV]
        assert len(messages) == 6
        assert messages[0].groups == ((0, 4), (1, 5), (2, 6), (3, 7))
        assert messages[-1].groups == ((4, 0), (5, 1), (6, 2), (7, 3))
        assert to_schedule(found).schedule.bytes_by_pair()[0, 4] == 3 * 64


@pytest.mark.parametrize(
    ("rows", "error", "sentence"),
    [
        ([row(), "layer -1 5 ALLREDUCE"], TruncatedFileError, "line 4, its last, has 4 of 12 fields"),
        (["layer -1 5 ALLREDUCE", row()], MalformedFileError, "line 3: a row has 12 fields, this one 4"),
        ([row("ALLDANCE 5")], MalformedFileError, "'ALLDANCE' is no collective"),
        ([row("ALLREDUCE_XY 5")], MalformedFileError, "'ALLREDUCE_XY' is no collective"),
        ([row("ALLREDUCE many")], MalformedFileError, "forward fields '1 ALLREDUCE many'"),
        ([row("ALLREDUCE 0"), row("NONE 7")], NoCollectivesError, "1 x collective of size 0, 1 x NONE with a size"),
    ],
)
def test_bad_rows(tmp_path: Path, rows: list[str], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        workload(text(tmp_path, *rows))


def test_groups_that_do_not_fit_the_ranks_are_refused(tmp_path: Path) -> None:
    path = write_text(tmp_path / "w.txt", f"HYBRID_TRANSFORMER model_parallel_NPU_group: 8\n1\n{row('ALLREDUCE 9')}\n")
    with pytest.raises(RankCountError, match="12 ranks cannot be cut into pp 1 stages of tp 8"):
        workload(path, gpus=12)
    assert workload(path, gpus=16).operations[0].groups[1] == tuple(range(8, 16))
