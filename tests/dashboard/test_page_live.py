"""The page of a live fabric in a real browser: a click breaks a link."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.recording import read_recording
from tests.dashboard.browser import LINK, NO_CHROMIUM, browser_page, data, served, wait_until
from tests.emulator.live import fabric, live
from topologies.model import FabricKind

pytestmark = [*live, pytest.mark.skipif(bool(NO_CHROMIUM), reason=NO_CHROMIUM)]


def test_a_click_fails_a_link_and_traffic_takes_another_way(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    with fabric("dashtest"), browser_page() as page:
        with served("--name", "dashtest", "--record", str(path)) as address:
            page.goto(address)
            wait_until(page, f"{data('state')} === 'up'")
            page.fill("#target", LINK)
            page.click("[data-verb=fail]")
            page.wait_for_selector(f"#timeline li[data-target='{LINK}'] .gap")
            wait_until(page, f"{data('state')} === 'down'")
            page.fill("#src", "d0r1")
            page.fill("#dst", "d1r1")
            page.click("#show-path")
            page.wait_for_selector("#path details")
            assert "agree" in page.inner_text("#path")
            wait_until(page, f"!railbedGraph.getElementById('{LINK}').hasClass('way')")
            assert page.evaluate("railbedGraph.getElementById('d1r0-rail0').hasClass('way')")
            page.fill("#target", LINK)
            page.click("[data-verb=restore]")
            wait_until(page, f"{data('state')} === 'up'")
        shown = [message for _, message in read_recording(path)]
    (failed,) = [message for message in shown if message["event"] == "timeline" and message["action"] == "fail"]
    assert failed["stream"] == ["d1r1", "d0r1"]
    assert {step["name"] for step in failed["steps"]} >= {"injected", "detected", "computed", "rules in force"}
    assert failed["gap_ms"] is not None


def test_the_same_workload_on_two_fabrics_side_by_side_and_a_link_of_both(tmp_path: Path) -> None:
    path = tmp_path / "both.jsonl"
    with (
        fabric("dashtest"),
        fabric("dashtestb", FabricKind.RAIL_OPTIMIZED),
        browser_page() as page,
        served("--name", "dashtest", "--beside", "dashtestb", "--record", str(path)) as address,
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
        page.select_option("#workload", "scale/4 GPUs")
        page.click("[data-verb=restore]")
        wait_until(page, "document.querySelector('#wrong').textContent === 'nothing'")
    shown = [message for _, message in read_recording(path)]
    failed = [one for one in shown if one["event"] == "timeline" and one["action"] == "fail"]
    assert {(one["on"], one["target"]) for one in failed} == {("dashtest", LINK), ("dashtestb", "d0r1-leaf1")}
    runs = [one for one in shown if one["event"] == "run"]
    assert {one["on"] for one in runs} == {"dashtest", "dashtestb"}
    assert all(one["ended"] <= one["transfers"] for one in runs)
