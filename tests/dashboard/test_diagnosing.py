"""The diagnosis of a run as the page shows it, from the reports of runs that the simulator made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controller.diagnosis.replayed import reports
from controller.policy import RoutingPolicy
from dashboard.diagnosing import RunDiagnosis
from dashboard.offers import schedule_of
from simulator.fluid import simulate
from simulator.routes import controller_router
from tests.controller.diagnosis.injected import network, run
from topologies.scale import default_scale
from workloads.failures import FailureKind, LinkFailure
from workloads.records import RunRecord

SLOW = LinkFailure("d0r0-rail0", 2.0, kind=FailureKind.DEGRADE, rate_share=0.25)
SLOW_TOO = LinkFailure("d2r1-rail1", 3.0, kind=FailureKind.DEGRADE, rate_share=0.05)
DOWN = LinkFailure("d0r0-rail0", 2.0)


def told(record: RunRecord) -> Iterator[dict[str, Any]]:
    """What a fabric tells of a run while it goes on."""
    last_s = max(one.end_s or 0.0 for one in record.transfers)
    for report in reports(record, last_s):
        ended = [(one.id, "complete", one.start_s, one.end_s, one.received_bytes, "") for one in report.ended]
        yield {"event": "transfers", "t_s": report.t_s, "ended": ended, "active": list(report.active.items())}


def diagnosis(record: RunRecord, policy: RoutingPolicy | None = RoutingPolicy()) -> RunDiagnosis:  # noqa: B008
    known = network()
    return RunDiagnosis(record.schedule, known.fabric, record.scale, policy, clock=lambda: 0.0)


def test_a_degraded_link_is_named_with_the_numbers_behind_it() -> None:
    _, record = run(failures=[SLOW])
    watched = diagnosis(record)
    (verdict, *others) = [one for message in told(record) for one in watched.take(message, frozenset())]
    assert others == []
    assert (verdict["event"], verdict["component"], verdict["syndrome"]) == (
        "verdict", "d0r0-rail0", "communication slow"
    )  # fmt: skip
    assert "d0r0-rail0" in verdict["text"]
    assert "times as long" in verdict["evidence"]
    assert verdict["t_s"] > SLOW.at_s


def test_a_healthy_run_has_no_verdict() -> None:
    _, record = run()
    watched = diagnosis(record)
    assert [one for message in told(record) for one in watched.take(message, frozenset())] == []


def test_once_the_controller_has_answered_a_failure_there_is_no_verdict() -> None:
    """A link that went down makes the rest slower for a reason that is known, in one long call too."""
    known = network()
    schedule = schedule_of("first-light/all-to-all", known.fabric)
    router, scale = controller_router(known.fabric), default_scale(known.fabric)
    record = simulate(known.fabric, schedule, router, scale=scale, failures=[DOWN, SLOW_TOO], report_s=0.2)
    watched, unaware = diagnosis(record), diagnosis(record)
    verdicts, without = [], []
    for message in told(record):
        down = frozenset({DOWN.link_id}) if message["t_s"] > DOWN.at_s + 0.1 else frozenset()
        verdicts += watched.take(message, down)
        without += unaware.take(message, frozenset())
    assert verdicts == []
    assert without != []


def test_a_run_that_begins_with_a_link_down_is_judged_by_the_routes_that_avoid_it() -> None:
    _, record = run(failures=[SLOW_TOO])
    down = frozenset({DOWN.link_id})
    known = network()
    watched = RunDiagnosis(record.schedule, known.fabric, record.scale, RoutingPolicy(), down, clock=lambda: 0.0)
    verdicts = [one for message in told(record) for one in watched.take(message, down)]
    assert [one["component"] for one in verdicts] == [SLOW_TOO.link_id]


def test_counters_of_links_are_taken_in_the_order_of_the_fabric() -> None:
    _, record = run(iterations=1)
    watched = diagnosis(record)
    links = list(network().fabric.failure_targets())
    bytes_so_far = [float(place) for place, _ in enumerate(links)]
    message = {"event": "links", "t_s": 0.2, "a_to_b_bytes": bytes_so_far, "b_to_a_bytes": bytes_so_far}
    assert watched.take(message, frozenset()) == []
    (counters,) = watched.window.counters
    by_link = dict(zip((link.id for link in network().fabric.links), counters.a_to_b_bytes, strict=True))
    assert by_link[links[5].id] == 5.0
    assert by_link["d0r0-s0r0"] == 0.0


def test_a_look_that_takes_long_is_followed_by_a_long_rest() -> None:
    _, record = run(failures=[SLOW], iterations=4)
    known = network()
    ticks = iter(range(10**6))  # every look takes one tick, and a message less than that
    resting = RunDiagnosis(record.schedule, known.fabric, record.scale, None, clock=lambda: next(ticks) * 1e-9)
    messages = list(told(record))
    for message in messages:
        resting.take(message, frozenset())
    # Three readings of the clock around each look, one for a message without: so few looks in so many messages.
    assert next(ticks) < 1.5 * len(messages)


def test_without_known_routes_the_matrix_alone_decides() -> None:
    _, record = run(failures=[SLOW])
    watched = diagnosis(record, policy=None)
    verdicts = [one for message in told(record) for one in watched.take(message, frozenset())]
    assert verdicts
    assert all("rail0" not in one["component"] for one in verdicts)
