"""Prediction against measurement: the cases, and what is made of a measured run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.outcome import completion_s
from experiments.prediction import (
    HEALTHY,
    NIC,
    NVLINK,
    SPINE,
    SWITCH,
    WITHIN,
    Case,
    Comparison,
    Step,
    cases,
    compared,
    from_json,
    in_words,
    markdown,
    medians,
    points,
    predicted,
    prepare,
    to_json,
)
from topologies.model import FabricKind
from workloads.algorithms import ALGORITHMS, ALL_REDUCE, ALL_TO_ALL, DIRECT, RING, SEND_RECV
from workloads.records import TransferStatus

RING_CASE = Case(FabricKind.RAIL_ONLY, ALL_REDUCE, RING, "rails", 120 << 20)
MEASURED = Comparison(RING_CASE, "iperf3", 4.0, 4.2, True, (Step("reduce-scatter", 2.0, 2.2),), ("a", "b"), "", 1)


def test_every_algorithm_of_every_collective_is_compared_on_every_fabric() -> None:
    for kind in (FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED, FabricKind.SPINE_LEAF):
        found = {(case.collective, case.algorithm) for case in cases([kind], [HEALTHY])}
        # What the engines replay: a two-ended send is part of all of them.
        assert found == {(name, made) for name, known in ALGORITHMS.items() if name != SEND_RECV for made in known}


def test_a_fabric_has_the_failures_that_it_can_have() -> None:
    conditions = {
        kind: {case.condition for case in cases([kind])}
        for kind in (FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED, FabricKind.SPINE_LEAF)
    }
    assert conditions == {
        FabricKind.RAIL_ONLY: {HEALTHY, NIC, SWITCH, NVLINK},
        FabricKind.RAIL_OPTIMIZED: {HEALTHY, NIC, SWITCH, NVLINK, SPINE},
        FabricKind.SPINE_LEAF: {HEALTHY, NIC, NVLINK, SPINE},
    }


@pytest.mark.parametrize("condition", [NIC, SWITCH])
def test_a_failure_comes_in_the_middle_and_costs_time(condition: str) -> None:
    healthy_s = completion_s(predicted(prepare(RING_CASE, 0.35), 0.35))
    failing = prepare(replace(RING_CASE, condition=condition), 0.35)
    failing_s = completion_s(predicted(failing, 0.35))
    assert healthy_s is not None
    assert failing_s is not None
    assert all(0 < failure.at_s < healthy_s and failure.restore_s is None for failure in failing.failures)
    assert len(failing.failures) == (1 if condition == NIC else 4)
    assert failing_s > 1.3 * healthy_s


def test_a_comparison_says_in_which_phases_the_difference_is() -> None:
    prepared = prepare(RING_CASE, 0.0)
    expected = predicted(prepared, 0.0)
    slower = replace(
        expected,
        transfers=tuple(
            replace(made, end_s=(made.end_s or 0.0) + 0.5) if made.transfer_id < 16 else made
            for made in expected.transfers
        ),
    )
    found = compared(prepared, "agent", expected, slower)
    assert found.measured_s == pytest.approx(found.predicted_s + 0.5)
    assert [step.measured_s - step.predicted_s for step in found.steps] == pytest.approx([0.5, 0.0])
    assert not found.good


def test_a_run_that_was_not_made_in_full_is_not_good_and_says_why() -> None:
    prepared = prepare(RING_CASE, 0.0)
    expected = predicted(prepared, 0.0)
    broken = replace(
        expected,
        transfers=(replace(expected.transfers[0], status=TransferStatus.FAILED, end_s=None, reason="no path"),
                   *expected.transfers[1:]),
    )  # fmt: skip
    found = compared(prepared, "agent", expected, broken)
    assert (found.measured_s, found.difference, found.good, found.reason) == (None, None, False, "no path")
    assert "| failed | no path **over** |" in markdown([found])


def test_comparisons_are_stored_and_read_back() -> None:
    assert from_json(to_json([MEASURED, replace(MEASURED, measured_s=None)])) == [
        MEASURED,
        replace(MEASURED, measured_s=None),
    ]


def test_the_median_run_counts_and_a_failed_one_is_the_longest() -> None:
    runs = [replace(MEASURED, measured_s=measured_s) for measured_s in (4.1, None, 4.4)]
    (found,) = medians(runs)
    assert (found.measured_s, found.runs) == (4.4, 3)
    both = medians([*runs, replace(MEASURED, engine="agent")])
    assert [one.engine for one in both] == ["iperf3", "agent"]


def test_the_words_and_the_table_say_how_good_the_predictions_are() -> None:
    poor = replace(MEASURED, case=replace(RING_CASE, collective=ALL_TO_ALL, algorithm=DIRECT), measured_s=5.0)
    text = in_words([MEASURED, poor])
    assert text.startswith(f"1 of 2 measurements are within {WITHIN:.0%}")
    assert "+5.0% to +25.0%" in text
    table = markdown([MEASURED, poor])
    assert "| all-reduce per rail, ring, 120 MiB | - | 4.00 | 4.20 | +5.0% |" in table
    assert "+25.0% **over** |" in table
    assert [point.measured_s for point in points([MEASURED, poor])] == [4.2, 5.0]
    assert in_words([]) == "Nothing was measured."


def test_the_tables_in_the_documents_are_those_of_the_stored_figures() -> None:
    documents = Path(__file__).resolve().parent.parent.parent / "docs"
    stored = medians(from_json((documents / "prediction.json").read_text()))
    page = (documents / "prediction.md").read_text()
    assert markdown(stored) in page
    assert in_words(stored) in " ".join(page.split())
