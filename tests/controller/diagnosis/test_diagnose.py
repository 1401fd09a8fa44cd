"""From telemetry to verdicts: on runs of the simulator, and on windows made by hand."""

import json
from dataclasses import replace

import pytest

from controller.diagnosis.collector import Collector
from controller.diagnosis.diagnose import diagnose
from controller.diagnosis.telemetry import Communicator, Message, RankOperation
from controller.diagnosis.thresholds import DEFAULT
from controller.diagnosis.verdict import ComponentKind, Finding, Pattern, Syndrome
from controller.diagnosis.watch import Watch
from tests.controller.diagnosis.injected import run, watched
from workloads.failures import FailureKind, LinkFailure
from workloads.repeated import RankFault, RankFaultKind


def degraded(link, share=0.3):
    return LinkFailure(link, 4.0, kind=FailureKind.DEGRADE, rate_share=share)


def swallowing(link, direction="both"):
    return LinkFailure(link, 4.0, kind=FailureKind.BLACKHOLE, direction=direction)


@pytest.mark.parametrize("kind", ["rail-only", "rail-optimized", "spine-leaf"])
@pytest.mark.parametrize("together", [True, False])
def test_a_healthy_run_has_no_alarm(kind, together):
    alarms, watch = watched(*run(kind, together=together), spare_s=0.0)
    assert alarms == []
    assert watch.latest.finding is Finding.HEALTHY


@pytest.mark.parametrize(
    ("kind", "failure", "syndrome"),
    [
        ("rail-only", degraded("d0r0-rail0"), Syndrome.COMMUNICATION_SLOW),
        ("rail-only", degraded("d2r3-rail3", 0.5), Syndrome.COMMUNICATION_SLOW),
        ("rail-only", degraded("d1r2-nv1", 0.05), Syndrome.COMMUNICATION_SLOW),
        ("rail-optimized", degraded("d0r0-leaf0"), Syndrome.COMMUNICATION_SLOW),
        ("spine-leaf", degraded("leaf0-spine1"), Syndrome.COMMUNICATION_SLOW),
        ("rail-only", swallowing("d0r0-rail0"), Syndrome.COMMUNICATION_HANG),
        ("rail-only", swallowing("d3r1-rail1", "out"), Syndrome.COMMUNICATION_HANG),
        ("rail-only", swallowing("d1r0-nv1"), Syndrome.COMMUNICATION_HANG),
        ("spine-leaf", swallowing("leaf2-spine0"), Syndrome.COMMUNICATION_HANG),
    ],
)
def test_a_link_at_fault_is_found(kind, failure, syndrome):
    alarms, _ = watched(*run(kind, [failure]))
    verdict = alarms[0].verdict
    assert len(alarms) == 1
    assert (verdict.syndrome, verdict.component.kind, verdict.component.id) == (
        syndrome, ComponentKind.LINK, failure.link_id
    )  # fmt: skip
    assert not verdict.is_ambiguous
    assert alarms[0].t_s - failure.at_s < 5.0
    if failure.direction != "both":
        assert verdict.component.direction == failure.direction


@pytest.mark.parametrize(
    ("fault", "syndrome"),
    [
        (RankFault(5, RankFaultKind.ABSENT, 3), Syndrome.NON_COMMUNICATION_HANG),
        (RankFault(5, RankFaultKind.STOPS, 3), Syndrome.NON_COMMUNICATION_HANG),
        (RankFault(5, RankFaultKind.SLOW, 3, 3.0), Syndrome.NON_COMMUNICATION_SLOW),
    ],
)
def test_a_rank_at_fault_is_found(fault, syndrome):
    alarms, _ = watched(*run(faults=[fault]))
    assert [(one.verdict.syndrome, one.verdict.component.id) for one in alarms] == [(syndrome, "d1r1")]
    assert alarms[0].verdict.pattern is Pattern.RANK


def test_several_faults_at_once_are_all_found():
    alarms, _ = watched(*run(failures=[degraded("d0r0-rail0"), degraded("d2r1-rail1", 0.25)],
                             faults=[RankFault(7, RankFaultKind.SLOW, 2, 4.0)]))  # fmt: skip
    assert {one.verdict.component.id for one in alarms} == {"d0r0-rail0", "d2r1-rail1", "d1r3"}


def test_all_links_of_a_switch_are_the_switch():
    links = [degraded(f"d{domain}r1-rail1", 0.25) for domain in range(4)]
    alarms, _ = watched(*run(failures=links))
    assert [(one.verdict.component.kind, one.verdict.component.id) for one in alarms] == [
        (ComponentKind.SWITCH, "rail1")
    ]


def test_rings_alone_are_ambiguous():
    alarms, _ = watched(*run(failures=[degraded("d0r0-rail0")], collective="all-reduce", group="rails",
                             size=60_000_000))  # fmt: skip
    assert [one.verdict.is_ambiguous for one in alarms] == [True]
    assert "d0r0-rail0" in {suspect.id for suspect in alarms[0].verdict.suspects}
    assert alarms[0].verdict.text.startswith("communication slow, ambiguous: ")


def test_a_verdict_carries_its_evidence_as_json():
    alarms, _ = watched(*run(failures=[degraded("d0r0-rail0")]))
    told = json.loads(json.dumps(alarms[0].verdict.to_dict()))
    assert told["text"] == "communication slow: link d0r0-rail0"
    assert told["evidence"]["measured"]["median_ratio"] > told["evidence"]["thresholds"]["ratio"]
    assert told["evidence"]["measured"]["slow_connections"] == len(told["evidence"]["cells"]) == 24
    assert json.loads(json.dumps(alarms[0].diagnosis.to_dict()))["finding"] == "fault"


# -- windows made by hand, without a network --

RANKS = 6


def window(delay_s=lambda src, dst: 1.0, hung=lambda src, dst: False, absent=(), now_s=10.0):
    """An all-to-all of 1 MB each that began at 1 s, in which each message takes ``delay_s`` or hangs."""
    collector = Collector()
    collector.take(Communicator("all", tuple(range(RANKS))))
    for rank in range(RANKS):
        entered_s = None if rank in absent else 1.0
        collector.take(RankOperation("all", 0, rank, "all-to-all", "direct", 10**6, entered_s))
    number = 0
    for turn in range(2):
        for src in range(RANKS):
            for dst in range(RANKS):
                if src == dst or absent:
                    continue
                start_s = 1.0 + turn * 4
                end_s = None if hung(src, dst) and turn else start_s + (delay_s(src, dst) if turn else 1.0)
                received = 10**6 if end_s else 1000
                collector.take(Message(number, "all", 0, src, dst, 0, 10**6, start_s, start_s, end_s, received, 5.2))
                number += 1
    return collector.window(now_s)


@pytest.mark.parametrize(
    ("hot", "pattern", "component"),
    [
        (lambda src, dst: (src, dst) == (1, 4), Pattern.CELL, (ComponentKind.CONNECTION, "1->4")),
        (lambda src, dst: src == 2, Pattern.ROW, (ComponentKind.SENDER, "2")),
        (lambda src, dst: dst == 3, Pattern.COLUMN, (ComponentKind.RECEIVER, "3")),
        (lambda src, dst: 5 in (src, dst), Pattern.PATHS, (ComponentKind.RANK, "5")),
    ],
)
@pytest.mark.parametrize("hangs", [False, True])
def test_the_rules_of_the_matrix(hot, pattern, component, hangs):
    seen = window(hung=hot) if hangs else window(lambda src, dst: 3.0 if hot(src, dst) else 1.0)
    limits = replace(DEFAULT, slow_messages=1, slow_operations=1)
    found = diagnose(seen, None, limits)
    verdict = found.verdicts[0]
    assert len(found.verdicts) == 1
    assert (verdict.pattern, (verdict.component.kind, verdict.component.id)) == (pattern, component)
    assert verdict.syndrome is (Syndrome.COMMUNICATION_HANG if hangs else Syndrome.COMMUNICATION_SLOW)
    assert not verdict.is_ambiguous


def test_a_hiccup_of_one_operation_is_not_enough():
    everything = window(lambda src, dst: 3.0 if src in (2, 3) else 1.0)
    assert diagnose(everything).finding is Finding.HEALTHY, "two parts at once, in one operation"


def test_one_slow_message_is_not_enough():
    found = diagnose(window(lambda src, dst: 3.0 if (src, dst) == (1, 4) else 1.0))
    assert found.finding is Finding.HEALTHY


def test_a_rank_that_has_not_entered_is_at_fault():
    found = diagnose(window(absent=(4,)))
    assert [(one.syndrome, one.component.id) for one in found.verdicts] == [(Syndrome.NON_COMMUNICATION_HANG, "4")]


def test_all_have_entered_and_nothing_is_known_of_the_bytes():
    collector = Collector()
    collector.take(Communicator("all", (0, 1, 2, 3)))
    for rank in range(4):
        collector.take(RankOperation("all", 0, rank, "all-reduce", "", 0, 1.0))
    found = diagnose(collector.window(10.0))
    assert [(one.syndrome, one.is_ambiguous) for one in found.verdicts] == [(Syndrome.COMMUNICATION_HANG, True)]


def test_a_rank_inside_another_operation_is_not_missed():
    collector = Collector()
    for name, ranks in (("a", (0, 1, 2, 3)), ("b", (0, 4, 5))):
        collector.take(Communicator(name, ranks))
    for name, rank in (("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 4)):
        collector.take(RankOperation(name, 0, rank, "all-reduce", "ring", 0, 1.0))
    found = diagnose(collector.window(10.0))
    assert [one.component.id for one in found.verdicts] == ["5"], "0 waits for 5 in the other one"


def test_nothing_is_not_enough_data():
    found = diagnose(Collector().window(3.0))
    assert (found.finding, found.verdicts) == (Finding.NOT_ENOUGH_DATA, ())
    assert "a verdict needs 3" in found.reason


def test_a_finding_must_last_to_be_told():
    watch = Watch()
    hot = window(hung=lambda src, dst: src == 2)
    watch.take([*hot.communicators.values(), *hot.operations, *hot.messages])
    assert watch.look(10.0) == []
    assert watch.look(10.1) == [], "it is not time yet"
    assert len(watch.look(10.5)) == 1
    assert watch.look(11.0) == [], "it is told once"


def test_the_collector_keeps_so_much_and_counts_what_it_drops():
    collector = Collector(window_s=5.0, most_messages=100)
    for number in range(1000):
        collector.take(Message(number, "all", number, 0, 1, 0, 1, 0.0, float(number), number + 1.0, 1.0, number + 1.0))
    assert collector.dropped == 900
    assert len(collector.window(1000.0).messages) == 6, "those that ended in the last 5 s"
