"""What is drawn, computed and recorded, without a fabric, a server or a browser."""

from __future__ import annotations

import io
import json
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.actions import likewise
from dashboard.drawing import Drawing, draw
from dashboard.errors import ActionError, RecordingError
from dashboard.loads import Counters, loads, rates_mbps
from dashboard.pairing import counterpart
from dashboard.recording import Recorder, read_recording
from dashboard.timeline import timeline
from emulator.shape import window_bytes
from topologies.builders import build
from topologies.errors import UnknownElementError
from topologies.model import FabricKind, FabricSpec
from topologies.scale import default_scale

KINDS = [
    (FabricKind.RAIL_ONLY, 4, 4, {}),
    (FabricKind.RAIL_ONLY, 4, 4, {"uplinks": 2}),
    (FabricKind.RAIL_OPTIMIZED, 4, 4, {}),
    (FabricKind.SPINE_LEAF, 4, 4, {}),
    (FabricKind.IDEAL, 1, 16, {}),
    (FabricKind.RAIL_ONLY, 1, 1, {}),
    (FabricKind.RAIL_ONLY, 8, 8, {}),
    (FabricKind.RAIL_ONLY, 32, 8, {}),
    (FabricKind.RAIL_OPTIMIZED, 32, 8, {}),
]


def drawing(kind: FabricKind, domains: int, rails: int, **values: Any) -> Drawing:
    fabric = build(FabricSpec(kind, domains, rails, **values))
    return draw(fabric, default_scale(fabric))


@pytest.mark.parametrize(("kind", "domains", "rails", "values"), KINDS)
def test_every_line_joins_two_shapes_and_no_two_shapes_share_a_place(
    kind: FabricKind, domains: int, rails: int, values: dict[str, Any]
) -> None:
    made = drawing(kind, domains, rails, **values)
    ids = [node.id for node in made.nodes]
    assert len(set(ids)) == len(ids)
    assert all({line.a, line.b} <= set(ids) for line in made.lines)
    boxes = {node.box for node in made.nodes} - {""}
    places = [(round(node.x, 3), round(node.y, 3)) for node in made.nodes if node.id not in boxes]
    assert len(set(places)) == len(places)
    assert json.loads(json.dumps(made.to_dict()))["link_ids"] == list(made.link_ids)


@pytest.mark.parametrize(("kind", "domains", "rails", "values"), KINDS)
def test_every_link_that_may_fail_is_told_and_drawn_unless_a_summary_folds_it(
    kind: FabricKind, domains: int, rails: int, values: dict[str, Any]
) -> None:
    fabric = build(FabricSpec(kind, domains, rails, **values))
    made = drawing(kind, domains, rails, **values)
    assert list(made.link_ids) == [link.id for link in fabric.failure_targets()]
    drawn = {line.id for line in made.lines}
    folded = {link.id for link in fabric.failure_targets() if link.kind.value == "nvlink"} if made.summary else set()
    assert drawn == set(made.link_ids) - folded


@pytest.mark.parametrize(("kind", "domains", "rails", "values"), KINDS)
def test_a_drawing_for_half_a_page_is_narrower_and_has_the_same_parts(
    kind: FabricKind, domains: int, rails: int, values: dict[str, Any]
) -> None:
    fabric = build(FabricSpec(kind, domains, rails, **values))
    wide, narrow = (draw(fabric, default_scale(fabric), narrow=half) for half in (False, True))
    assert [node.id for node in wide.nodes] == [node.id for node in narrow.nodes]
    assert wide.lines == narrow.lines
    places = {(round(node.x, 3), round(node.y, 3)) for node in narrow.nodes if node.kind != "domain"}
    assert len(places) == len([node for node in narrow.nodes if node.kind != "domain"])

    def span(drawing: Drawing) -> float:
        across = [node.x for node in drawing.nodes if node.kind in ("gpu", "domain")]
        return max(across) - min(across)

    assert span(narrow) <= span(wide)
    assert domains < 4 or span(narrow) < span(wide)


@pytest.mark.parametrize("narrow", [False, True])
def test_switches_of_a_tier_do_not_overlap(narrow: bool) -> None:
    fabric = build(FabricSpec(FabricKind.SPINE_LEAF, 16, 1, spines=8, domains_per_leaf=8))
    for kind in ("leaf", "spine"):
        row = [node for node in draw(fabric, default_scale(fabric), narrow).nodes if node.kind == kind]
        assert len(row) > 1
        assert all(right.x - left.x > (left.width + right.width) / 2 for left, right in pairwise(row))


def test_the_shaping_that_is_told_is_that_of_the_links() -> None:
    made = drawing(FabricKind.RAIL_ONLY, 4, 4)
    place = made.link_ids.index("d0r1-rail1")
    assert (made.rates_mbps[place], made.bursts_bytes[place]) == (20.0, 50_000)
    assert made.queues_bytes[place] == 8 * window_bytes(20.0)


def test_the_same_nic_is_found_on_the_other_fabric_whatever_switch_it_leads_to() -> None:
    rails, leaves, servers, dual = (
        build(FabricSpec(kind, 4, 4, **values))
        for kind, values in (
            (FabricKind.RAIL_ONLY, {}), (FabricKind.RAIL_OPTIMIZED, {}), (FabricKind.SPINE_LEAF, {}),
            (FabricKind.RAIL_ONLY, {"uplinks": 2}),
        )
    )  # fmt: skip
    assert counterpart(rails, "d2r1-rail1", leaves) == "d2r1-leaf1"
    assert counterpart(leaves, "d2r1-leaf1", servers) == "d2r1-leaf2"
    assert counterpart(servers, "d2r1-nv2", rails) == "d2r1-nv2"
    assert counterpart(rails, "d3r0", leaves) == "d3r0"
    second = [link.id for link in dual.links_of("s1r2") if link.kind.value == "nic"][1]
    assert counterpart(dual, "d1r2-nv1", rails) == "d1r2-nv1"
    for missing, other in (("leaf0-spine0", rails), ("rail0", leaves)):
        with pytest.raises(ActionError, match="no counterpart"):
            counterpart(leaves if other is rails else rails, missing, other)
    with pytest.raises(ActionError, match="no counterpart"):
        counterpart(dual, second, rails)
    with pytest.raises(UnknownElementError):
        counterpart(rails, "d9r9-rail9", leaves)


def test_a_change_on_the_other_fabric_is_to_the_same_share_of_its_rate() -> None:
    rails = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    slow = build(replace(FabricSpec(FabricKind.RAIL_OPTIMIZED, 2, 2), nic_rate_mbps=rails.spec.nic_rate_mbps / 4))
    order = {"verb": "degrade", "target": "d0r1-rail1", "rate_mbps": 10.0, "on": "", "both": True}
    assert likewise(order, rails, slow) == {**order, "target": "d0r1-leaf1", "rate_mbps": 2.5}


def test_rails_stand_above_domains_and_spines_above_rails() -> None:
    made = drawing(FabricKind.RAIL_OPTIMIZED, 4, 4)
    heights = {kind: [node.y for node in made.nodes if node.kind == kind] for kind in ("gpu", "leaf", "rail", "spine")}
    assert max(heights["spine"]) < min(heights["leaf"] + heights["rail"])
    assert max(heights["leaf"] + heights["rail"]) < min(heights["gpu"])


def test_gpus_and_nvswitch_stand_in_the_box_of_their_domain() -> None:
    made = drawing(FabricKind.RAIL_ONLY, 2, 2)
    boxed = {node.id: node.box for node in made.nodes if node.box}
    assert boxed == {
        "d0r0": "domain0", "d0r1": "domain0", "nv0": "domain0", "d1r0": "domain1", "d1r1": "domain1", "nv1": "domain1"
    }  # fmt: skip
    assert [(line.id, line.a, line.b, line.rail) for line in made.lines if line.id == "d1r1-rail1"] == [
        ("d1r1-rail1", "d1r1", "rail1", 1)
    ]


def test_256_gpus_are_summarised_by_domain() -> None:
    made = drawing(FabricKind.RAIL_ONLY, 32, 8)
    domains = [node for node in made.nodes if node.kind == "domain"]
    assert made.summary
    assert (len(domains), {node.gpus for node in domains}) == (32, {8})
    assert not [node for node in made.nodes if node.kind in ("gpu", "nvswitch")]


def test_rates_are_bits_over_the_time_between_two_readings() -> None:
    before = Counters(10.0, [0, 1_000], [500, 0])
    after = Counters(10.5, [1_250_000, 1_000], [500, 62_500])
    assert rates_mbps(before, after) == ([20.0, 0.0], [0.0, 1.0])


def test_the_message_about_loads_has_rates_and_what_was_carried() -> None:
    told = loads(Counters(10.0, [0], [0]), Counters(12.0, [1_000_000], [250_000]))
    assert told == {"event": "loads", "t_s": 12.0, "a_to_b_mbps": [4.0], "b_to_a_mbps": [1.0], "carried_mb": [1.25]}


def test_no_time_and_counters_that_go_back_give_no_rate() -> None:
    assert rates_mbps(Counters(1.0, [5], [5]), Counters(1.0, [9], [9])) == ([0.0], [0.0])
    assert rates_mbps(Counters(1.0, [5], [5]), Counters(2.0, [1], [5])) == ([0.0], [0.0])


def test_a_timeline_is_in_order_and_in_milliseconds() -> None:
    result = {
        "changed": True, "detected_s": 0.004, "computed_s": 0.002, "repaired_s": 0.031, "traffic_back_s": 0.009,
        "gap_s": 0.0124, "rules_added": 12, "stream": ["d0r0", "d1r0"],
    }  # fmt: skip
    made = timeline("fail", "d0r0-rail0", result)
    assert [(step["name"], step["at_ms"]) for step in made["steps"]] == [
        ("injected", 0.0), ("detected", 4.0), ("computed", 6.0), ("traffic back", 9.0), ("rules in force", 31.0)
    ]  # fmt: skip
    assert (made["gap_ms"], made["rules_added"], made["stream"]) == (12.4, 12, ["d0r0", "d1r0"])


def test_what_was_not_measured_is_not_in_a_timeline() -> None:
    made = timeline("fail", "d0r0-rail0", {"changed": False})
    assert [step["name"] for step in made["steps"]] == ["injected"]
    assert made["gap_ms"] is None
    assert made["changed"] is False


MESSAGES = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1000), MESSAGES), min_size=1, max_size=8))
def test_a_recording_gives_back_what_was_shown(shown: list[tuple[float, dict[str, Any]]]) -> None:
    stream = io.StringIO()
    recorder = Recorder(stream, 100.0)
    ordered = sorted(shown, key=lambda each: each[0])
    for at_s, message in ordered:
        recorder.write(100.0 + at_s, {**message, "event": "x"})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording.jsonl"
        path.write_text(stream.getvalue())
        back = read_recording(path)
    assert [message for _, message in back] == [{**message, "event": "x"} for _, message in ordered]
    assert all(abs(one.at_s - at_s) < 0.002 for one, (at_s, _) in zip(back, ordered, strict=True))


HEAD = '{"railbed_recording":1}\n'
GOOD = '{"at_s":1,"message":{"event":"x"}}\n'


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl"
    path.write_text(HEAD + GOOD + GOOD[:14])
    assert [one.at_s for one in read_recording(path)] == [1.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty recording"),
        (HEAD, "empty recording"),
        ("hello\n", "line 1: this is no line of a recording"),
        ('{"railbed_recording":2}\n' + GOOD, "that this version reads"),
        ("[]\n", "that this version reads"),
        (HEAD + "oops\n" + GOOD, "line 2: this is no line"),
        (HEAD + '{"at_s":1}\n', "line 2: a line needs"),
        (HEAD + "3\n", "line 2: a line needs"),
        (HEAD + '{"at_s":true,"message":{"event":"x"}}\n', "line 2: a line needs"),
        (HEAD + '{"at_s":NaN,"message":{"event":"x"}}\n', "line 2: the message has no"),
        (HEAD + '{"at_s":1,"message":{}}\n', "line 2: the message has no"),
        (HEAD + GOOD + '{"at_s":0.5,"message":{"event":"x"}}\n', "line 3: the message has no"),
    ],
)
def test_a_bad_recording_is_told_in_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(RecordingError, match=said):
        read_recording(path)


def test_a_recording_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot be read"):
        read_recording(tmp_path / "none.jsonl")
