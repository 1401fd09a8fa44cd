import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from controller.diagnosis.telemetry import Connection
from controller.diagnosis.verdict import (
    Cell,
    Component,
    ComponentKind,
    Diagnosis,
    Evidence,
    Finding,
    Pattern,
    Syndrome,
    Verdict,
)
from controller.diagnosis.watch import Alarm
from experiments.figures.board import fabric_figure
from experiments.figures.completion import completion_figure
from experiments.figures.delays import delay_figure
from experiments.figures.heat import heat_figure
from experiments.figures.matrix import matrix_figure
from experiments.figures.outages import outage_figure
from experiments.figures.prediction import prediction_figure
from experiments.figures.style import figure_bytes
from experiments.figures.throughput import throughput_figure
from experiments.report import DiagnosisView, FabricView, Picture, Report, RunView, render
from tests.experiments.cases import made, small
from topologies.builders import build, preset_spec
from topologies.model import FabricKind, FabricSpec, SwitchKind
from topologies.scale import Scale
from workloads.records import LinkSeries


def texts(figure: Figure) -> Iterator[Text]:
    """Every text that is drawn; axes that are off, and ticks outside what is shown, keep labels without drawing."""
    off = [axis for axes in figure.axes if not axes.axison for axis in (axes.xaxis, axes.yaxis)]
    hidden = {id(text) for axis in off for text in axis.findobj(Text)}
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        outside = [tick for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
                   if not low <= tick.get_loc() <= high]  # fmt: skip
        hidden |= {id(text) for tick in outside for text in (tick.label1, tick.label2)}
    for text in figure.findobj(Text):
        if isinstance(text, Text) and text.get_visible() and text.get_text().strip() and id(text) not in hidden:
            yield text


def drawn(figure: Figure) -> tuple[list[tuple[str, Bbox]], int, int]:
    """Every text with its box in pixels; width and height of the figure."""
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in texts(figure)]
    return boxes, *canvas.get_width_height()


def assert_nothing_is_cut(figure: Figure) -> None:
    texts_and_boxes, width, height = drawn(figure)
    assert texts_and_boxes
    for text, box in texts_and_boxes:
        assert min(box.x0, box.y0) >= -1, text
        assert max(box.x1 - width, box.y1 - height) <= 1, text


def assert_names_do_not_overlap(figure: Figure, names: list[str]) -> None:
    """The names of switches, each centred in its box, do not overlap."""
    boxes = [box for text, box in drawn(figure)[0] if text in names]
    assert len(boxes) >= len(names)
    for index, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:index])


@pytest.mark.parametrize(
    ("kind", "domains", "rails"),
    [
        (FabricKind.RAIL_ONLY, 4, 4),
        (FabricKind.RAIL_OPTIMIZED, 4, 4),
        (FabricKind.SPINE_LEAF, 4, 4),
        (FabricKind.RAIL_ONLY, 8, 8),
        (FabricKind.RAIL_OPTIMIZED, 8, 8),
        (FabricKind.IDEAL, 2, 4),
        (FabricKind.RAIL_ONLY, 2, 1),
    ],
)
def test_fabrics_are_drawn_whole(kind: FabricKind, domains: int, rails: int) -> None:
    fabric = build(preset_spec("dgx-h100", kind, domains, rails))
    targets = [link.id for link in fabric.failure_targets()]
    figure = fabric_figure(fabric, kind.value, targets[-1:], targets[:2])
    assert_nothing_is_cut(figure)
    inside = (SwitchKind.GPU, SwitchKind.NVSWITCH)
    assert_names_do_not_overlap(figure, [switch.id for switch in fabric.switches if switch.kind not in inside])


def test_of_a_huge_fabric_a_part_is_drawn_and_the_figure_says_so() -> None:
    fabric = build(preset_spec("dgx-h100", FabricKind.RAIL_ONLY, 20, 20))
    figure = fabric_figure(fabric, "huge", ["d19r19-rail19"], [])
    assert any("are drawn" in text.get_text() for text in texts(figure))
    assert_nothing_is_cut(figure)


def test_clos_rails_and_parallel_links_are_drawn() -> None:
    base = preset_spec("dgx-h100", FabricKind.RAIL_ONLY, 4, 2)
    spec = dataclasses.replace(base, domains_per_leaf=2, spines=2, parallel_links=2, uplinks=2)
    assert_nothing_is_cut(fabric_figure(build(spec), "clos", ["rail0l0-rail0s0#2"], []))


def test_throughput_and_completion_figures() -> None:
    runs = made(small())
    outcomes = [outcome for _, _, outcome in runs]
    assert_nothing_is_cut(completion_figure(outcomes))
    failed = dataclasses.replace(outcomes[0], duration_s=None, real_duration_s=None, status="failed")
    figure = completion_figure([failed, *outcomes[1:]])
    assert_nothing_is_cut(figure)
    assert "failed" in {text.get_text() for text in texts(figure)}
    for run, record, outcome in runs:
        figure = throughput_figure(run.fabric, record.links, record.scale, outcome)
        assert_nothing_is_cut(figure)
        labels = {text.get_text() for text in texts(figure)}
        assert ("link down" in labels) == bool(run.failures)


def test_the_same_figure_gives_the_same_bytes() -> None:
    fabric = build(preset_spec("dgx-h100", FabricKind.RAIL_ONLY, 2, 2))
    for file_format, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        first, second = (figure_bytes(fabric_figure(fabric, "x"), file_format) for _ in range(2))
        assert first.startswith(start)
        assert first == second


def test_the_links_of_a_run_are_shaded_by_what_they_carry() -> None:
    run, record, outcome = made(small())[2]
    figure = heat_figure(run.fabric, record.links, record.scale, outcome)
    assert_nothing_is_cut(figure)
    names = [label.get_text() for panel in figure.axes for label in panel.get_yticklabels()]
    row = names.index(outcome.outages[0].link_id)
    shares = figure.axes[0].images[0].get_array()
    assert shares.max() <= 100 + 1e-6
    width_s = record.links.t_s[-1] / shares.shape[1]
    gone = slice(math.ceil(outcome.outages[0].down_s / width_s), math.floor((outcome.outages[0].up_s or 0.0) / width_s))
    assert np.ma.getmaskarray(shares)[row, gone].all()
    assert not np.ma.getmaskarray(shares)[row, : gone.start - 1].all()


def test_of_many_links_the_busiest_are_shown() -> None:
    fabric = build(preset_spec("dgx-h100", FabricKind.RAIL_OPTIMIZED, 16, 8))
    ids = tuple(link.id for link in fabric.links)
    carried = np.zeros((2, len(ids)))
    carried[1] = np.arange(len(ids))
    links = LinkSeries(ids, np.array([0.0, 1.0]), carried, carried)
    _, _, outcome = made(small())[0]
    figure = heat_figure(fabric, links, Scale(20_000, 1000), outcome)
    assert_nothing_is_cut(figure)
    assert "NIC links: the 48 busiest of 128" in {text.get_text() for text in texts(figure)}


def test_outages_are_drawn_with_what_is_known_of_them() -> None:
    outcomes = [outcome for _, _, outcome in made(small()) if outcome.outages]
    outcomes[0] = dataclasses.replace(outcomes[0], longest_gap_s=0.042)
    lasting = dataclasses.replace(outcomes[1].outages[0], up_s=None, rerouted_after_s=None)
    outcomes[1] = dataclasses.replace(outcomes[1], outages=(lasting,), duration_s=None, status="failed")
    figure = outage_figure(outcomes)
    assert_nothing_is_cut(figure)
    words = {text.get_text().strip() for text in texts(figure)}
    assert {"42 ms silence, routes after 100 ms", "no new routes seen", "stays down"} <= words


def test_prediction_against_measurement_names_what_has_no_time() -> None:
    outcomes = [outcome for _, _, outcome in made(small())]
    outcomes = [dataclasses.replace(outcome, repetition=repetition, duration_s=(outcome.duration_s or 0) * factor)
                for outcome in outcomes for repetition, factor in ((1, 1.02), (2, 1.05))]  # fmt: skip
    outcomes[:2] = [dataclasses.replace(outcome, duration_s=None, status="not made") for outcome in outcomes[:2]]
    for figure in (prediction_figure(outcomes), completion_figure(outcomes)):
        assert_nothing_is_cut(figure)
        assert "not made" in " ".join(text.get_text() for text in texts(figure))


def test_the_report_is_one_file_that_escapes_what_it_is_given() -> None:
    scenario = small()
    runs = made(scenario)
    outcomes = [outcome for _, _, outcome in runs]
    outcomes[0] = dataclasses.replace(outcomes[0], faithful=False, notes=("CPU at <100 %>",), longest_gap_s=0.123)
    outcomes[2] = dataclasses.replace(outcomes[2], longest_gap_s=0.123)
    drawn = Picture("a", b"<svg/>")
    views = (FabricView("rail-only", runs[0][0].fabric, Scale(20_000, 1000), drawn, "caption"),
             FabricView("rail-optimized", runs[-1][0].fabric, Scale(20_000, 1000), drawn, ""))  # fmt: skip
    shown = tuple(RunView(outcome, run.fabric, drawn, drawn)
                  for (run, _, _), outcome in zip(runs, outcomes, strict=True) if outcome.outages)  # fmt: skip
    report = Report(scenario, "interrupted", 9, tuple(outcomes), views, drawn, drawn, drawn, (drawn,), (drawn,), shown,
                    (DiagnosisView(outcomes[0], drawn, ((1.5, "communication slow: link <a>", "why"),)),),
                    {"command": ["railbed", "x y"], "seed": 3})  # fmt: skip
    text = render(report)
    assert "A &lt;small&gt; &amp; quick one" in text
    assert "<b>escaping</b>" not in text
    assert "CPU at &lt;100 %&gt;" in text
    assert "After 1.50 s: <strong>communication slow: link &lt;a&gt;</strong>. why." in text
    assert "Unfaithful: all-reduce on rail-only" in text
    assert "This result is interrupted: 8 of 9 runs are in it." in text
    assert "123 ms" in text
    for source in re.findall(r'(?:src|href)="([^"]*)"', text):
        assert source.startswith("data:image/svg+xml;base64,")
    assert "http" not in text
    for needed in ("400 Gbit/s", "20 Mbit/s", "bytes while down", "How to run it again", "Provenance", "Slowdown"):
        assert needed in text


def test_the_delay_matrix_shows_cells_verdicts_and_what_was_told() -> None:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    cells = {
        Connection(src, dst): Cell(src, dst, 0, 1, 1.0, 3.0 if src == 1 else 1.0, None, 0.0, 1, (src, dst) == (0, 3))
        for src in range(4) for dst in range(4) if src != dst
    }  # fmt: skip
    told = Verdict(
        Syndrome.COMMUNICATION_SLOW, Component(ComponentKind.SENDER, "d0r1"), Pattern.ROW,
        Evidence("why", (0.0, 1.0), {}, {}, ((1, 0), (1, 2), (1, 3))),
    )  # fmt: skip
    rank = Verdict(
        Syndrome.NON_COMMUNICATION_HANG, Component(ComponentKind.RANK, "d1r1"), Pattern.RANK,
        Evidence("why", (0.0, 1.0), {}, {}),
    )  # fmt: skip
    found = Diagnosis(Finding.FAULT, (0.0, 1.0), (told, rank), cells)
    figure = delay_figure(fabric, found, [Alarm(1.0, told, found), Alarm(2.0, rank, found)], "who waits")
    assert_nothing_is_cut(figure)
    shades = figure.axes[0].images[0].get_array()
    assert shades[1, 0] == 3.0
    assert shades[0, 1] == 1.0
    assert np.ma.is_masked(shades[2, 2])
    assert figure.axes[0].images[1].get_array().count() == 1, "one connection hangs"
    assert len(figure.axes[0].patches) == 3
    assert len(figure.axes[0].lines) == 1
    words = " ".join(text for text, _ in drawn(figure)[0])
    assert "after 1.0 s: communication slow: sender d0r1" in words
    assert "after 2.0 s: non-communication hang: rank d1r1" in words


@pytest.mark.parametrize(("ranks", "rails"), [(16, 4), (256, 8), (1000, 8), (4096, 256), (9, 9)])
def test_the_matrix_holds_every_byte_and_says_who_talks(ranks: int, rails: int) -> None:
    pairs = {(rank, (rank + 1) % ranks): 10**6 * (1 + rank % 3) for rank in range(ranks)}
    figure = matrix_figure(pairs, ranks, rails, "A ring of all ranks")
    assert_nothing_is_cut(figure)
    cells = figure.axes[0].images[0].get_array()
    assert cells.sum() == sum(pairs.values())
    assert cells.shape[0] <= 256
    words = " ".join(text for text, _ in drawn(figure)[0])
    assert f"{ranks / (ranks * (ranks - 1) / 2):.2%} of all pairs talk" in words
    assert len(figure.axes[0].patches) == (ranks // rails + (ranks % rails > 0) if ranks // rails <= 64 else 0)


def test_the_matrix_of_silence_is_empty() -> None:
    figure = matrix_figure({}, 16, 4, "Nothing")
    assert_nothing_is_cut(figure)
    assert not figure.axes[0].images
    assert figure_bytes(figure, "png") == figure_bytes(matrix_figure({}, 16, 4, "Nothing"), "png")
