"""`railbed downtime` and `run c4-downtime --check`, as they are typed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cli.main import main
from experiments.figures.downtime import downtime_figure
from experiments.reference import downtime as reference
from experiments.reference.tables import figure_of
from tests.experiments.test_figures import assert_nothing_is_cut, drawn


def ended(*words: str) -> int:
    with pytest.raises(SystemExit) as found:
        main(list(words))
    assert isinstance(found.value.code, int)
    return found.value.code


def test_the_table_the_figures_and_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("downtime") == 0
    told = capsys.readouterr().out
    assert "31.19" in told
    assert "after: 12 failures in 30 days; 98.84 % useful" in told
    assert ended("downtime", "--set", "after.aided_share=0.8", "--figures", str(tmp_path), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cases"]["after"]["parts"]["detection"] == pytest.approx(12 * 458 / (30 * 86_400))
    assert {Path(path).name for path in found["figures"]} == {"downtime.png", "downtime.svg"}
    assert all(Path(path).stat().st_size > 5_000 for path in found["figures"])


def test_saving_and_the_best_interval_are_told_where_saving_takes_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("downtime", "--set", "after.checkpoint_save_s=20") == 0
    told = capsys.readouterr().out
    assert "saving checkpoints" in told
    assert "a checkpoint every 2,939 s would cost least" in told


def test_inputs_are_printed_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("downtime", "--print-inputs") == 0
    path = tmp_path / "mine.yaml"
    path.write_text(capsys.readouterr().out.replace("  before:", "  mine:"))
    assert ended("downtime", "--inputs", str(path), "--json") == 0
    assert list(json.loads(capsys.readouterr().out)["cases"]) == ["mine", "after"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--set", "after.failures"), "'after.failures' is not of the form CASE.KEY=NUMBER"),
        (("--set", "after.failures=many"), "is not of the form CASE.KEY=NUMBER"),
        (("--set", "then.failures=3"), "there is no input 'then.failures'"),
        (("--figures", "/proc/none"), "/proc/none cannot be written"),
        (("--inputs", "/nothing.yaml"), "does not exist"),
    ],
)
def test_wrong_use(words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("downtime", *words) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert len(told.splitlines()) == 1


def test_the_reference_is_met_and_check_fails_where_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended("run", "c4-downtime", "--check", "--results", str(tmp_path)) == 0
    assert "10 of 10 expected numbers are met." in capsys.readouterr().out
    assert list(tmp_path.glob("*/figures/C6.png"))
    monkeypatch.setattr(reference, "TOTALS", {**reference.TOTALS, "after": 2.0})
    assert ended("run", "c4-downtime", "--results", str(tmp_path)) == 0
    assert ended("run", "c4-downtime", "--check", "--results", str(tmp_path)) == 1
    assert "9 of 10 expected numbers are met." in capsys.readouterr().out


def test_nothing_in_the_figures_is_cut() -> None:
    rows = reference.parts(lambda text: None)
    figure = figure_of(reference.C6, rows)
    assert figure is not None
    assert_nothing_is_cut(figure)
    texts = [text for text, _ in drawn(figure)[0]]
    assert {"31.19 %", "1.16 %", "19.65", "work done again"} <= set(texts)
    assert_nothing_is_cut(downtime_figure({"one case": dict.fromkeys(("a", "b"), 0.0)}))
    without = replace(reference.C6, draw=None)
    assert figure_of(without, rows) is None
