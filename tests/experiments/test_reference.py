"""The papers' numbers: what a row says, and that the experiments behind them measure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.reference import bill, forwarding, rails, robustness
from experiments.reference.iterations import Job
from experiments.reference.registry import PAPER_TABLES, REFERENCES, find, is_reference, run
from experiments.reference.row import Expected, Mark, ReferenceRow, UnknownReferenceError, exactly
from experiments.reference.solve import duration_s, iteration_s
from experiments.reference.tables import cells, figure_of, markdown, number_text, tally
from simulator.closed_forms import forwarding_overhead
from tests.experiments.test_figures import assert_nothing_is_cut
from topologies.builders import build, preset_spec
from topologies.model import FabricKind, FabricSpec
from workloads.algorithms import DIRECT, TWO_PHASE
from workloads.models import find_model
from workloads.training import Plan, training_iteration

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "reference-results.md"
FAST = ("R1", "R2", "R7", "R9")


def row(measured: float | None, expected: Expected | None) -> ReferenceRow:
    return ReferenceRow("R1", "a case", "%", measured, expected)


@pytest.mark.parametrize(
    ("measured", "expected", "difference", "agrees"),
    [
        (40.0, Expected(38, 77, Mark.PUBLISHED), 0.0, True),
        (37.7, Expected(38, 77, Mark.PUBLISHED, 0.5), -0.3, True),
        (37.0, Expected(38, 77, Mark.PUBLISHED, 0.5), -1.0, False),
        (80.0, Expected(38, 77, Mark.PUBLISHED, 0.5), 3.0, False),
        (3.0, exactly(3.0), 0.0, True),
        (3.1, exactly(3.0), 0.1, False),
        (3.1, None, None, None),
        (None, exactly(3.0), None, None),
    ],
)
def test_the_difference_is_that_to_the_nearest_expected_value(
    measured: float | None, expected: Expected | None, difference: float | None, agrees: bool | None
) -> None:
    found = row(measured, expected)
    assert found.difference == (None if difference is None else pytest.approx(difference))
    assert found.agrees is agrees


def test_cells_say_range_unit_mark_and_share() -> None:
    found = ReferenceRow("R1", "a case", "%", 80.0, Expected(38, 77, Mark.PUBLISHED), "a cause")
    assert cells(found) == ("a case", "38 to 77 %", "P", "80 %", "+3 (+3.9%)", "a cause")
    assert cells(row(None, None))[1:5] == ("-", "-", "not shown", "-")
    assert number_text(-1e-12) == "0"
    assert number_text(196_608) == "196,608"
    assert number_text(99.893) == "99.89"
    assert tally([found, row(1.0, None), row(3.0, exactly(3.0))]) == "1 of 2 expected numbers are met."


def test_names_are_found_in_any_case_and_unknown_ones_get_the_list() -> None:
    assert [reference.name for reference in find(["r7", "R1", "R7"])] == ["R7", "R1"]
    assert [reference.name for reference in find([PAPER_TABLES])] == list(REFERENCES)
    assert is_reference("r3")
    assert is_reference(PAPER_TABLES)
    assert not is_reference("R33.yaml")
    with pytest.raises(UnknownReferenceError, match=r"unknown reference experiment 'R33': .*R1.*paper-tables"):
        run(["R33"])


@pytest.mark.parametrize("down", [(), ("d1r0-rail0",)])
def test_an_iteration_takes_as_long_as_its_transfers(down: tuple[str, ...]) -> None:
    fabric = build(preset_spec("dgx-h100", FabricKind.RAIL_ONLY, 4, 8))
    plan = Plan(tp=8, pp=2, dp=2, micro_batches=2, sequence_parallel=True)
    made = training_iteration(find_model("gpt3-175b"), plan, ranks=32, domain_size=8)
    assert iteration_s(fabric, made, down=down) == pytest.approx(duration_s(fabric, made.to_schedule(), down=down))


@pytest.fixture(scope="module")
def fast_rows() -> tuple[ReferenceRow, ...]:
    return run(FAST)


def test_what_does_not_agree_says_why(fast_rows: tuple[ReferenceRow, ...]) -> None:
    assert {found.experiment for found in fast_rows} == set(FAST)
    assert [found.label for found in fast_rows if found.agrees is False and not found.note] == []
    assert len({(found.experiment, found.label, found.unit) for found in fast_rows}) == len(fast_rows)


def test_everything_that_is_exact_agrees(fast_rows: tuple[ReferenceRow, ...]) -> None:
    wrong = [
        found for found in fast_rows if found.expected and found.expected.mark is Mark.DERIVED and not found.agrees
    ]
    assert wrong == []
    assert all(found.agrees is not False for found in fast_rows if found.experiment in ("R1", "R2", "R7"))


def test_a_page_has_a_table_for_each_experiment(fast_rows: tuple[ReferenceRow, ...]) -> None:
    page = markdown(find(FAST), fast_rows)
    assert Counter(line for line in page.splitlines() if line.startswith("## ")) == Counter(
        f"## {name}" for name in FAST
    )
    assert sum(line.startswith("| ") for line in page.splitlines()) == len(fast_rows) + 2 * len(FAST)


def test_the_page_in_the_documents_has_these_rows(fast_rows: tuple[ReferenceRow, ...]) -> None:
    page = PAGE.read_text()
    assert [line for line in page.splitlines() if line.startswith("## ")] == [f"## {name}" for name in REFERENCES]
    assert [found.label for found in fast_rows if f"| {' | '.join(cells(found))} |" not in page] == []


@pytest.mark.soak
def test_the_page_in_the_documents_is_that_of_a_run() -> None:
    assert PAGE.read_text() == markdown(list(REFERENCES.values()), run([PAPER_TABLES]))


def test_every_row_of_the_table_of_counts_is_there(fast_rows: tuple[ReferenceRow, ...]) -> None:
    counted = [found for found in fast_rows if found.unit in ("switches", "transceivers")]
    assert len(counted) == 4 * len(bill.COUNTS) == 24
    assert all(isinstance(found.measured, int) for found in counted)


@pytest.mark.parametrize(("preset", "rails_"), [("dgx-a100", 8), ("dgx-h100", 8), ("dgx-h100", 16)])
def test_relaying_in_phases_costs_what_the_formula_says(preset: str, rails_: int) -> None:
    spec = preset_spec(preset, FabricKind.RAIL_ONLY, 2, rails_)
    serial, overlapped = forwarding.overheads(preset, rails_)
    assert serial == pytest.approx(forwarding_overhead(rails_, spec.nic_rate_mbps, spec.nvlink_rate_mbps), rel=1e-9)
    assert overlapped == pytest.approx(0.0, abs=1e-9)


def test_a_relay_over_a_slow_nvlink_does_cost_time() -> None:
    """The overlapped overhead is measured: it is not 0 where NVLink is slower than the NIC."""
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 4, nic_rate_mbps=400_000, nvlink_rate_mbps=100_000))
    direct = forwarding.cross_domain_flows(fabric, DIRECT)
    baseline_s = forwarding.between_domains_s(forwarding.any_to_any(fabric.spec), direct)
    expected = forwarding_overhead(4, 400_000, 100_000, overlapped=True)
    assert forwarding.between_domains_s(fabric, direct) / baseline_s - 1 == pytest.approx(expected)


def test_an_all_to_all_between_domains_moves_every_block_once_over_a_nic() -> None:
    fabric = build(preset_spec("dgx-h100", FabricKind.RAIL_ONLY, 3, 4))
    (direct,) = forwarding.cross_domain_flows(fabric, DIRECT)
    shuffle, on_rails = forwarding.cross_domain_flows(fabric, TWO_PHASE)
    assert sum(flow.size_bytes for flow in direct) == 12 * 8 * forwarding.BLOCK_BYTES
    assert sum(flow.size_bytes for flow in on_rails) == 12 * 8 * forwarding.BLOCK_BYTES
    assert sum(flow.size_bytes for flow in shuffle) == 12 * 8 * 3 // 4 * forwarding.BLOCK_BYTES


def test_rings_load_every_nic_once_each_way() -> None:
    fabric = build(preset_spec("dgx-h100", FabricKind.RAIL_OPTIMIZED, 4, 4))
    phase = rails.one_ring_a_nic(fabric, 1 << 20).phases()[0]
    crossing = [made for made in phase if made.src // 4 != made.dst // 4]
    assert Counter(made.src for made in crossing) == Counter(range(16))
    assert Counter(made.dst for made in crossing) == Counter(range(16))
    assert all(made.src % 4 == made.dst % 4 for made in crossing)


def test_the_start_up_of_messages_adds_to_every_step_of_a_ring() -> None:
    fabric = build(preset_spec("dgx-h100", FabricKind.RAIL_OPTIMIZED, 4, 2))
    schedule = rails.stepwise_ring(fabric, 8 << 20)
    step_s = (1 << 20) / 50e9
    assert duration_s(fabric, schedule, message_s=1e-6) == pytest.approx(14 * (step_s + 1e-6))


def test_one_flow_a_ring_halves_and_enough_of_them_cost_one_kth() -> None:
    """With 4 rails 3 flows are enough; 2 leave one rail unused, so that the bound is not reached."""
    fabric = build(preset_spec("dgx-h100", FabricKind.RAIL_ONLY, 17, 4))
    strides = robustness.spreading_strides(fabric)
    assert robustness.switch_down_factor(fabric, strides[:1]) == pytest.approx(2.0)
    assert robustness.switch_down_factor(fabric, strides) == pytest.approx(4 / 3)
    assert robustness.switch_down_factor(fabric, strides[:2]) == pytest.approx(3 / 2)


def test_what_a_lost_switch_costs_agrees_with_the_bounds_on_both_fabrics() -> None:
    found = robustness.switch_down(lambda text: None)
    assert len(found) == 4
    assert all(row.agrees for row in found)


def test_dense_training_takes_as_long_on_rail_only_and_longer_where_the_spines_are_few() -> None:
    job = Job("gpt3-125m", Plan(tp=2, pp=2, dp=8, micro_batches=2), domain_size=2)
    rail_only = job.seconds(FabricKind.RAIL_ONLY)
    assert job.seconds(FabricKind.RAIL_OPTIMIZED) == pytest.approx(rail_only, rel=1e-9)
    assert job.seconds(FabricKind.RAIL_OPTIMIZED, oversubscription=4.0) > 1.05 * rail_only
    assert job.seconds(FabricKind.IDEAL) < 0.95 * rail_only
    assert replace(job, nic_factor=0.25).seconds(FabricKind.RAIL_ONLY) > 1.3 * rail_only


def test_the_figure_has_a_line_for_each_machine_and_the_published_bands() -> None:
    rows = [
        ReferenceRow("R3", f"K = {size}", "%", 8.0 + size / 100, line="H100, shuffle", setting=size) for size in (8, 16)
    ]
    figure = figure_of(REFERENCES["R3"], rows)
    assert figure is not None
    assert_nothing_is_cut(figure)
    (panel,) = figure.axes
    assert [list(line.get_ydata()) for line in panel.get_lines()] == [[8.08, 8.16]]
    legend = panel.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["published", "published, version 4", "H100, shuffle"]
    assert figure_of(REFERENCES["R1"], rows) is None
