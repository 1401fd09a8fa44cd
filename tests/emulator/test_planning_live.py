"""Planned traffic on a live fabric: even uplinks, a new plan after a failure, and a dead link found by probing."""

import pytest

from controller.planning.steering import PlanMode, Planning
from emulator.engines import Engine
from emulator.wire import RemoteError
from tests.emulator.live import fabric, live
from topologies.model import FabricKind
from workloads.collectives import collective
from workloads.failures import LinkFailure
from workloads.jobs import at_once, in_rounds
from workloads.records import EventKind

pytestmark = live

UPLINKS = [f"leaf0-spine{number}" for number in range(4)]


@pytest.fixture(scope="module")
def eight():
    with fabric("plans", FabricKind.SPINE_LEAF, 8, 1, spines=4, domains_per_leaf=4) as running:
        yield running


def jobs(size_bytes, rounds):
    one_each = [collective("all-reduce", {"all": (job, 4 + job)}, size_bytes, 8, name="one") for job in range(4)]
    return at_once([in_rounds(one, rounds) for one in one_each], "four jobs")


def imbalance(record):
    """Bytes of the fullest uplink over the mean."""
    carried = [record.links.total_bytes(link_id) for link_id in UPLINKS]
    return max(carried) / (sum(carried) / len(carried))


def test_planned_channels_load_all_uplinks_alike_and_hashed_ones_do_not(eight):
    schedule = jobs(20_000_000, 2)
    found = {mode: eight.run(schedule, planning=Planning(mode, 4)) for mode in (PlanMode.HASHED, PlanMode.STATIC)}
    for record in found.values():
        assert record.complete, [one.reason for one in record.transfers]
        assert record.engine == "agent"
        assert sum(one.size_bytes for one in record.connections) == sum(one.received_bytes for one in record.transfers)
        assert {one.channel for one in record.connections} == {0, 1, 2, 3}
    assert imbalance(found[PlanMode.STATIC]) < 1.1
    assert imbalance(found[PlanMode.HASHED]) > 1.2
    assert any("paths probed: all work" in note for note in found[PlanMode.STATIC].notes)
    assert not any("probed" in note for note in found[PlanMode.HASHED].notes)


def test_a_failure_is_followed_by_a_new_plan_and_nothing_of_it_stays(eight):
    record = eight.run(jobs(20_000_000, 3), [LinkFailure(UPLINKS[0], 0.3)], planning=Planning(PlanMode.DYNAMIC, 4))
    assert record.complete, [one.reason for one in record.transfers]
    kinds = [event.kind for event in record.events]
    assert kinds.index(EventKind.LINK_DOWN) < kinds.index(EventKind.REPLANNED)
    assert not [event for event in record.events if event.kind is EventKind.NOTE and event.subject == "plan"]
    assert eight.status()["links_down"] == []
    assert eight.run(jobs(1_000_000, 1)).complete


def test_a_dead_link_that_nobody_reports_is_found_by_probing_and_not_used(eight):
    eight.blackhole(UPLINKS[2])
    try:
        record = eight.run(jobs(5_000_000, 1), planning=Planning(PlanMode.STATIC, 4))
    finally:
        eight.blackhole(UPLINKS[2], on=False)
    assert record.complete, [one.reason for one in record.transfers]
    (told,) = [note for note in record.notes if "paths probed" in note]
    assert UPLINKS[2] in told
    assert "broken and not used" in told
    carried = {link_id: record.links.total_bytes(link_id) for link_id in UPLINKS}
    assert carried[UPLINKS[2]] < 0.02 * max(carried.values())


def test_planned_traffic_is_not_for_iperf3(eight):
    with pytest.raises(RemoteError, match="replayed by the agent"):
        eight.run(jobs(1_000_000, 1), planning=Planning(PlanMode.STATIC), engine=Engine.IPERF3)
