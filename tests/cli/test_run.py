"""`railbed run` on the simulator, from the file to the results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.typed import typed as run

SCENARIO = """
name: small
backend: {backend}
fabrics: [{{kind: rail-only, domains: 2, rails: 2}}]
workload: [{{collective: all-reduce, size: 64MiB}}]
"""


def test_the_results_are_where_the_output_says(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(SCENARIO.format(backend="simulator"))
    code, out, err = run(capsys, "run", scenario, "--results", tmp_path / "out", "--json")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert printed["summary"]["status"] == "complete"
    assert Path(printed["folder"]).parent == tmp_path / "out"
    assert (Path(printed["folder"]) / "report.html").is_file()


def test_backend_overrides_the_scenario(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(SCENARIO.format(backend="emulator"))
    code, out, err = run(capsys, "run", scenario, "--results", tmp_path / "out", "--backend", "simulator")
    assert (code, err) == (0, "")
    assert "rail-only" in out
    assert f"results: {tmp_path / 'out'}" in out


def test_the_emulator_needs_root(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    scenario = tmp_path / "small.yaml"
    scenario.write_text(SCENARIO.format(backend="emulator"))
    code, out, err = run(capsys, "run", scenario, "--results", tmp_path / "out")
    assert (code, out) == (2, "")
    assert err == "railbed: 'run' needs root: run sudo ./railbed run\n"


@pytest.mark.parametrize("text", ["", "name: [", "nmae: x\n", "name: x\nname: y\n"])
def test_a_wrong_scenario_is_exit_code_2(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str) -> None:
    scenario = tmp_path / "wrong.yaml"
    scenario.write_text(text)
    code, out, err = run(capsys, "run", scenario, "--backend", "simulator")
    assert (code, out) == (2, "")
    assert err.startswith("railbed: ")
    assert "wrong.yaml" in err
    assert "Traceback" not in err


def test_a_reference_experiment_is_run_by_its_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, "run", "r7", "--results", tmp_path, "--json")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    stored = json.loads((Path(printed["folder"]) / "reference.json").read_text())
    assert stored["rows"] == printed["rows"]
    assert printed["rows"][0]["measured"] == pytest.approx(6.25)
    assert printed["rows"][0]["agrees"] is True
    assert json.loads((Path(printed["folder"]) / "summary.json").read_text())["status"] == "complete"


def test_a_reference_experiment_prints_a_table_and_runs_on_the_simulator_only(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = run(capsys, "run", "R7", "--results", tmp_path)
    assert code == 0
    assert "6.25 %" in out
    assert "2 of 2 expected numbers are met." in out
    code, out, err = run(capsys, "run", "R7", "--backend", "emulator")
    assert (code, out) == (2, "")
    assert "R7 runs on the simulator only" in err


def test_an_experiment_by_name_held_against_what_it_expects(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["run", "failure-nic", "--backend", "simulator", "--check", "--no-report", "--results", tmp_path]
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert out.count("as expected: ") == 3
    assert "slowdown of rail-only: 0.5 +- 0.001; measured 0.5" in out
    code, out, err = run(capsys, *words, "--set", "failures.at=20%")
    assert (code, err) == (1, "")
    assert "NOT as expected: slowdown of rail-only: 0.5 +- 0.001; measured 0.8" in out
    code, out, err = run(capsys, *words, "--json")
    assert code == 0
    assert [verdict["ok"] for verdict in json.loads(out)["check"]] == [True, True, True]


def test_every_flag_has_a_key(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = ["check=true", "report=false", "results=elsewhere", "backend=simulator", "engine=agent", "repetitions=2"]
    words = [word for key in keys for word in ("--set", key)]
    code, out, _ = run(capsys, "run", "failure-nic", *words)
    assert code == 0
    assert out.count("as expected: ") == 3
    (folder,) = (tmp_path / "elsewhere").iterdir()
    assert not (folder / "report.html").exists()
    code, out, _ = run(capsys, "run", "failure-nic", *words, "--results", "given")
    assert len(list((tmp_path / "given").iterdir())) == 1


def test_what_is_wrong_with_the_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(SCENARIO.format(backend="simulator"))
    for words, told in (
        (["run", "failure-nci"], "did you mean 'failure-nic'?"),
        (["run", tmp_path / "smal.yaml"], "did you mean"),
        (["run", scenario, "--set", "repetition=3"], "repetition: unknown key: did you mean 'repetitions'?"),
        (["run", scenario, "--set", "fabrics.domains"], "expected KEY=VALUE"),
        (["run", scenario, "--check", "--results", tmp_path / "out"], "expects nothing of the simulator"),
    ):
        code, out, err = run(capsys, *words)
        assert (code, out) == (2, "")
        assert told in err


def test_a_sweep_is_one_table_and_one_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(SCENARIO.format(backend="simulator"))
    code, out, err = run(capsys, "run", scenario, "--results", tmp_path / "out", "--sweep", "fabrics.domains=2,3")
    assert (code, err) == (0, "")
    assert [line.split()[:2] for line in out.splitlines()[:3]] == [
        ["fabrics.domains", "fabric"], ["2", "rail-only"], ["3", "rail-only"],
    ]  # fmt: skip
    (folder,) = (tmp_path / "out").iterdir()
    assert f"report: {folder / 'report.html'}" in out
    code, out, _ = run(capsys, "results", "--results", tmp_path / "out", "--json")
    (told,) = json.loads(out)
    assert (told["planned_cases"], told["cases"], told["status"]) == (2, 2, "complete")
    code, out, _ = run(capsys, "run", "--resume", folder, "--json", "--no-report", "--jobs", "1")
    assert code == 0
    assert [case["settings"] for case in json.loads(out)["summary"]["cases"]] == [
        {"fabrics.domains": 2}, {"fabrics.domains": 3},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--sweep", "seed"), "expected KEY=VALUE,VALUE"),
        (("--sweep", "sead=1"), "did you mean 'seed'"),
        (("--sweep", "backend=simulator,emulator"), "a sweep runs on one back end"),
        (("--backend", "emulator", "--sweep", "seed=1,2", "--jobs", "2"), "live cases run one after another"),
        (("--jobs", "2"), "belong to --sweep"),
        (("--resume", "latest"), "a result knows its own"),
    ],
)
def test_sweeps_that_cannot_be(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(SCENARIO.format(backend="simulator"))
    code, out, err = run(capsys, "run", scenario, "--results", tmp_path / "out", *words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert not (tmp_path / "out").exists()
