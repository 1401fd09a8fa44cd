"""`railbed import`, from the files to what is printed and written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.typed import typed
from tests.real_inputs import needs_inputs, real
from tests.workloads.importers.makers import event, kineto, nccl_kernel, write_json, write_text
from topologies.model import FabricSpec
from workloads.operations import OperationSchedule
from workloads.operations_file import read_schedule_file

MATRIX = "\tGPU0\tGPU1\tmlx5_0\nGPU0\t X \tNV12\tPIX\nGPU1\tNV12\t X \tSYS\n"


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    return typed(capsys, "import", *words)


def ranks(folder: Path, count: int = 2) -> list[Path]:
    return [
        write_json(
            folder / f"rank{rank}.json.gz",
            kineto(
                [nccl_kernel(0, "allreduce", 1024, range(count)), nccl_kernel(50, "all_to_all", 1024, range(count))],
                rank, count,
            ),
        )
        for rank in range(count)
    ]  # fmt: skip


def test_a_workload_is_described_and_its_schedule_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = tmp_path / "schedule.json"
    code, out, err = run(capsys, *ranks(tmp_path), "-o", output)
    assert (code, err) == (0, "")
    assert "PyTorch profiler (Kineto) trace: rank0.json.gz and 1 more" in out
    assert "records: 4 read, 4 used, 0 set aside" in out
    assert "not in it" not in out
    schedule = read_schedule_file(output)
    assert schedule.ranks == 2
    assert isinstance(schedule, OperationSchedule)
    assert f"{len(schedule.to_schedule().transfers)} transfers of 2 operations" in out


def test_json_accounts_for_every_record(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = tmp_path / "schedule.json"
    code, out, err = run(capsys, *ranks(tmp_path), "--json", "-o", output)
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert printed["records_read"] == printed["records_used"] + sum(printed["set_aside"].values()) == 4
    assert {row["kind"]: row["size_bytes"] for row in printed["totals"]} == {"all-reduce": 8192, "all-to-all": 8192}
    assert printed["schedule"]["file"] == str(output)
    assert printed["schedule"]["left_out"] == {}


def test_strict_refuses_what_would_be_assumed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    paths = ranks(tmp_path)
    assert run(capsys, *paths, "--strict")[0] == 0
    code, out, err = run(capsys, paths[0], "--strict")
    assert (code, out) == (1, "")
    assert err == "railbed: --strict: 1 of 2 ranks are missing; give the files of all ranks, or leave --strict out\n"


def test_unknown_sizes_may_be_given(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write_json(tmp_path / "t.json", kineto([event("user_annotation", "nccl:all_reduce", 0)], 0, 2))
    output = tmp_path / "s.json"
    code, _, err = run(capsys, path, "-o", output)
    assert code == 1
    assert "holds no sizes" in err
    assert not output.exists()
    assert run(capsys, path, "-o", output, "--unknown-size", "1MiB")[0] == 0
    made = read_schedule_file(output)
    assert isinstance(made, OperationSchedule)
    assert made.sent_bytes == 2 * (1 << 20)
    code, _, err = run(capsys, path, "--unknown-size", "many")
    assert code == 2
    assert "--unknown-size" in err


def test_a_fabric_is_described_and_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = ["6 2 2 0 4 H100", "4 5"]
    topo = write_text(tmp_path / "topo", "\n".join([*lines, *(f"{g} {4 + g // 2} 2880Gbps 0ms 0" for g in range(4))]))
    code, out, _ = run(capsys, topo)
    assert code == 0
    assert "pattern: neither rail-only nor rail-optimized" in out
    code, _, err = run(capsys, topo, "-o", tmp_path / "f.json")
    assert code == 1
    assert "does not tell enough for a fabric" in err
    code, out, _ = run(capsys, write_text(tmp_path / "m.txt", MATRIX), "--json")
    assert (code, json.loads(out)["rails"]) == (0, {"GPU0": "mlx5_0"})


def test_a_log_is_no_workload(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = (
        "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
        "  8000000000  2000000000  float  sum  -1  80000  100.00  150.00  0  80000  100.00  150.00  0\n"
    )
    path = write_text(tmp_path / "x.log", text)
    code, out, _ = run(capsys, path)
    assert code == 0
    assert "ranks: 4 (from busbw/algbw); collective, as busbw/algbw tells: all-reduce" in out
    assert json.loads(run(capsys, path, "--json")[1])["rows"][0]["out_of_place"]["busbw_gbytes_per_s"] == 150.0
    code, _, err = run(capsys, path, "-o", tmp_path / "s.json")
    assert code == 1
    assert "a measurement and no workload" in err


def test_a_folder_that_cannot_be_written_to(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, *ranks(tmp_path), "-o", "/proc/none/s.json")
    assert code == 1
    assert "cannot be written: No such file or directory" in err


@pytest.mark.parametrize(
    ("words", "sentence"), [(["nothing-there"], "does not exist"), ([], "Missing argument"), (["--gpus", "0", "x"], "")]
)
def test_wrong_use(capsys: pytest.CaptureFixture[str], words: list[str], sentence: str) -> None:
    code, _, err = run(capsys, *words)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1


@needs_inputs
def test_the_swapped_cables_of_the_real_dump_are_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = tmp_path / "fabric.json"
    code, out, _ = run(capsys, *real("fabric-topology/ibnetdiscover/*"), "-o", output)
    assert code == 0
    named = [line for line in out.splitlines() if line.startswith("cable that breaks the pattern: ")]
    assert len(named) == 2
    assert FabricSpec.from_dict(json.loads(output.read_text())).rails == 4
