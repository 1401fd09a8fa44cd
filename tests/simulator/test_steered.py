"""Runs with planned traffic: held against the fluid model, the arithmetic, and what failures must and must not do."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from controller.planning.steering import PlanMode, Planning
from controller.policy import RoutingPolicy
from experiments.outcome import completion_s
from simulator.errors import SimulationError
from simulator.fluid import simulate
from simulator.routes import controller_router
from simulator.steered import simulate_steered
from topologies.builders import build
from topologies.model import Fabric, FabricKind, FabricSpec, LinkKind
from topologies.scale import Scale
from workloads.collectives import collective, rail_rings
from workloads.failures import FailureKind, LinkFailure
from workloads.jobs import at_once, in_rounds
from workloads.records import EventKind, RunRecord, TransferStatus
from workloads.schedule import Computation, Schedule

SCALE = Scale(20_000.0, 1000.0)
ONE_NIC = build(FabricSpec(FabricKind.SPINE_LEAF, 16, 1, spines=8, domains_per_leaf=8))
POLICY = RoutingPolicy(seed=1)
ROUNDS = 6


def jobs(rounds: int = ROUNDS) -> Schedule:
    """Eight all-reduces of two GPUs each, side by side, round after round."""
    one_each = [collective("all-reduce", {"all": (job, 8 + job)}, 100_000_000, 16, name="one") for job in range(8)]
    return at_once([in_rounds(one, rounds) for one in one_each], "eight")


def made(mode: PlanMode, channels: int = 8, schedule: Schedule | None = None, fabric: Fabric = ONE_NIC, **values):
    return simulate_steered(fabric, schedule or jobs(), POLICY, Planning(mode, channels), scale=SCALE, **values)


def shares(record: RunRecord, skip: int = 0) -> list[float]:
    """Bus bandwidth of every job as a share of its NIC's rate, without the first rounds."""
    spec, phases = record.fabric, 1 + max(one.tag.phase for one in jobs(1).transfers)
    ends: dict[str, list[float]] = defaultdict(lambda: [0.0] * (ROUNDS * phases + 1))
    sent: dict[str, int] = defaultdict(int)
    by_id = {one.transfer_id: one for one in record.transfers}
    for one in record.schedule.transfers:
        of_job = ends[one.tag.group]
        of_job[one.tag.phase + 1] = max(of_job[one.tag.phase + 1], by_id[one.id].end_s)
        if one.tag.phase >= skip * phases and one.src < one.dst:
            sent[one.tag.group] += by_id[one.id].size_bytes
    rate = SCALE.emulated_rate_mbps(spec.nic_rate_mbps) * 1e6 / 8 * 1448 / 1514
    return [sent[job] / rate / (of_job[-1] - of_job[skip * phases]) for job, of_job in ends.items()]


def test_eight_jobs_planned_have_their_nics_for_themselves_and_hashed_they_have_not() -> None:
    for mode in (PlanMode.STATIC, PlanMode.DYNAMIC):
        assert shares(made(mode)) == pytest.approx([1.0] * 8)
    found = shares(made(PlanMode.HASHED))
    assert min(found) == pytest.approx(8 / 14)  # fourteen channels meet on an uplink
    assert sum(found) / 8 < 0.75
    assert min(shares(made(PlanMode.STATIC, channels=1))) == pytest.approx(1.0)


def test_a_new_plan_and_measured_bytes_get_near_seven_eighths_after_an_uplink_is_lost() -> None:
    failures = [LinkFailure("leaf0-spine0", 0.2)]
    static, dynamic = (made(mode, failures=failures) for mode in (PlanMode.STATIC, PlanMode.DYNAMIC))
    assert static.complete
    assert dynamic.complete
    assert max(shares(static, 1)) <= 0.8 * 1.01
    assert 0.84 < min(shares(dynamic, 2)) <= max(shares(dynamic, 2)) <= 0.875 * 1.01
    kinds = [event.kind for event in dynamic.events]
    assert kinds == [EventKind.LINK_DOWN, EventKind.REROUTED, EventKind.REPLANNED]
    assert EventKind.REPLANNED not in [event.kind for event in static.events]
    assert static.links.total_bytes("leaf0-spine0") == pytest.approx(dynamic.links.total_bytes("leaf0-spine0"), rel=0.1)


def test_the_first_plan_is_back_when_the_link_is() -> None:
    record = made(PlanMode.DYNAMIC, failures=[LinkFailure("leaf0-spine0", 0.2, 3.0)])
    assert record.complete
    assert shares(record, ROUNDS - 1) == pytest.approx([1.0] * 8, rel=0.02)
    assert [event.kind for event in record.events].count(EventKind.REPLANNED) == 2


def test_all_bytes_are_there_and_cross_the_spines_once() -> None:
    record = made(PlanMode.DYNAMIC, failures=[LinkFailure("leaf1-spine3", 1.0, 4.0)])
    assert record.complete
    payload = sum(one.size_bytes for one in record.transfers)
    up = sum(record.links.total_bytes(link.id) for link in ONE_NIC.links if link.id.startswith("leaf0-"))
    assert up * 1448 / 1514 == pytest.approx(payload, rel=1e-6)


@pytest.mark.parametrize("mode", PlanMode)
def test_where_there_is_one_path_it_is_the_fluid_model(mode: PlanMode) -> None:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 2))
    ring = collective("all-reduce", rail_rings(fabric), 64 << 20, 8, name="rings")
    last = ring.transfers[-1].id
    schedule = replace(
        ring,
        transfers=tuple(replace(one, delay_s=1e-3) if one.tag.phase else one for one in ring.transfers),
        computations=(Computation(last + 1, 3, 2e-3, (last,), "step"),),
    )
    fluid = simulate(fabric, schedule, controller_router(fabric, POLICY), scale=SCALE)
    steered = made(mode, schedule=schedule, fabric=fabric)
    assert completion_s(steered) == pytest.approx(completion_s(fluid))
    assert steered.last_computation_s == pytest.approx(fluid.last_computation_s)
    for one, other in zip(steered.transfers, fluid.transfers, strict=True):
        assert (one.start_s, one.end_s) == (pytest.approx(other.start_s), pytest.approx(other.end_s))
    for link in fabric.links:
        if link.kind is not LinkKind.HOST:
            assert steered.links.total_bytes(link.id) == pytest.approx(fluid.links.total_bytes(link.id))


def test_transfers_that_no_plan_knows_share_their_links_with_those_that_one_does() -> None:
    fabric = build(FabricSpec(FabricKind.SPINE_LEAF, 4, 2, spines=2, domains_per_leaf=2))
    schedule = collective("all-reduce", {"all": tuple(range(8))}, 64 << 20, 8, name="one ring")
    record = made(PlanMode.STATIC, 2, schedule=schedule, fabric=fabric)
    assert record.complete
    inside = [one for one in schedule.transfers if one.src // 2 == one.dst // 2]
    assert inside


def test_a_degraded_link_and_a_silent_one() -> None:
    slow = LinkFailure("leaf0-spine0", 0.0, kind=FailureKind.DEGRADE, rate_share=0.25)
    hurt, measured = (made(mode, failures=[slow]) for mode in (PlanMode.STATIC, PlanMode.DYNAMIC))
    assert hurt.complete
    assert min(shares(hurt, 1)) == pytest.approx(0.25, rel=0.01)
    assert min(shares(measured, ROUNDS - 2)) > 0.8  # nobody is told, but the channel is measured to be slow
    silent = LinkFailure("leaf0-spine0", 0.5, kind=FailureKind.BLACKHOLE)
    lost = made(PlanMode.DYNAMIC, failures=[silent])
    states = {one.status for one in lost.transfers}
    assert states == {TransferStatus.INCOMPLETE, TransferStatus.FAILED}
    assert any("no path that works while leaf0-spine0 is broken" in one.reason for one in lost.transfers)
    assert all(0 <= one.received_bytes <= one.size_bytes for one in lost.transfers)
    noticed = made(PlanMode.DYNAMIC, failures=[silent], silent_repair_delay_s=0.5)
    assert noticed.complete


def test_a_gpu_that_is_cut_off_leaves_its_job_incomplete_and_the_others_whole() -> None:
    record = made(PlanMode.DYNAMIC, failures=[LinkFailure("d3r0-leaf0", 0.3)])
    by_job: dict[str, set[TransferStatus]] = defaultdict(set)
    for one, transfer in zip(record.transfers, record.schedule.transfers, strict=True):
        by_job[transfer.tag.group].add(one.status)
    assert by_job["job3/all"] >= {TransferStatus.INCOMPLETE, TransferStatus.FAILED}
    assert all(states == {TransferStatus.COMPLETE} for job, states in by_job.items() if job != "job3/all")


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SimulationError, match="for 16 ranks, but the fabric has 4 GPUs"):
        made(PlanMode.STATIC, fabric=build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2)))
