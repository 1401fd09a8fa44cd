"""What is read off runs with planned traffic, and the two figures of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.figures.planning import shares_figure, uplink_figure
from experiments.figures.style import figure_bytes
from experiments.outcome import FAILURE, HEALTHY
from experiments.planned_runs import planned_shares, uplink_load
from simulator.fluid import TCP_GOODPUT
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec
from topologies.scale import Scale
from workloads.records import LinkSeries

FABRIC = build(FabricSpec(FabricKind.SPINE_LEAF, 16, 1, spines=8, domains_per_leaf=8))
SCALE = Scale(20_000.0, 1000.0)
NIC_BYTES_PER_S = SCALE.emulated_rate_mbps(FABRIC.spec.nic_rate_mbps) * 1e6 / 8 * TCP_GOODPUT
DOWN = frozenset({"leaf0-spine0"})


def row(job: int, src: int, dst: int, start_s: float, end_s: float | None, size_bytes: int) -> dict[str, Any]:
    return {
        "group": f"job{job}", "src_rank": src, "dst_rank": dst, "start_s": start_s, "end_s": end_s,
        "size_bytes": size_bytes,
    }  # fmt: skip


def rows(jobs: int = 8) -> list[dict[str, Any]]:
    """Two rounds of jobs both ways: the first at half of a NIC's rate, the second at full rate."""
    size = int(NIC_BYTES_PER_S)
    return [
        row(job, *pair, start_s, start_s + took_s, size)
        for job in range(jobs)
        for start_s, took_s in ((0.0, 2.0), (2.0, 1.0))
        for pair in ((job, 8 + job), (8 + job, job))
    ]


def test_a_share_is_the_time_at_full_rate_over_the_time_it_took() -> None:
    whole = planned_shares(FABRIC, SCALE, rows(), "static", HEALTHY, "static", frozenset(), 0.0)
    assert whole is not None
    assert whole.jobs == pytest.approx([2 / 3] * 8)
    assert (whole.mean, whole.slowest, whole.fastest) == pytest.approx((2 / 3,) * 3)
    assert whole.optimum == pytest.approx(1.0)
    assert whole.reference == ((0.98, 1.0), "C7, recalled")


def test_after_a_failure_only_what_starts_later_counts_and_the_optimum_is_lower() -> None:
    after = planned_shares(FABRIC, SCALE, rows(), "dynamic", FAILURE, "dynamic", DOWN, 0.5)
    assert after is not None
    assert after.jobs == pytest.approx([1.0] * 8)
    assert after.optimum == pytest.approx(7 / 8)
    assert after.reference == ((0.84, 0.84), "C8, recalled")
    assert planned_shares(FABRIC, SCALE, rows(), "dynamic", FAILURE, "dynamic", DOWN, 9.0) is None
    lost = [*rows(), row(0, 0, 8, 5.0, None, 10)]
    assert planned_shares(FABRIC, SCALE, lost, "dynamic", FAILURE, "dynamic", DOWN, 0.5) is None


def test_published_shares_are_for_their_case_only() -> None:
    four = planned_shares(FABRIC, SCALE, rows(4), "static", HEALTHY, "static", frozenset(), 0.0)
    nic = planned_shares(FABRIC, SCALE, rows(), "static", FAILURE, "static", frozenset({"d15r0-leaf1"}), 0.0)
    assert four is not None
    assert four.reference is None
    assert nic is None or nic.reference is None


def series(carried: dict[str, float]) -> LinkSeries:
    ids = tuple(link.id for link in FABRIC.links)
    last = np.array([carried.get(link_id, 0.0) for link_id in ids])
    return LinkSeries(ids, np.array([0.0, 1.0]), np.stack([0 * last, last]), np.zeros((2, len(ids))))


def test_uplinks_are_compared_without_the_one_that_fails() -> None:
    carried = {f"leaf{leaf}-spine{spine}": 10.0 for leaf in (0, 1) for spine in range(8)}
    carried |= {"leaf0-spine0": 1.0, "leaf1-spine3": 25.0}
    load = uplink_load(FABRIC, series(carried), "static", FAILURE, DOWN)
    assert load is not None
    assert len(load.link_ids) == 16
    assert load.mean_bytes == pytest.approx((14 * 10 + 25) / 15)
    assert load.fullest == pytest.approx(25 / 11)
    without_spines = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    assert uplink_load(without_spines, series({}), "rail-only", HEALTHY, frozenset()) is None


def test_the_figures_are_drawn_and_always_alike() -> None:
    loads = [
        uplink_load(FABRIC, series({"leaf0-spine1": 5.0}), label, condition, failed)
        for label, condition, failed in (("one", HEALTHY, frozenset()), ("two", FAILURE, DOWN), ("3", HEALTHY, DOWN))
    ]
    shares = [
        planned_shares(FABRIC, SCALE, rows(), mode, condition, mode, failed, 0.0)
        for mode, condition, failed in (("hashed", HEALTHY, frozenset()), ("dynamic", FAILURE, DOWN))
    ]
    for make, data in ((uplink_figure, loads), (shares_figure, shares)):
        assert None not in data
        first, second = (figure_bytes(make(data), "svg") for _ in range(2))  # type: ignore[operator]
        assert first == second
        assert first.startswith(b"<?xml")
