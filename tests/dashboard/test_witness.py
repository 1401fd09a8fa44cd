"""Timelines put together from what a controller says."""

from __future__ import annotations

from typing import Any

from dashboard.witness import MOST_OPEN, Witness


def told(*events: dict[str, Any]) -> list[dict[str, Any]]:
    witness = Witness()
    return [timeline for event in events for timeline in witness.take(event)]


def event(name: str, t_s: float, **fields: Any) -> dict[str, Any]:
    return {"event": name, "t_s": t_s, "number": 1, **fields}


def repair(t_s: float, *down: str, rules: int = 3) -> dict[str, Any]:
    return event("repair", t_s, links_down=list(down), computed_s=0.001, rules_added=rules, rules_deleted=0, switches=1)


def test_a_flap_has_a_timeline_for_each_change() -> None:
    down, up = told(
        event("port-down", 10.0, switch="s0r1", port=2, link="x"),
        event("link-down", 10.0, link="x"),
        repair(10.002, "x"),
        event("repaired", 10.03, links_down=["x"], elapsed_s=0.03),
        event("link-up", 11.0, link="x"),
        repair(11.001, rules=0),
        event("repaired", 11.02, links_down=[], elapsed_s=0.02),
    )
    assert (down["action"], down["target"], down["gap_ms"], down["elsewhere"]) == ("fail", "x", None, True)
    assert [(step["name"], step["at_ms"]) for step in down["steps"]] == [
        ("detected", 0.0), ("computed", 2.0), ("rules in force", 30.0)
    ]  # fmt: skip
    assert (down["rules_added"], up["action"], up["rules_added"]) == (3, "restore", 0)


def test_several_links_answered_at_once_have_a_timeline_each() -> None:
    both = told(
        event("link-down", 1.0, link="a"),
        event("link-down", 1.1, link="b"),
        repair(1.2, "a"),
        repair(1.3, "a", "b"),
        event("repaired", 1.5, links_down=["a", "b"]),
    )
    assert [(one["target"], one["rules_added"], one["steps"][-1]["at_ms"]) for one in both] == [
        ("a", 6, 500.0), ("b", 3, 400.0)
    ]  # fmt: skip


def test_an_answer_that_came_too_early_is_none_and_a_change_taken_back_has_no_timeline() -> None:
    assert told(event("link-down", 1.0, link="a"), event("repaired", 1.1, links_down=["other"])) == []
    (back,) = told(
        event("link-down", 1.0, link="a"), event("link-up", 1.1, link="a"), event("repaired", 1.2, links_down=[])
    )
    assert back["action"] == "restore"


def test_what_is_never_answered_is_given_up() -> None:
    downs = [event("link-down", 1.0, link=f"l{number}") for number in range(MOST_OPEN + 3)]
    names = [f"l{number}" for number in range(MOST_OPEN + 3)]
    assert len(told(*downs, event("repaired", 2.0, links_down=names))) == MOST_OPEN
