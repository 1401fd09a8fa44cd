"""Rounds of jobs on planned paths: closed forms."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from controller.planning.planner import hashed, planned, replanned
from controller.planning.traffic import Demand
from controller.policy import RoutingPolicy
from simulator.errors import SimulationError
from simulator.rounds import levelled_by_measuring, made_rounds, round_times_s
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec, Failures, Gpu

FABRIC = build(FabricSpec(FabricKind.SPINE_LEAF, 16, 1, spines=8, domains_per_leaf=8))
DEMANDS = [Demand(f"job{job}", Gpu(job, 0), Gpu(8 + job, 0), 1e9, 1) for job in range(8)]
ALONE_S = 1e9 * 8 / 400e9


def test_a_job_takes_as_long_as_the_flows_on_its_uplink() -> None:
    for seed in range(20):
        plan = hashed(FABRIC, DEMANDS, RoutingPolicy(seed=seed))
        uplinks = {demand.job: flows[0].lanes[1] for demand, flows in zip(DEMANDS, plan.flows, strict=True)}
        shared = {job: list(uplinks.values()).count(lane) for job, lane in uplinks.items()}
        assert round_times_s(FABRIC, plan) == pytest.approx({job: ALONE_S * count for job, count in shared.items()})


def test_jobs_that_compute_use_the_time_that_others_leave() -> None:
    one, other = DEMANDS[0], replace(DEMANDS[1], src=Gpu(0, 0))
    plan = planned(FABRIC, [one, other], RoutingPolicy())
    assert round_times_s(FABRIC, plan) == pytest.approx({"job0": 2 * ALONE_S, "job1": 2 * ALONE_S})
    # Each sends while the other computes, once they have found their turns.
    taken = round_times_s(FABRIC, plan, {"job0": ALONE_S, "job1": 2 * ALONE_S}, rounds=40)
    assert 2 * ALONE_S <= taken["job0"] < 3 * ALONE_S
    assert 3 * ALONE_S <= taken["job1"] < 4 * ALONE_S
    alone = round_times_s(FABRIC, planned(FABRIC, [one], RoutingPolicy()), {"job0": 5 * ALONE_S})
    assert alone == pytest.approx({"job0": 6 * ALONE_S})


def test_planned_channels_fill_the_nic() -> None:
    plan = planned(FABRIC, [replace(demand, channels=8) for demand in DEMANDS], RoutingPolicy())
    assert mean(round_times_s(FABRIC, plan).values()) == pytest.approx(ALONE_S)


def test_a_plan_with_lost_connections_has_no_rounds() -> None:
    plan = planned(FABRIC, DEMANDS, RoutingPolicy(), Failures(nodes=frozenset({"d3r0"})))
    with pytest.raises(SimulationError, match="channel 0 from d3r0 to d11r0 has no path"):
        round_times_s(FABRIC, plan)


def test_measuring_moves_bytes_until_the_channels_of_a_demand_end_together() -> None:
    """One of eight uplinks down: equal bytes give 0.8, measured ones come near the bound of 7/8."""
    fabric = build(FabricSpec(FabricKind.SPINE_LEAF, 16, 1, spines=8, domains_per_leaf=8))
    demands = [
        Demand(f"job{job}", Gpu(src, 0), Gpu(dst, 0), 1e9, 8)
        for job in range(8)
        for src, dst in ((job, 8 + job), (8 + job, job))
    ]
    plan = planned(fabric, demands, RoutingPolicy())
    equal = replanned(plan, fabric, RoutingPolicy(), Failures(links=frozenset({"leaf0-spine0"})), reweight=False)
    level = levelled_by_measuring(fabric, equal)
    ideal_s = 8e9 / (fabric.spec.nic_rate_mbps * 1e6)
    before, after = ([ideal_s / taken_s for taken_s in round_times_s(fabric, one).values()] for one in (equal, level))
    assert before == pytest.approx([0.8] * 8)
    assert min(after) > 0.84
    assert mean(after) < 0.88
    for demand, flows in zip(level.demands, level.flows, strict=True):
        assert sum(flow.size_bytes for flow in flows) == pytest.approx(demand.size_bytes)
    taken = made_rounds(fabric, equal)
    assert set(taken.flow_s) == {each for demand in demands for each in demand.connections}
    assert max(taken.flow_s.values()) <= max(taken.job_s.values()) * (1 + 1e-9)
