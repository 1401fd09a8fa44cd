"""The page in a real browser, without a fabric: a recording, and a stored result."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.drawing import draw
from dashboard.recording import Recorder
from dashboard.timeline import timeline
from experiments.plan import simulator_backend
from experiments.run import run_scenario
from tests.dashboard.browser import LINK, NO_CHROMIUM, browser_page, data, free_port, served, wait_until
from tests.experiments.cases import small
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec
from topologies.scale import default_scale

needs_chromium = pytest.mark.skipif(bool(NO_CHROMIUM), reason=NO_CHROMIUM)


def recorded(path: Path) -> Path:
    """A recording of a fabric of 4 GPUs in which a link is loaded, and then fails."""
    model = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    drawing = draw(model, default_scale(model))
    place = drawing.link_ids.index(LINK)
    rates = [0.0] * len(drawing.link_ids)
    rates[place] = drawing.rates_mbps[place] / 2
    wrong = {
        "link": LINK, "down": True, "blackhole": [], "rate_mbps": None, "own_rate_mbps": drawing.rates_mbps[place],
        "delay_ms": 0.0, "jitter_ms": 0.0, "loss_share": 0.0,
    }  # fmt: skip
    with path.open("w") as stream:
        recorder = Recorder(stream, 0.0)
        recorder.write(0.0, {"event": "fabric", "name": "taped", **drawing.to_dict()})
        recorder.write(0.1, {"event": "loads", "t_s": 1.0, "a_to_b_mbps": rates, "b_to_a_mbps": rates})
        recorder.write(500.0, {"event": "impairments", "links": [wrong]})
        result = {"detected_s": 0.01, "computed_s": 0.001, "repaired_s": 0.05, "gap_s": 0.0321, "stream": ["a", "b"]}
        recorder.write(500.1, timeline("fail", LINK, result))
    return path


@needs_chromium
def test_a_recording_is_drawn_and_its_time_can_be_moved_and_it_survives_a_restart(tmp_path: Path) -> None:
    path, port = recorded(tmp_path / "taped.jsonl"), free_port()
    with browser_page() as page:
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        with served("--replay", str(path), port=port) as address:
            page.goto(address)
            wait_until(page, f"{data('thick')} > 6")
            assert page.evaluate(data("state")) == "up"
            assert "taped: rail-only, 4 GPUs" in page.inner_text(".board h2")
            assert page.is_disabled("[data-verb=fail]")
            page.evaluate("document.getElementById('at').value = 500.1")
            page.dispatch_event("#at", "change")
            wait_until(page, f"{data('state')} === 'down'")
            assert "gap 32.1 ms" in page.inner_text("#timeline")
            assert page.evaluate(data("mark")) == "✕ down"
        page.wait_for_selector("#connection[data-state=bad]")
        with served("--replay", str(path), port=port):
            wait_until(page, f"{data('state')} === 'up'")
            page.wait_for_selector("#connection[data-state=good]")
        assert errors == []


@needs_chromium
def test_a_stored_result_is_shown_with_both_fabrics_side_by_side(tmp_path: Path) -> None:
    run_scenario(small(), simulator_backend, lambda _stage, _share: None, results_root=tmp_path, report=False)
    with browser_page() as page, served("--replay", "latest", "--results", str(tmp_path), "--speed", "100") as address:
        page.goto(address)
        wait_until(
            page, "railbedBoards.size === 2 && document.querySelectorAll('#finished tr[data-status]').length > 3"
        )
        assert page.inner_text("#title") == "A <small> & quick one"
        assert "rail-optimized" in page.inner_text("#finished")
        assert page.is_hidden("#work-box")
        headings = page.locator(".board h2").all_inner_texts()
        assert headings == ["rail-only: 4 GPUs", "rail-optimized: 4 GPUs"]
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("0")
        before = page.evaluate("railbedGraph.zoom()")
        page.keyboard.press("+")
        page.keyboard.press("ArrowLeft")
        assert page.evaluate("railbedGraph.zoom()") > before
        page.keyboard.press("0")
        assert page.evaluate("railbedGraph.zoom()") == before
        theme = page.evaluate("document.documentElement.dataset.theme")
        page.keyboard.press("t")
        assert page.evaluate("document.documentElement.dataset.theme") != theme
