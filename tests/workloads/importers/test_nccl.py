from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_inputs import needs_inputs, real
from tests.workloads.importers.makers import total, workload, write_text
from topologies.importers.errors import CountMismatchError, MalformedFileError, TruncatedFileError
from workloads.importers.errors import NoCollectivesError, RankCountError
from workloads.importers.model import Kind
from workloads.importers.nccl_tests import NcclTestsLog, parse
from workloads.importers.registry import import_files


def log(path: Path) -> NcclTestsLog:
    found = import_files([path])
    assert isinstance(found, NcclTestsLog)
    return found


@needs_inputs
class TestRealLogs:
    @pytest.mark.parametrize(
        ("name", "collective", "time_us", "algbw", "busbw", "average"),
        [
            ("superbench_nccl_allreduce.log", "all-reduce", 63_896, 134.44, 235.26, 68.4048),
            ("superbench_nccl_alltoall.log", "gather, scatter or all-to-all", 33_508, 256.36, 224.31, 58.6481),
            ("superbench_nccl_reducescatter.log", "gather, scatter or all-to-all", 32_464, 264.60, 231.52, 60.168),
            ("superbench_nccl_reduce.log", "reduce or broadcast", 37_613, 228.38, 228.38, 65.018),
        ],
    )
    def test_eight_gpus(
        self, name: str, collective: str, time_us: float, algbw: float, busbw: float, average: float
    ) -> None:
        found = log(*real(f"nccl-tests-log/{name}"))
        assert (len(found.rows), found.ranks, found.ranks_from) == (34, 8, "the list of ranks")
        assert (found.collective, found.average_busbw_gbytes_per_s) == (collective, average)
        last = found.rows[-1]
        assert last.size_bytes == 8_589_934_592
        assert last.out_of_place is not None
        assert last.out_of_place.time_s == pytest.approx(time_us * 1e-6)
        assert (last.out_of_place.algbw_gbytes_per_s, last.out_of_place.busbw_gbytes_per_s) == (algbw, busbw)

    def test_columns_go_by_the_header(self) -> None:
        exchanged = log(*real("nccl-tests-log/superbench_nccl_alltoall.log")).rows[-1]
        reduced = log(*real("nccl-tests-log/superbench_nccl_reduce.log")).rows[-1]
        assert (exchanged.count, exchanged.redop, exchanged.root) == (268_435_456, "", None)
        assert (reduced.redop, reduced.root) == ("sum", 0)

    def test_a_prefixed_log_without_a_list_of_ranks(self) -> None:
        found = log(*real("nccl-tests-log/all_reduce_2x_p5.48xlarge.log"))
        assert (len(found.rows), found.ranks, found.ranks_from) == (32, 16, "busbw/algbw")
        assert (found.collective, found.rows[-1].root) == ("all-reduce", -1)
        last = found.rows[-1].out_of_place
        assert last is not None
        assert (last.algbw_gbytes_per_s, last.busbw_gbytes_per_s) == (259.78, 487.09)

    def test_a_debug_log_of_eight_ranks(self) -> None:
        found = workload(*real("nccl-debug-log/*"), strict=True)
        (operation,) = found.operations
        assert (operation.kind, operation.size_bytes, operation.dtype) == (Kind.ALL_REDUCE, 536_870_912, "half")
        assert operation.groups == (tuple(range(8)),)


HEADER = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
ROW = "  8000000000  2000000000  float  sum  -1  {time}  100.00  150.00  0  80000  100.00  150.00  0\n"


def test_ranks_and_collective_from_the_bandwidths() -> None:
    found = parse("x", HEADER + ROW.format(time=80000) + "# Avg bus bandwidth : 150.0\n")
    assert (found.ranks, found.collective) == (4, "all-reduce")
    # Of two ranks an all-reduce has the factor 1, as reduce and broadcast have.
    two = HEADER + "# Rank 0 x\n# Rank 1 x\n" + ROW.replace("150.00", "100.00").format(time=80000)
    assert (parse("x", two).ranks, parse("x", two).collective) == (2, "")


def test_what_was_not_measured_is_none() -> None:
    row = "  8000000000  2000000000  float  80000  100.00  75.00  0  N/A  N/A  N/A  N/A\n"
    found = parse("x", HEADER + row)
    assert (found.rows[0].in_place, found.collective, found.ranks) == (None, "gather, scatter or all-to-all", 4)


@pytest.mark.parametrize(
    ("text", "error", "sentence"),
    [
        (HEADER + "# Avg bus bandwidth : 1.0\n", NoCollectivesError, "no row of measurements"),
        (HEADER + ROW.format(time=80000) + "# Avg bus bandwidth : 99.0\n", CountMismatchError, "states an average"),
        (HEADER + ROW.format(time=80000)[:70], TruncatedFileError, "line 2, its last, breaks off"),
        (HEADER + ROW.format(time="soon") + "\n\n", MalformedFileError, "line 2: could not convert"),
    ],
)
def test_bad_logs(text: str, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        parse("x", text)


LINE = (
    "n0:11:{tid} [{device}] NCCL INFO {op}: opCount 3 sendbuff 0x1 recvbuff 0x2 count 10 datatype 7 op 0 root 0 "
    "comm 0x{comm} [nranks={ranks}] stream 0x9\n"
)


def line(op: str, comm: int = 0, ranks: int = 2) -> str:
    return LINE.format(tid=comm, device=comm, op=op, comm=comm, ranks=ranks)


def test_ranks_of_a_debug_log_that_names_none(tmp_path: Path) -> None:
    text = "noise\n" + "".join(line(op, comm) for op in ("AllGather", "ReduceScatter") for comm in (0, 1))
    found = workload(write_text(tmp_path / "x.log", text), strict=True)
    assert [(op.kind, op.size_bytes) for op in found.operations] == [
        (Kind.ALL_GATHER, 80),
        (Kind.REDUCE_SCATTER, 80),
    ]
    assert found.report.facts["other_lines"] == 1


def test_bad_debug_logs(tmp_path: Path) -> None:
    with pytest.raises(MalformedFileError, match="operation 'AllDance'"):
        workload(write_text(tmp_path / "x.log", line("AllDance")))
    with pytest.raises(RankCountError, match="communicators of 2, 4 ranks"):
        workload(write_text(tmp_path / "x.log", line("AllReduce") + line("AllReduce", 1, 4)))
    found = workload(write_text(tmp_path / "x.log", line("AllReduce") + line("Send")))
    assert total(found, "send", part="send or receive whose peer is not in the file").calls == 1
