"""What is told of a run while it goes on, from the reports of an agent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dashboard.progress import NOW_S, ReportedRun
from topologies.builders import build
from topologies.model import Fabric, FabricKind, FabricSpec
from topologies.scale import Scale
from workloads.collectives import GROUPINGS, collective
from workloads.schedule import Schedule

SCALE = Scale(1000.0, 1.0)
GPUS = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))


def all_reduce(fabric: Fabric = GPUS, group: str = "rails") -> Schedule:
    return collective("all-reduce", GROUPINGS[group](fabric), 8_000_000, len(fabric.gpus), name="x", seed=0)


def started(schedule: Schedule | None, transfers: int | None = None) -> ReportedRun:
    count = len(schedule.transfers) if schedule is not None else transfers
    return ReportedRun({"name": "x", "engine": "agent", "transfers": count}, schedule, SCALE)


def report(t_s: float, ended: Any = (), active: Any = ()) -> dict[str, Any]:
    return {"event": "transfers", "t_s": t_s, "ended": list(ended), "active": list(active), "computed_s": None}


def whole(schedule: Schedule, transfer_id: int, start_s: float, end_s: float) -> list[Any]:
    return [transfer_id, "complete", start_s, end_s, SCALE.emulated_bytes(schedule.by_id[transfer_id].size_bytes), ""]


def test_a_run_that_was_started_elsewhere_is_counted() -> None:
    run = started(None, 3)
    run.take({"event": "links", "t_s": 0.2, "a_to_b_bytes": [], "b_to_a_bytes": []})
    run.take(report(0.4, [[0, "complete", 0.0, 0.3, 5, ""], [1, "failed", None, None, 0, "no"]], [[2, 1]]))
    shown = run.progress.shown()
    assert (shown["ended"], shown["failed"], shown["active"], shown["t_s"]) == (2, 1, 1, 0.4)
    assert (shown["share"], shown["busbw_gbps"], shown["calls"]) == (None, None, [])
    run.take({"event": "run-end", "t_s": 0.5})
    assert run.progress.shown()["running"] is False


def test_calls_end_with_their_last_transfer_and_have_a_time_and_a_bus_bandwidth() -> None:
    schedule = all_reduce()
    by_group: dict[str, list[int]] = {}
    for transfer in schedule.transfers:
        by_group.setdefault(transfer.tag.group, []).append(transfer.id)
    first, second = by_group.values()
    run = started(schedule)
    run.take(report(1.0, [whole(schedule, one, 0.1, 0.9) for one in first[:-1]]))
    assert run.progress.shown()["last"] == []
    run.take(report(2.0, [whole(schedule, first[-1], 1.0, 1.6), whole(schedule, second[0], 0.2, 1.9)]))
    shown = run.progress.shown()
    assert shown["calls"] == [{"collective": "all-reduce", "calls": 2, "ended": 1, "mean_s": 1.5}]
    (last,) = shown["last"]
    # 8 MB in 1.5 emulated seconds at time 1, among two ranks: 2 * (n - 1) / n is 1.
    assert (last["duration_s"], last["real_s"]) == (1.5, pytest.approx(1.5))
    assert last["busbw_gbps"] == pytest.approx(8e6 * 8 / 1.5 / 1e9, abs=0.01)
    run.take(report(3.0, [whole(schedule, one, 0.2, 2.9) for one in second[1:]]))
    assert run.progress.shown()["calls"][0]["ended"] == 2
    assert run.progress.shown()["share"] == 1.0


def test_a_call_with_a_failed_transfer_never_ends() -> None:
    schedule = all_reduce(group="all")
    run = started(schedule)
    ids = [transfer.id for transfer in schedule.transfers]
    ended = [whole(schedule, one, 0.0, 1.0) for one in ids[1:]] + [[ids[0], "incomplete", 0.0, None, 7, "given up"]]
    run.take(report(1.0, ended))
    assert run.progress.shown()["calls"][0]["ended"] == 0
    assert run.progress.shown()["failed"] == 1


def test_bus_bandwidth_so_far_and_just_now() -> None:
    schedule = all_reduce(group="all")
    total = sum(SCALE.emulated_bytes(transfer.size_bytes) for transfer in schedule.transfers)
    run = started(schedule)
    run.take(report(1.0, active=[[0, total * 0.1]]))
    run.take(report(2.0, active=[[0, total * 0.4]]))
    shown = run.progress.shown()
    whole_gbps = 8e6 * 8 / 1e9 * 1.5  # in one second, among four ranks
    assert NOW_S == 1.0
    assert shown["share"] == 0.4
    assert shown["busbw_gbps"] == pytest.approx(whole_gbps * 0.2, abs=0.01)
    assert shown["now_gbps"] == pytest.approx(whole_gbps * 0.3, abs=0.01)


def test_what_is_no_collective_has_no_bus_bandwidth() -> None:
    schedule = replace(all_reduce(), collective="iteration")
    run = started(schedule)
    run.take(report(1.0, [whole(schedule, schedule.transfers[0].id, 0.0, 1.0)]))
    shown = run.progress.shown()
    assert shown["share"] is not None
    assert (shown["busbw_gbps"], shown["now_gbps"]) == (None, None)
