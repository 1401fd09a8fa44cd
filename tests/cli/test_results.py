"""`railbed results` and `railbed report` on results of the simulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.plan import simulator_backend
from experiments.results import ResultsFolder
from experiments.run import run_scenario
from tests.cli.test_run import run
from tests.experiments.cases import one
from tests.experiments.test_run import interrupted


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a complete result, an interrupted one, and one that is damaged."""
    run_scenario(one(), simulator_backend, lambda stage, share: None, results_root=tmp_path / "a", report=False)
    interrupted(tmp_path / "b", 1)
    results = tmp_path / "results"
    results.mkdir()
    for number, folder in enumerate([*(tmp_path / "a").iterdir(), *(tmp_path / "b").iterdir()]):
        folder.rename(results / f"20260101-00000{number}-small")
    (results / "20260101-000009-bad").mkdir()
    (results / "20260101-000009-bad" / "summary.json").write_text("{")
    return results


def test_results_are_listed_and_filtered(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    code, out, err = run(capsys, "results", "--results", root)
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["RESULT", "STATUS"], ["20260101-000000-small", "complete"], ["20260101-000001-small", "interrupted"],
    ]  # fmt: skip
    assert out.splitlines()[2].endswith("1 of 8 runs  -")
    assert err.count("\n") == 1
    assert "20260101-000009-bad/summary.json cannot be read" in err
    for words in (("--status", "interrupted"), ("000001",)):
        code, out, _ = run(capsys, "results", *words, "--results", root, "--json")
        (told,) = json.loads(out)
        assert (told["status"], told["runs"], told["planned_runs"]) == ("interrupted", 1, 8)
    code, out, err = run(capsys, "results", "--backend", "emulator", "--results", root)
    assert (code, out) == (0, "")
    assert "no results that fit" in err


def test_results_are_removed_all_or_none(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    first, second = "20260101-000000-small", "20260101-000001-small"
    code, out, err = run(capsys, "results", "rm", first, "20260101-000002-small", "--results", root)
    assert (code, out) == (2, "")
    assert "did you mean" in err
    with ResultsFolder.reopen(root / second):
        code, _, err = run(capsys, "results", "rm", first, second, "--results", root)
        assert code == 1
        assert "being written" in err
    assert (root / first).is_dir()
    code, out, _ = run(capsys, "results", "rm", first, root / second, "--results", root)
    assert (code, out.count("removed /")) == (0, 2)
    assert [path.name for path in root.iterdir()] == ["20260101-000009-bad"]
    code, _, err = run(capsys, "results", "rm", "--results", root)
    assert code == 2
    assert "railbed results rm RESULT" in err


def test_a_stored_result_is_drawn(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    folder = root / "20260101-000000-small"
    code, out, _ = run(capsys, "report", folder.name, "--format", "png", "--results", root)
    assert (code, out) == (0, f"report: {folder / 'report.html'}\n")
    assert {path.suffix for path in (folder / "figures").iterdir()} == {".png"}


def test_what_is_cut_short_is_drawn_and_says_so(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    folder = root / "20260101-000001-small"
    code, out, _ = run(capsys, "report", folder, "--json")
    assert code == 0
    assert json.loads(out)["report"] == str(folder / "report.html")
    assert "This result is interrupted: 1 of 8 runs are in it." in (folder / "report.html").read_text()


@pytest.mark.parametrize("name", ["nothing", "latest", ""])
def test_a_result_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    for words in (("report", name), ("results", "rm", name), ("run", "--resume", name)):
        code, out, err = run(capsys, *words, "--results", tmp_path)
        assert (code, out) == (2, "")
        assert err.startswith(f"railbed: there is no result '{name}', and none at all in ")


def test_resume_on_the_command_line(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    folder = root / "20260101-000001-small"
    code, out, _ = run(capsys, "run", "--resume", folder.name, "--results", root, "--no-report", "--json")
    assert code == 0
    assert json.loads(out)["summary"]["status"] == "complete"
    code, _, err = run(capsys, "run", "x.yaml", "--resume", folder)
    assert code == 2
    code, _, err = run(capsys, "run")
    assert code == 2
    assert "--resume RESULT" in err


def test_results_are_compared(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    whole, cut = "20260101-000000-small", "20260101-000001-small"
    code, out, err = run(capsys, "compare", whole, cut, "--results", root)
    assert (code, err) == (0, "")
    assert "no difference" in out
    assert "one run of it is taken as exact" in out
    code, out, _ = run(capsys, "compare", whole, f"{root / whole}:rail-only", "--results", root, "--json")
    assert code == 0
    assert [one["verdict"] for one in json.loads(out)] == ["no difference"] * 2
    for words, told in (
        ((whole,), "at least two"),
        ((whole, f"{cut}:ring"), "has no fabric 'ring'"),
        ((whole, "other:rail-only"), "there is no result 'other'"),
        ((whole, "20260101-000009-bad"), "cannot be read"),
    ):
        code, out, err = run(capsys, "compare", *words, "--results", root)
        assert code in (1, 2)
        assert out == ""
        assert told in err
