"""C7 to C11 on small fabrics: what follows by arithmetic is met exactly."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from controller.planning.planner import hashed, planned, replanned
from controller.policy import RoutingPolicy
from experiments.reference.planning import (
    ONE_NIC,
    POLICY,
    eight_jobs,
    hashed_shares,
    one_flow_a_job,
    rings,
    shares,
    training_jobs,
)
from experiments.reference.registry import DOWNTIME, GROUPS, PLANNING, REFERENCES, find, is_reference
from experiments.reference.row import ReferenceRow, exactly
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec, Failures

FABRIC = build(ONE_NIC)


def test_the_planning_experiments_have_names_of_their_own() -> None:
    assert not set(PLANNING) & set(REFERENCES)
    grouped = {one for name, members in GROUPS.items() for one in members if name != "paper-tables"}
    assert grouped == {*PLANNING, *DOWNTIME}
    assert [one.name for one in find(["planning-tables", "r1"])] == ["C7", "C8", "C9", "C10", "C11", "RP", "R1"]
    assert all(map(is_reference, (*PLANNING, *GROUPS)))


def test_one_flow_a_job_gets_its_share_of_the_fullest_uplink() -> None:
    demands = one_flow_a_job(FABRIC)
    for found in hashed_shares(FABRIC, demands, range(20)):
        assert 1 / found.slowest == pytest.approx(round(1 / found.slowest))
        assert len(found.jobs) == 8
    assert shares(FABRIC, planned(FABRIC, demands, POLICY)).jobs == pytest.approx([1.0] * 8)
    broken = shares(FABRIC, planned(FABRIC, demands, POLICY, Failures(links=frozenset({"leaf0-spine3"}))))
    assert (broken.mean, broken.slowest) == pytest.approx((7 / 8, 1 / 2))


def test_a_row_of_rounds_can_be_stored() -> None:
    found = shares(FABRIC, planned(FABRIC, one_flow_a_job(FABRIC), POLICY))
    assert json.loads(json.dumps(ReferenceRow("C7", "a case", "", found.slowest, exactly(1.0)).to_dict()))["agrees"]


def test_planned_jobs_get_all_that_the_spines_have_and_hashed_ones_less() -> None:
    for ratio in (1.0, 2.0):
        fabric = build(replace(ONE_NIC, oversubscription=ratio))
        demands = eight_jobs(fabric)
        good = shares(fabric, planned(fabric, demands, POLICY))
        assert good.jobs == pytest.approx([1 / ratio] * 8)
        assert all(found.mean < 0.9 * good.mean for found in hashed_shares(fabric, demands, range(5)))


def test_a_lost_uplink_costs_least_with_a_new_plan_and_re_weighted_bytes() -> None:
    failures = Failures(links=frozenset({"leaf0-spine0"}))
    before = planned(FABRIC, eight_jobs(FABRIC), POLICY)
    evenly = shares(FABRIC, replanned(before, FABRIC, POLICY, failures, reweight=False)).mean
    after = shares(FABRIC, replanned(before, FABRIC, POLICY, failures)).mean
    assert evenly == pytest.approx(0.8)
    assert evenly < after <= 7 / 8 + 1e-6


def test_rail_only_needs_no_plan_until_something_breaks() -> None:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    demands = rings("one", fabric, (0, 1, 2, 3), 1e9, 8)
    assert shares(fabric, hashed(fabric, demands, RoutingPolicy(seed=3))).slowest == pytest.approx(1.0)
    failures = Failures(links=frozenset({"d0r0-rail0"}))
    # The routing spreads the orphaned edge's 8 channels as 3, 3 and 2 over NICs that have 8 already.
    unplanned = shares(fabric, hashed(fabric, demands, POLICY, failures)).slowest
    assert unplanned == pytest.approx(8 / 11)
    assert shares(fabric, planned(fabric, demands, POLICY, failures)).slowest == pytest.approx(3 / 4, rel=0.01)


def test_the_jobs_communicate_less_and_less() -> None:
    sent = [job.edge_bytes * 8 / 400e9 / job.compute_s for job in training_jobs()]
    assert sent == sorted(sent, reverse=True)
    assert sent[-1] < 0.05 < sent[1]
