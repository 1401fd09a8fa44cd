"""A stored result, made by the simulator, as the messages that the page shows of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashboard.errors import RecordingError
from dashboard.recording import Shown
from dashboard.stored_result import PAUSE_S, SHORTEST_S, shown_of
from experiments.plan import simulator_backend
from experiments.run import run_scenario
from experiments.scenario import parse_scenario
from experiments.stored import StoredResult, StoredSweep, read_result
from tests.experiments.cases import SMALL, small
from topologies.errors import RailbedError


def quiet(_stage: str, _share: float | None) -> None:
    return None


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> StoredResult:
    root = tmp_path_factory.mktemp("results")
    return read_result(run_scenario(small(), simulator_backend, quiet, results_root=root, report=False).folder)


@pytest.fixture(scope="module")
def shown(result: StoredResult) -> list[Shown]:
    return shown_of(result)


def of(shown: list[Shown], event: str, on: str | None = None) -> Iterator[tuple[float, dict[str, Any]]]:
    for at_s, message in shown:
        if message["event"] == event and on in (None, message.get("on")):
            yield at_s, message


def test_both_fabrics_are_drawn_and_their_runs_are_side_by_side(result: StoredResult, shown: list[Shown]) -> None:
    assert shown[0].message["names"] == ["rail-only", "rail-optimized"]
    assert [message["on"] for _, message in of(shown, "fabric")] == ["rail-only", "rail-optimized"]
    rounds = [message["workload"] for _, message in of(shown, "workload") if message["state"] == "running"]
    assert rounds == ["all-reduce", "all-to-all", "all-reduce, with a failure", "all-to-all, with a failure"]
    begins = [at_s for at_s, message in of(shown, "workload") if message["state"] == "running"]
    overs = [at_s for at_s, message in of(shown, "workload") if message["state"] == "over"]
    assert all(begin - over == pytest.approx(PAUSE_S, abs=1e-3) for begin, over in zip(begins[1:], overs, strict=False))
    assert [at_s for at_s, _ in shown] == sorted(at_s for at_s, _ in shown)
    assert len(list(of(shown, "finished"))) == len(result.runs)


def test_the_loads_add_up_to_what_the_links_carried(result: StoredResult, shown: list[Shown]) -> None:
    run = result.runs[0]
    (_, fabric) = next(of(shown, "fabric", run.outcome.fabric))
    over_s = next(at_s for at_s, message in of(shown, "workload") if message["state"] == "over")
    loads = [message for at_s, message in of(shown, "loads", run.outcome.fabric) if at_s <= over_s]
    links = run.links()
    for place, link_id in enumerate(fabric["link_ids"]):
        carried_mb = before_s = 0.0
        for message in loads:
            both_mbps = message["a_to_b_mbps"][place] + message["b_to_a_mbps"][place]
            carried_mb += both_mbps / 8 * (message["t_s"] - before_s)
            before_s = message["t_s"]
        assert carried_mb == pytest.approx(links.total_bytes(link_id) / 1e6, rel=0.01, abs=0.02)


def test_progress_ends_with_all_bytes_and_the_calls_of_the_run(shown: list[Shown]) -> None:
    (_, over) = next(of(shown, "workload", None))
    assert over["state"] == "running"
    runs = [message for _, message in of(shown, "run", "rail-only")]
    last = next(message for message in runs if not message["running"])
    assert (last["ended"], last["share"]) == (last["transfers"], 1.0)
    assert last["calls"][0]["ended"] == last["calls"][0]["calls"] == 1
    (_, finished) = next(of(shown, "finished", "rail-only"))
    assert last["last"][0]["busbw_gbps"] == pytest.approx(finished["busbw_gbps"], rel=0.01)
    # The simulator stores no bytes of transfers on their way: nothing is made up about them.
    assert all(message["now_gbps"] is None and message["busbw_gbps"] is None for message in runs)


def test_a_failure_is_shown_while_it_lasts_and_has_a_timeline(result: StoredResult, shown: list[Shown]) -> None:
    failed = next(run for run in result.runs if run.outcome.outages)
    (outage,) = failed.outcome.outages
    wrong = [(at_s, message["links"]) for at_s, message in of(shown, "impairments", failed.outcome.fabric)]
    begin_s = next(at_s for at_s, one in of(shown, "workload") if "failure" in one["workload"])
    during = [(at_s - begin_s, links) for at_s, links in wrong if at_s >= begin_s][1]
    assert during[0] == pytest.approx(outage.down_s, abs=0.01)
    assert [(state["link"], state["down"]) for state in during[1]] == [(outage.link_id, True)]
    (_, timeline) = next(of(shown, "timeline", failed.outcome.fabric))
    assert (timeline["target"], timeline["gap_ms"]) == (outage.link_id, None)
    assert outage.rerouted_after_s is not None
    assert timeline["steps"][-1] == {"name": "rules in force", "at_ms": round(outage.rerouted_after_s * 1000, 1)}
    assert wrong[-1][1] == []


@pytest.mark.parametrize(
    ("failure", "key", "value"),
    [
        ("{at: 40%, kind: degrade, rate: 25%}", "rate_mbps", pytest.approx(5.0)),
        ("{at: 40%, kind: blackhole, direction: in}", "blackhole", ["in"]),
    ],
)
def test_links_that_work_badly_are_shown_as_on_a_running_fabric(
    tmp_path: Path, failure: str, key: str, value: Any
) -> None:
    text = SMALL.replace("{at: 40%, restore: 70%}", failure).replace("domains: 2, rails: 2", "domains: 4, rails: 4")
    made = run_scenario(parse_scenario(text), simulator_backend, quiet, results_root=tmp_path, report=False)
    wrong = [message["links"] for _, message in of(shown_of(read_result(made.folder), ["rail-only"]), "impairments")]
    (state,) = next(links for links in wrong if links)
    assert state[key] == value


def test_one_fabric_of_several(result: StoredResult) -> None:
    shown = shown_of(result, ["rail-optimized"])
    assert shown[0].message["names"] == ["rail-optimized"]
    assert {message["on"] for _, message in of(shown, "loads")} == {"rail-optimized"}


def test_a_run_too_short_to_see_is_shown_slower(result: StoredResult, tmp_path: Path) -> None:
    text = SMALL.replace("backend: simulator", "scale: {rate: 1, time: 1}\nbackend: simulator")
    made = run_scenario(parse_scenario(text), simulator_backend, quiet, results_root=tmp_path, report=False)
    short = read_result(made.folder)
    assert max(run.outcome.duration_s or 0.0 for run in short.runs) < 0.1
    shown = shown_of(short)
    assert shown[0].message["note"].startswith("1 s of a run takes 1")
    over_s = max(at_s for at_s, message in of(shown, "workload") if message["state"] == "over")
    assert over_s > SHORTEST_S


def test_frames_of_a_long_run_on_a_large_fabric_are_further_apart(
    result: StoredResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.stored_run.LEAST_FRAMES", 3)
    monkeypatch.setattr("dashboard.stored_run.MOST_VALUES", 1)
    shown = shown_of(result, ["rail-only"])
    runs = [run for run in result.runs if run.outcome.fabric == "rail-only"]
    assert len(list(of(shown, "loads"))) <= len(runs) * 5


def test_a_run_that_was_not_made_says_so(result: StoredResult) -> None:
    lost = result.runs[0]
    outcome = replace(lost.outcome, status="not made", problems=("no room",), outages=())
    runs = (replace(lost, outcome=outcome), *result.runs[1:])
    shown = shown_of(replace(result, runs=runs))
    (_, finished) = next(of(shown, "finished", lost.outcome.fabric))
    assert (finished["status"], finished["problems"]) == ("not made", ["no room"])


@pytest.mark.parametrize(
    ("labels", "said"),
    [(["rail-onyl"], "rail-only"), (["rail-only", "rail-optimized", "spine-leaf"], "has no fabric 'spine-leaf'")],
)
def test_fabrics_that_cannot_be_shown_are_told(result: StoredResult, labels: list[str], said: str) -> None:
    with pytest.raises(RecordingError, match=said):
        shown_of(result, labels)


def test_what_cannot_be_shown_at_all_is_told(result: StoredResult, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="holds no run"):
        shown_of(replace(result, runs=()))
    with pytest.raises(RecordingError, match="is a sweep"):
        shown_of(StoredSweep(tmp_path, "x", "complete", ()))
    large = replace(result.runs[0], spec=replace(result.runs[0].spec, domains=1025))
    with pytest.raises(RecordingError, match="2,050 GPUs"):
        shown_of(replace(result, runs=(large,)))


def test_a_damaged_file_of_events_is_told(tmp_path: Path) -> None:
    made = run_scenario(small(), simulator_backend, quiet, results_root=tmp_path, report=False)
    run = read_result(made.folder).runs[0]
    (run.path / "events.jsonl").write_text("{}\n")
    with pytest.raises(RailbedError, match=r"events\.jsonl cannot be read"):
        run.events()
