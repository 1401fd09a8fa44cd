from dataclasses import replace

import pytest

from experiments.outcome import Outcome
from experiments.scenario import Scenario, parse_scenario
from experiments.verdicts import Verdict, verdicts
from tests.experiments.cases import made

BASE = """\
fabrics:
  - {name: two, kind: rail-only, domains: 2, rails: 2, nvlink_per_nic: 2}
  - {name: four, kind: rail-only, domains: 2, rails: 2, nvlink_per_nic: 4}
workload:
  - {experts: 4, size: 100MB, within_domains: false, algorithm: two-phase, name: a}
backend: simulator
expect:
"""


def judged(expectation: str, factors: tuple[float, ...] = (1.0,)) -> Verdict:
    """The verdict on outcomes whose times are those of the simulator times ``factors``, one for each repetition."""
    scenario: Scenario = parse_scenario(BASE + f"  - {{{expectation}}}\n")
    outcomes: list[Outcome] = []
    for factor in factors:
        for _, _, outcome in made(scenario):
            assert outcome.duration_s is not None
            outcomes.append(replace(outcome, duration_s=outcome.duration_s * factor))
    (found,) = verdicts(scenario, outcomes)
    return found


def test_a_value_within_and_outside_its_tolerance() -> None:
    right = judged("value: duration_s, fabric: two, versus: {fabric: four}, equals: 0.11, tolerance: 0.01")
    # (1 + 1/2 * 1/2) / (1 + 1/2 * 1/4) - 1
    assert right.measured == pytest.approx(1.25 / 1.125 - 1)
    assert right.ok
    assert right.sentence.startswith("as expected: duration_s of two against four: 0.11")
    wrong = judged("value: duration_s, fabric: two, versus: {fabric: four}, equals: 0.2, tolerance: 0.01")
    assert not wrong.ok
    assert wrong.sentence.startswith("NOT as expected")


def test_the_slope_is_k_minus_1_over_k_with_an_interval_over_repetitions() -> None:
    text = "value: forwarding_slope, fabrics: [two, four], workload: a, equals: 0.5, tolerance: 0.001"
    one = judged(text)
    assert one.measured == pytest.approx(0.5, rel=1e-5)
    assert one.interval is None
    many = judged(text, (0.99, 1.0, 1.01))
    assert many.interval is not None
    assert many.interval[0] < 0.5 < many.interval[1]
    assert judged(text, (0.99, 1.0, 1.01)) == many


def test_medians_over_repetitions() -> None:
    found = judged("value: prediction_error, fabric: two, at_most: 0.02", (1.0, 1.01, 3.0))
    assert found.measured == pytest.approx(0.01)
    assert found.ok


def test_what_nobody_measured_is_not_as_expected() -> None:
    found = judged("value: collision_factor, fabric: two, at_least: 0")
    assert (found.measured, found.ok) == (None, False)
    assert "nothing was measured" in found.sentence


def test_an_expectation_of_the_other_back_end_is_left_out() -> None:
    scenario = parse_scenario(BASE + "  - {value: duration_s, fabric: two, at_most: 0, backend: emulator}\n")
    assert verdicts(scenario, []) == ()


def test_complete_counts_runs() -> None:
    scenario = parse_scenario(BASE + "  - {value: complete, fabric: two, equals: 1}\n")
    outcomes = [outcome for _, _, outcome in made(scenario)]
    assert verdicts(scenario, outcomes)[0].ok
    assert not verdicts(scenario, [replace(outcome, status="failed") for outcome in outcomes])[0].ok
