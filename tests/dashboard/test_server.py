"""Who may ask for what, what an action may be, and what slow viewers cost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dashboard.access import Access, is_loopback
from dashboard.actions import checked
from dashboard.backlog import Backlog
from dashboard.errors import ActionError
from dashboard.player import Player, compact
from dashboard.recording import Shown
from dashboard.viewers import MOST_WAITING, Viewers

LOCAL = Access("127.0.0.1", 8400, None)
OPEN = Access("0.0.0.0", 8400, "0123456789")
ASKS = {"host": "127.0.0.1:8400", "x-railbed": "1", "content-type": "application/json"}


@pytest.mark.parametrize(
    ("access", "headers", "token", "changes", "said"),
    [
        (LOCAL, {"host": "127.0.0.1:8400"}, None, False, ""),
        (LOCAL, {"host": "localhost:8400"}, None, False, ""),
        (LOCAL, {"host": "evil.example:8400"}, None, False, "not served under"),
        (LOCAL, {"host": "127.0.0.1:9"}, None, False, "not served under"),
        (LOCAL, {}, None, False, "not served under"),
        (LOCAL, ASKS, None, True, ""),
        (LOCAL, {**ASKS, "origin": "http://127.0.0.1:8400"}, None, True, ""),
        (LOCAL, {**ASKS, "origin": "http://evil.example"}, None, True, "another site"),
        (LOCAL, {**ASKS, "origin": "null"}, None, True, "another site"),
        (LOCAL, {**ASKS, "x-railbed": ""}, None, True, "header"),
        (LOCAL, {**ASKS, "content-type": "text/plain"}, None, True, "content type"),
        (OPEN, {"host": "192.0.2.1:8400"}, None, False, "token"),
        (OPEN, {"host": "192.0.2.1:8400"}, "0123456788", False, "token"),
        (OPEN, {"host": "192.0.2.1:8400"}, "0123456789", False, ""),
        (OPEN, {**ASKS, "host": "x:1", "origin": "http://y:1"}, "0123456789", True, "another site"),
        (OPEN, ASKS, "é", True, "token"),
    ],
)
def test_who_may_ask(access: Access, headers: dict[str, str], token: str | None, changes: bool, said: str) -> None:
    refusal = access.refusal(headers, token, changes)
    assert said in refusal
    assert bool(said) == bool(refusal)


def test_which_addresses_are_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "::1", "localhost", "127.9.9.9")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.0.2.1", "localhost.example")))


@pytest.mark.parametrize(
    "order",
    [
        None,
        [],
        {},
        {"verb": 3},
        {"verb": "reboot"},
        {"verb": "fail"},
        {"verb": "fail", "target": "d0r0; rm -rf /"},
        {"verb": "fail", "target": "../../etc"},
        {"verb": "fail", "target": "-x"},
        {"verb": "fail", "target": "d0r0\n"},
        {"verb": "fail", "target": "d0r0", "command": "x"},
        {"verb": "degrade", "target": "d0r0-rail0"},
        {"verb": "degrade", "target": "d0r0-rail0", "rate_mbps": True},
        {"verb": "degrade", "target": "d0r0-rail0", "rate_mbps": float("nan")},
        {"verb": "degrade", "target": "d0r0-rail0", "rate_mbps": 0},
        {"verb": "blackhole", "target": "d0r0-rail0", "direction": "up"},
        {"verb": "flap", "target": "d0r0-rail0", "down_s": 1, "up_s": 1, "count": 1.5},
        {"verb": "path", "src": "d0r0", "dst": 3},
        {"verb": "path", "src": "d0r0", "dst": "d0r1", "both": True},
        {"verb": "fail", "target": "d0r0", "both": 1},
        {"verb": "fail", "target": "d0r0", "on": "x" * 13},
        {"verb": "start"},
        {"verb": "start", "workload": ""},
        {"verb": "start", "workload": "x" * 300},
        {"verb": "start", "workload": "first-light/all-reduce", "on": "a"},
        {"verb": "stop", "target": "d0r0"},
        {"verb": "mystery", "seed": -1},
        {"verb": "mystery", "seed": 1.5},
        {"verb": "mystery", "seed": 1, "kinds": ["loss"]},
        {"verb": "solve"},
    ],
)
def test_what_is_no_action_is_refused(order: Any) -> None:
    with pytest.raises(ActionError):
        checked(order)


def test_what_is_an_action_is_taken() -> None:
    order = {"verb": "flap", "target": "leaf0-spine1#2", "down_s": 1, "up_s": 0.5, "count": 3}
    assert checked(order) == {**order, "on": "", "both": False}
    assert checked({**order, "on": "b", "both": True}) == {**order, "on": "b", "both": True}
    assert checked({"verb": "stop"}) == {"verb": "stop"}


def test_a_viewer_who_stops_reading_is_let_go_and_the_others_miss_nothing() -> None:
    async def watch() -> tuple[int, int]:
        viewers = Viewers()
        quick, slow = viewers.stream(), viewers.stream()
        await anext(quick)
        await anext(slow)
        seen = 0
        for number in range(MOST_WAITING + 5):
            viewers.publish({"event": "controller", "what": number})
            seen += b"controller" in await anext(quick)
        rest = [text async for text in slow]
        assert rest == []
        return seen, len(viewers)

    assert asyncio.run(watch()) == (MOST_WAITING + 5, 1)


def test_who_joins_later_gets_the_last_state_and_what_was_kept() -> None:
    async def join() -> bytes:
        viewers = Viewers()
        for message in ({"event": "run", "n": 1}, {"event": "loads", "n": 2}, {"event": "fabric", "n": 3}):
            viewers.publish(message)
        for number in (4, 5):
            viewers.publish({"event": "loads", "n": number})
        viewers.publish({"event": "timeline", "n": 6})
        return await anext(viewers.stream())

    text = asyncio.run(join())
    assert [text.count(b'"n":%d' % number) for number in range(1, 7)] == [0, 0, 1, 0, 1, 1]


def test_what_is_said_of_one_fabric_does_not_touch_the_other() -> None:
    backlog: Backlog[int] = Backlog(kept=2)
    messages = [
        {"event": "boards"}, {"event": "fabric", "on": "a"}, {"event": "fabric", "on": "b"},
        {"event": "loads", "on": "a"}, {"event": "loads", "on": "b"}, {"event": "timeline", "on": "a"},
        {"event": "timeline", "on": "b"}, {"event": "fabric", "on": "a"},
    ]  # fmt: skip
    for number, message in enumerate(messages):
        backlog.add(message, number)
    assert backlog.items() == [0, 2, 4, 7, 6]
    backlog.add({"event": "boards"}, 8)
    assert backlog.items() == [8]


def test_a_jump_shows_only_what_still_matters() -> None:
    messages = [
        {"event": "loads", "n": 0}, {"event": "fabric"}, {"event": "loads", "n": 1}, {"event": "timeline"},
        {"event": "loads", "n": 2},
    ]  # fmt: skip
    assert compact(messages) == [messages[1], messages[4], messages[3]]


def test_a_replay_plays_in_order_and_obeys() -> None:
    async def play() -> list[dict[str, Any]]:
        seen: list[dict[str, Any]] = []
        shown = [Shown(at_s, {"event": "controller", "n": number}) for number, at_s in enumerate((0.0, 1.0, 900.0))]
        player = Player(shown, seen.append, 100.0)
        task = asyncio.create_task(player.play())
        while len([message for message in seen if message["event"] == "controller"]) < 2:
            await asyncio.sleep(0.01)
        player.order({"at_s": 900.0})
        player.order({"paused": True})
        task.cancel()
        return seen

    seen = asyncio.run(asyncio.wait_for(play(), 60))
    assert [message["n"] for message in seen if message["event"] == "controller"] == [0, 1, 0, 1, 2]
    assert (seen[-1]["at_s"], seen[-1]["paused"]) == (900.0, True)


@pytest.mark.parametrize("order", [None, {}, {"speed": 0}, {"speed": "1"}, {"paused": 1}, {"at_s": -1}, {"x": 1}])
def test_a_replay_refuses_what_it_cannot_do(order: Any) -> None:
    player = Player([Shown(0.0, {"event": "fabric"})], lambda _message: None, 1.0)
    with pytest.raises(ActionError):
        player.order(order)
