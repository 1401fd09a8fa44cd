"""Links that fail together fail together: nobody waits for the controller's answer to another one's failure."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from emulator import link_control
from emulator.link_control import LinkControl
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec, Link
from topologies.scale import default_scale

TIMEOUT_S = 10.0


class Controller:
    """Answers no change until ``answer`` is set."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.answer = threading.Event()

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool], _timeout_s: float, _text: str, since: int) -> Any:
        assert self.answer.wait(TIMEOUT_S)
        return next(event for event in self.events[since:] if wanted(event))

    def say_all_down(self, links: list[str]) -> None:
        self.events += [{"event": "link-down", "link": link, "t_s": 0.0} for link in links]
        self.events.append({"event": "repaired", "links_down": links, "t_s": 0.0, "elapsed_s": 0.0})
        self.answer.set()


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Links in the order in which the kernel was told."""
    told: list[str] = []

    def set_link_up(_devices: Any, link: Link, up: bool) -> None:
        assert not up
        told.append(link.id)

    monkeypatch.setattr(link_control, "set_link_up", set_link_up)
    monkeypatch.setattr(link_control, "links_up", lambda _devices, links: {link.id: True for link in links})
    return told


def control(controller: Controller) -> LinkControl:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    emulation = SimpleNamespace(
        fabric=fabric, scale=default_scale(fabric), devices=None, controller=controller,
        choice=SimpleNamespace(foreign=False),
    )  # fmt: skip
    return LinkControl(cast(Any, emulation))


def test_the_second_failure_does_not_wait_for_the_answer_to_the_first(changed: list[str]) -> None:
    controller = Controller()
    links = control(controller)
    names = ["d0r0-rail0", "d1r0-rail0", "d2r2-nv2"]
    threads = [threading.Thread(target=links.set_link, args=(name, False)) for name in names]
    for thread in threads:
        thread.start()
    over = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.01)):
        if len(changed) == len(names) or over.wait(0.01):
            break
    assert sorted(changed) == sorted(names), "all are down though the controller has said nothing yet"
    controller.say_all_down(names)
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def test_a_switch_goes_down_with_all_its_links_before_anybody_answers(changed: list[str]) -> None:
    controller = Controller()
    links = control(controller)
    names = [f"d{domain}r1-rail1" for domain in range(4)]
    results: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: results.append(links.set_target("rail1", up=False)))
    thread.start()
    over = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.01)):
        if len(changed) == len(names) or over.wait(0.01):
            break
    assert changed == names
    controller.say_all_down(names)
    thread.join(TIMEOUT_S)
    assert results[0]["links"] == results[0]["links_changed"] == 4
    assert results[0]["target"] == "rail1"
