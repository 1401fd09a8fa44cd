"""Failures of every kind that this kernel has, at planned moments of a replay."""

import pytest

from tests.emulator.live import fabric, live
from workloads.collectives import rail_rings, ring_all_gather
from workloads.failures import FailureKind, LinkFailure
from workloads.records import EventKind

pytestmark = live

HEALTHY_S = 3.35
"""16 MB / 2 over 20 Mbit/s at a goodput of 1448/1514."""


@pytest.fixture(scope="module")
def four():
    with fabric("planned", domains=2, rails=2) as running:
        yield running


@pytest.mark.parametrize(
    ("failure", "events", "lost_s"),
    [
        (LinkFailure("d0r0-rail0", 1.0, 2.0, FailureKind.DEGRADE, rate_share=0.25), ("impaired", "mended"), 0.75),
        (LinkFailure("d0r0-rail0", 1.0, 2.0, FailureKind.BLACKHOLE), ("impaired", "mended"), 1.0),
        (LinkFailure("d0r0-rail0", 1.0, 2.0), ("link-down", "link-up"), 0.5),
    ],
    ids=["degrade", "blackhole", "down"],
)
def test_a_failure_costs_what_it_takes_away(four, failure, events, lost_s):
    """Degraded to a quarter for a second, silent for a second, or sharing the other rail for a second."""
    schedule = ring_all_gather(rail_rings(four.fabric), 320_000_000, 4)
    record = four.run(schedule, [failure])
    assert record.complete
    kinds = [event.kind for event in record.events if event.subject == failure.link_id]
    assert [kind for kind in kinds if kind is not EventKind.REROUTED] == [EventKind(kind) for kind in events]
    slowest_s = max(transfer.duration_s for transfer in record.transfers)
    assert slowest_s > HEALTHY_S + 0.6 * lost_s
    assert four.impairments() == []
    assert four.status()["links_down"] == []
