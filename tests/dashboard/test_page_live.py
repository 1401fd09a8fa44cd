"""The page of live fabrics in a real browser: links are broken, workloads run, by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.recording import read_recording
from tests.dashboard.browser import LINK, NO_CHROMIUM, browser_page, data, served, tab_to, wait_until
from tests.emulator.live import fabric, live
from topologies.model import FabricKind

SPINE_LINK = "leaf0-spine0"

pytestmark = [*live, pytest.mark.skipif(bool(NO_CHROMIUM), reason=NO_CHROMIUM)]


def test_a_link_fails_and_traffic_takes_another_way_with_nothing_but_the_keyboard(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    with fabric("dashtest"), browser_page() as page:
        with served("--name", "dashtest", "--record", str(path)) as address:
            page.goto(address)
            wait_until(page, f"{data('state')} === 'up'")
            tab_to(page, "#target")
            page.keyboard.type(LINK)
            tab_to(page, "[data-verb=fail]")
            page.keyboard.press("Enter")
            page.wait_for_selector(f"#timeline li[data-target='{LINK}'] .gap")
            wait_until(page, f"{data('state')} === 'down'")
            for field, gpu in (("#src", "d0r1"), ("#dst", "d1r1")):
                tab_to(page, field)
                page.keyboard.type(gpu)
            tab_to(page, "#show-path")
            page.keyboard.press("Enter")
            page.wait_for_selector("#path details")
            assert "agree" in page.inner_text("#path")
            wait_until(page, f"!railbedGraph.getElementById('{LINK}').hasClass('way')")
            assert page.evaluate("railbedGraph.getElementById('d1r0-rail0').hasClass('way')")
            tab_to(page, "[data-verb=restore]")
            page.keyboard.press("Enter")
            wait_until(page, f"{data('state')} === 'up'")
        shown = [message for _, message in read_recording(path)]
    (failed,) = [message for message in shown if message["event"] == "timeline" and message["action"] == "fail"]
    assert failed["stream"] == ["d1r1", "d0r1"]
    assert {step["name"] for step in failed["steps"]} >= {"injected", "detected", "computed", "rules in force"}
    assert failed["gap_ms"] is not None


@pytest.fixture(scope="module")
def both() -> Iterator[None]:
    """A rail-only fabric and one with spines."""
    with fabric("dashtesta"), fabric("dashtestb", FabricKind.RAIL_OPTIMIZED):
        yield


def test_the_same_workload_on_two_fabrics_side_by_side_and_a_link_of_both(both: None, tmp_path: Path) -> None:
    path = tmp_path / "both.jsonl"
    with (
        browser_page() as page,
        served("--name", "dashtesta", "--beside", "dashtestb", "--record", str(path)) as address,
    ):
        page.goto(address)
        wait_until(page, "railbedBoards.size === 2 && document.querySelector('#workload option')")
        page.select_option("#workload", "first-light/all-reduce per rail")
        page.click("#start")
        wait_until(page, "document.querySelectorAll('#calls progress').length === 2")
        wait_until(page, "[...railbedBoards.values()].every((board) => board.calls && board.calls.busbw_gbps > 0)")
        page.fill("#target", LINK)
        page.click("[data-verb=fail]")
        wait_until(page, "document.querySelectorAll('#timeline .gap').length === 2")
        assert page.is_disabled("#start")
        page.click("#stop")
        wait_until(page, "!document.querySelector('#start').disabled")
        assert page.locator("#finished tr[data-status=stopped]").count() == 2
        page.click("[data-verb=restore]")
        wait_until(page, "document.querySelector('#wrong').textContent === 'nothing'")
    shown = [message for _, message in read_recording(path)]
    failed = [one for one in shown if one["event"] == "timeline" and one["action"] == "fail"]
    assert {(one["on"], one["target"]) for one in failed} == {("dashtesta", LINK), ("dashtestb", "d0r1-leaf1")}
    runs = [one for one in shown if one["event"] == "run"]
    assert {one["on"] for one in runs} == {"dashtesta", "dashtestb"}
    assert all(one["ended"] <= one["transfers"] for one in runs)


def test_the_gap_of_a_spine_link_a_flap_and_a_mystery(both: None, tmp_path: Path) -> None:
    path = tmp_path / "spines.jsonl"
    with browser_page() as page, served("--name", "dashtestb", "--record", str(path)) as address:
        page.goto(address)
        wait_until(page, f"window.railbedGraph && railbedGraph.getElementById('{SPINE_LINK}').data('state') === 'up'")
        page.fill("#target", SPINE_LINK)
        page.click("[data-verb=fail]")
        page.wait_for_selector("#timeline li .gap")
        page.click("[data-verb=restore]")
        wait_until(page, "document.querySelectorAll('#timeline .gap').length === 2")
        page.fill("#target", "d1r0-nv1")
        page.click("[data-verb=flap]")
        wait_until(page, "document.querySelector('#timeline').textContent.includes('not by a button of this page')")
        page.click("[data-verb=restore]")
        wait_until(page, "document.querySelector('#wrong').textContent === 'nothing'")
        page.fill("#seed", "1")
        page.click("#hide")
        wait_until(page, "document.querySelector('#mystery-state').textContent.includes('seed 1')")
        assert page.inner_text("#wrong") == "nothing"
        page.click("#solve")
        wait_until(page, "document.querySelector('#mystery-state').textContent.includes('after 1 try')")
        if page.evaluate("!document.querySelector('#mystery-state').textContent.includes('Restore mends it')"):
            page.click("#give-up")
        wait_until(page, "document.querySelector('#mystery-state').textContent.includes('Restore mends it')")
    shown = [message for _, message in read_recording(path)]
    timelines = [one for one in shown if one["event"] == "timeline" and one["target"] == SPINE_LINK]
    assert [one["action"] for one in timelines] == ["fail", "restore"]
    assert all(one["gap_ms"] is not None and one["stream"] for one in timelines)
    flaps = [one for one in shown if one["event"] == "timeline" and one.get("elsewhere")]
    assert {one["target"] for one in flaps} == {"d1r0-nv1"}
