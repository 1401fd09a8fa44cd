import time
from typing import Any

from emulator.planned_failures import FailureDrivers, impairment_for
from workloads.failures import FailureKind, LinkFailure
from workloads.records import EventKind


class Links:
    def __init__(self) -> None:
        self.calls: list[tuple[str, bool]] = []
        self.impaired: list[tuple[str, bool]] = []

    def set_link(self, link_id: str, up: bool) -> dict[str, Any]:
        self.calls.append((link_id, up))
        return {"changed_s": time.monotonic(), "set_s": 0.0}

    def impair(self, failure: LinkFailure, on: bool) -> None:
        self.impaired.append((failure.text, on))


def driven(failures: list[LinkFailure], links: Links) -> list[tuple[EventKind, str]]:
    drivers = FailureDrivers(failures, time.monotonic(), links.set_link, links.impair)
    for thread, failure in zip(drivers._threads, failures, strict=True):
        if failure.restore_s is not None:
            thread.join(10)
    return [(event.kind, event.subject) for event in drivers.finish()]


def test_a_link_fails_and_comes_back_and_one_without_restore_is_mended_at_the_end() -> None:
    links = Links()
    events = driven([LinkFailure("a", 0.0, 0.02), LinkFailure("b", 0.0)], links)
    assert links.calls.count(("a", False)) == links.calls.count(("a", True)) == 1
    assert links.calls[-1] == ("b", True)
    assert sorted(events) == sorted(
        [(EventKind.LINK_DOWN, "a"), (EventKind.LINK_UP, "a"), (EventKind.LINK_DOWN, "b"), (EventKind.LINK_UP, "b")]
    )


def test_a_link_that_two_failures_hold_down_comes_back_with_the_last() -> None:
    links = Links()
    driven([LinkFailure("a", 0.0, 0.05), LinkFailure("a", 0.02, 0.1)], links)
    assert links.calls == [("a", False), ("a", True)]


def test_other_kinds_impair_and_mend() -> None:
    links = Links()
    events = driven([LinkFailure("a", 0.0, 0.02, FailureKind.DEGRADE, rate_share=0.25)], links)
    assert links.impaired == [("at 0.25 of its rate", True), ("at 0.25 of its rate", False)]
    assert events == [(EventKind.IMPAIRED, "a"), (EventKind.MENDED, "a")]


def test_what_goes_wrong_is_told_and_ends_nothing() -> None:
    class Broken(Links):
        def set_link(self, link_id: str, up: bool) -> dict[str, Any]:
            raise RuntimeError("no answer")

    events = driven([LinkFailure("a", 0.0, 0.01)], Broken())
    assert events.count((EventKind.NOTE, "a")) == 2
    assert {(EventKind.LINK_DOWN, "a"), (EventKind.LINK_UP, "a")} < set(events)


def test_what_links_are_told() -> None:
    hole = LinkFailure("a", 0.0, None, FailureKind.BLACKHOLE, direction="in")
    assert impairment_for(hole, True, 20.0) == {"blackhole": "in", "on": True}
    slow = LinkFailure("a", 0.0, None, FailureKind.DEGRADE, rate_share=0.25)
    assert [impairment_for(slow, on, 20.0) for on in (True, False)] == [{"rate_mbps": 5.0}, {"rate_mbps": None}]
    late = LinkFailure("a", 0.0, None, FailureKind.DELAY, delay_s=0.005)
    assert impairment_for(late, True, 20.0) == {"delay_ms": 5.0, "jitter_ms": 0.0}
    assert impairment_for(late, False, 20.0) == {"delay_ms": 0.0, "jitter_ms": 0.0}
    lossy = LinkFailure("a", 0.0, None, FailureKind.LOSS, loss_share=0.5)
    assert impairment_for(lossy, True, 20.0) == {"loss_share": 0.5}
    assert impairment_for(lossy, False, 20.0) == {"loss_share": 0.0}
