import json
import os
from datetime import datetime
from pathlib import Path

import pandas
import pytest

from experiments.columns import TRANSFERS
from experiments.drawing import draw_result
from experiments.errors import ResultsError
from experiments.files import json_ready, slug, write_atomically
from experiments.plan import simulator_backend
from experiments.provenance import git_commit, provenance
from experiments.results import ResultsFolder
from experiments.run import run_scenario
from experiments.scenario import load_scenario
from experiments.stored import read_result
from experiments.tables import COLUMNS, footnotes, number, percent, rows, summary
from tests.experiments.cases import made, one, small

NOW = datetime(2026, 1, 2, 3, 4, 5)


def silent(stage: str, share: float | None) -> None:
    assert stage
    assert share is None or 0 <= share <= 1


def test_folders_never_collide(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        with ResultsFolder(tmp_path / "results", "A b/c", NOW) as folder:
            names.append(folder.path.name)
    assert names == ["20260102-030405-a-b-c", "20260102-030405-a-b-c-2", "20260102-030405-a-b-c-3"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="file"):
        ResultsFolder(tmp_path / "file", "x")


def test_a_failed_write_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, b"old")

    def broken(source: object, target: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_under_sudo_everything_belongs_to_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, int, int]] = []
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "2345")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda path, uid, gid: given.append((str(path), uid, gid)))
    with ResultsFolder(tmp_path / "results", "x", NOW) as folder:
        folder.write_text("runs/a/b.txt", "text")
        folder.note("started")
        folder.note("ended")
    assert {(uid, gid) for _, uid, gid in given} == {(1234, 2345)}
    owned = [path for path, _, _ in given]
    assert str(tmp_path / "results") in owned
    assert str(folder.path) in owned
    assert str(folder.path / "runs" / "a") in owned
    assert str(folder.path / "journal.jsonl") in owned
    assert len(owned) == 7
    assert str(tmp_path) not in owned


def test_json_has_no_nan() -> None:
    assert json_ready({"a": [float("nan"), (1.5, float("inf"))]}) == {"a": [None, [1.5, None]]}


def test_provenance_and_commit(tmp_path: Path) -> None:
    origin = provenance(5, ["railbed", "run"], {"openvswitch": "3.1"})
    assert origin["seed"] == 5
    assert origin["openvswitch"] == "3.1"
    assert origin["libraries"]["numpy"]
    assert git_commit(tmp_path) is None
    assert slug("Ä b--C!") == "b-c"


def test_a_run_from_end_to_end(tmp_path: Path) -> None:
    stages: list[tuple[str, float | None]] = []
    results = run_scenario(small(), simulator_backend, lambda stage, share: stages.append((stage, share)),
                           results_root=tmp_path / "results", command=["railbed", "run", "a b.yaml"])  # fmt: skip
    assert results.complete
    shares = [share for _, share in stages if share is not None]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    folder = results.folder
    assert load_scenario(folder / "scenario.yaml") == small()
    told = json.loads((folder / "summary.json").read_text())
    assert told["status"] == "complete"
    assert len(told["outcomes"]) == len(results.outcomes) == 8
    assert json.loads((folder / "provenance.json").read_text())["command"] == ["railbed", "run", "a b.yaml"]
    run = folder / "runs" / "3-rail-only--all-reduce--failure"
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [event["kind"] for event in events].count("link-down") == 1
    assert json.loads((run / "run.json").read_text())["outcome"]["outages"][0]["traffic"]["during_bytes"] == 0
    figures = sorted(path.name for path in (folder / "figures").iterdir())
    assert len(figures) == 2 * len(["completion", "outages", *["fabric"] * 2, *["matrix"] * 2, *["over time"] * 8])
    assert results.report
    report = results.report.read_text()
    assert "railbed run &#39;a b.yaml&#39;" in report
    journal = [json.loads(line)["kind"] for line in (folder / "journal.jsonl").read_text().splitlines()]
    assert journal == ["started", *["run-started", "run-ended"] * 8, "ended"]


def test_pandas_reads_transfers_and_links(tmp_path: Path) -> None:
    folder = run_scenario(small(), simulator_backend, silent, results_root=tmp_path, report=False).folder
    run = folder / "runs" / "3-rail-only--all-reduce--failure"
    transfers = pandas.read_parquet(run / "transfers.parquet")
    assert list(transfers.columns) == TRANSFERS.names
    assert set(transfers["status"]) == {"complete"}
    assert transfers["real_size_bytes"].sum() == 2 * 3 * 256 * 2**20
    assert (transfers["end_s"] == transfers["predicted_end_s"]).all()
    links = pandas.read_parquet(run / "links.parquet")
    assert set(links["link"]) >= {"d0r0-rail0", "d0r0-nv0"}
    assert (links.groupby("link", observed=True)["a_to_b_bytes"].diff().dropna() >= 0).all()
    carried = links.groupby("link", observed=True)[["a_to_b_bytes", "b_to_a_bytes"]].max().sum(axis=1)
    whole = json.loads((run / "run.json").read_text())["outcome"]["outages"][0]["traffic"]
    assert carried["d0r0-rail0"] == pytest.approx(whole["before_bytes"] + whole["after_bytes"])


def test_a_stored_result_is_drawn_again_to_the_same_bytes(tmp_path: Path) -> None:
    folder = run_scenario(one(), simulator_backend, silent, results_root=tmp_path).folder
    drawn = {path: path.read_bytes() for path in (*folder.glob("figures/*"), folder / "report.html")}
    assert len(drawn) > 5
    for path in drawn:
        path.unlink()
    draw_result(read_result(folder))
    assert {path: path.read_bytes() for path in (*folder.glob("figures/*"), folder / "report.html")} == drawn


def test_the_same_scenario_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (run_scenario(one(), simulator_backend, silent, results_root=tmp_path).folder for _ in range(2))
    for path in sorted(first.rglob("*")):
        if path.is_file() and path.name not in ("provenance.json", "report.html", "journal.jsonl"):
            assert path.read_bytes() == (second / path.relative_to(first)).read_bytes(), path.name


def test_the_table_says_what_was_found() -> None:
    from rich.console import Console

    outcomes = [outcome for _, _, outcome in made(small())]
    table = rows(outcomes)
    assert {len(row) for row in table} == {len(COLUMNS)}
    notes = " ".join(footnotes(outcomes))
    assert "busbw = algbw * 2(n-1)/n with n = 4" in notes
    assert "not the measured rate of any link" in notes
    assert "by construction" in notes
    assert "Failing: d0r0-rail0 on rail-only" in notes
    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115 - closed with the console
    console.print(summary(outcomes))
    text = console.export_text()
    assert "…" not in text
    for label in ("rail-only", "rail-optimized", "link fails", "all-to-all"):
        assert label in text


def test_numbers_to_read() -> None:
    assert [number(value, "-") for value in (None, 0, 0.01234, 8.416, 99.99, 383.4)] == [
        "-", "0", "0.0123", "8.42", "100", "383",
    ]  # fmt: skip
    assert [percent(value) for value in (None, 0.131, -0.02)] == ["-", "+13.1 %", "-2.0 %"]
