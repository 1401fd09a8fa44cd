"""What is decided about a job in trouble: who is to blame, who takes over, and what the timeline says it cost."""

from __future__ import annotations

import pytest

from controller.diagnosis.verdict import Component, ComponentKind, Evidence, Pattern, Syndrome, Verdict
from emulator.programs import RankExit
from emulator.recovery import JobEvent, Recovery, Step, culprit, gpu_at_fault, pick_spare, recoveries
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec

RAILS = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 4))
SPINES = build(FabricSpec(FabricKind.SPINE_LEAF, 4, 2, spines=2))


def verdict(kind: ComponentKind, name: str, cells: tuple[tuple[int, int], ...] = ()) -> Verdict:
    evidence = Evidence("seen", (0.0, 1.0), {}, {}, cells)
    component = Component(kind, name)
    return Verdict(Syndrome.COMMUNICATION_HANG, component, Pattern.PATHS, evidence, (component,))


@pytest.mark.parametrize(
    ("kind", "name", "gpu"),
    [
        (ComponentKind.RANK, "d1r2", "d1r2"),
        (ComponentKind.SENDER, "d0r0", "d0r0"),
        (ComponentKind.RECEIVER, "d1r3", "d1r3"),
        (ComponentKind.LINK, "d1r2-rail2", "d1r2"),
        (ComponentKind.LINK, "d1r2-nv1", "d1r2"),
        (ComponentKind.SWITCH, "rail2", None),
        (ComponentKind.RANK, "3", None),
    ],
)
def test_the_gpu_of_a_component(kind: ComponentKind, name: str, gpu: str | None) -> None:
    found = gpu_at_fault(verdict(kind, name), RAILS)
    assert (found.id if found else None) == gpu


def test_a_link_between_switches_is_no_gpus() -> None:
    link = next(link.id for link in SPINES.links if link.id.startswith("leaf0-spine"))
    assert gpu_at_fault(verdict(ComponentKind.LINK, link), SPINES) is None


def test_of_connections_the_gpu_that_they_have_in_common() -> None:
    found = gpu_at_fault(verdict(ComponentKind.CONNECTION, "d0r1->d1r1", ((1, 5), (5, 6), (2, 5))), RAILS)
    assert found is not None
    assert found.id == "d1r1"
    single = gpu_at_fault(verdict(ComponentKind.CONNECTION, "d0r1->d1r1", ((1, 5),)), RAILS)
    assert single is not None
    assert single.id == "d1r1"


def test_a_killed_rank_is_to_blame_before_those_that_failed_because_it_had_gone() -> None:
    peers = [RankExit(0, 1, 2.00, "d0r0"), RankExit(3, 1, 2.01, "d0r3")]
    assert culprit([*peers, RankExit(2, 137, 2.02, "d0r2")]) == RankExit(2, 137, 2.02, "d0r2")
    assert culprit(peers) == peers[0]
    assert culprit([RankExit(0, 0, 1.0, "d0r0")]) is None


def test_the_spare_is_one_on_the_same_rail_if_there_is_one() -> None:
    spares = [RAILS.gpu("d1r2"), RAILS.gpu("d1r3")]
    assert pick_spare(RAILS.gpu("d0r3"), spares) == RAILS.gpu("d1r3")
    assert pick_spare(RAILS.gpu("d0r0"), spares) == RAILS.gpu("d1r2")
    assert pick_spare(RAILS.gpu("d0r0"), []) is None


def timeline(*steps: tuple[Step, float, int]) -> list[JobEvent]:
    return [JobEvent(step, t_s, restart, "") for step, t_s, restart in steps]


def test_a_timeline_says_what_every_failure_cost() -> None:
    events = timeline(
        (Step.STARTED, 0.0, 0), (Step.FAILED, 10.0, 0), (Step.DETECTED, 13.0, 0), (Step.DIAGNOSED, 13.5, 0),
        (Step.ISOLATED, 13.6, 0), (Step.RESTARTED, 13.7, 1), (Step.BACK, 18.0, 1),
        (Step.FAILED, 30.0, 1), (Step.DETECTED, 30.1, 1), (Step.ISOLATED, 30.4, 1), (Step.RESTARTED, 30.5, 2),
    )  # fmt: skip
    first, second = recoveries(events)
    assert (first.detection_s, first.diagnosis_s, first.restart_s) == pytest.approx((3.0, 0.6, 4.4))
    assert first.total_s == pytest.approx(8.0)
    assert second == Recovery(pytest.approx(0.1), pytest.approx(0.3), None)
    assert second.total_s is None
    assert recoveries(timeline((Step.STARTED, 0.0, 0))) == []


def test_events_can_be_stored_and_read_as_lines() -> None:
    event = JobEvent(Step.ISOLATED, 3.25, 0, "d1r2 is out of service", "d1r2", {"spare": "d1r3"})
    assert event.to_dict() == {
        "step": "isolated", "t_s": 3.25, "restart": 0, "text": "d1r2 is out of service", "gpu": "d1r2",
        "details": {"spare": "d1r3"},
    }  # fmt: skip
    assert event.line == "    3.25 s  isolated   d1r2 is out of service"
