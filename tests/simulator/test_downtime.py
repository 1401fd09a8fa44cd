"""The downtime model: its built-in cases, its arithmetic by hand and by chance, and every wrong input."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from pathlib import Path

import pytest

from simulator.economics.downtime import (
    DAY_S,
    MEANINGS,
    PARTS,
    Case,
    alone,
    best_interval_s,
    default_inputs,
    default_text,
    downtime,
    load_inputs,
    parse_inputs,
    seconds_per_failure,
    with_settings,
)
from simulator.economics.errors import DowntimeInputsError
from simulator.economics.reading import Figure


def case(**values: float) -> Case:
    plain = dict.fromkeys((one.name for one in fields(Case)), 0.0)
    plain.update(failures=3, checkpoint_interval_s=7200, restart_s=600)
    return Case(**{name: Figure(value, "by hand") for name, value in {**plain, **values}.items()})


@pytest.mark.parametrize(
    ("name", "shares", "total"),
    [("before", (7.53, 3.41, 19.65, 0.60), 31.19), ("after", (0.23, 0.05, 0.73, 0.15), 1.16)],
)
def test_the_built_in_cases_land_on_the_known_shares(name: str, shares: tuple[float, ...], total: float) -> None:
    inputs = default_inputs()
    found = downtime(inputs.cases[name], inputs.period_days.value)
    assert [round(100 * share, 2) for share in found.parts.values()] == list(shares)
    assert round(100 * found.total, 2) == total
    assert found.useful == pytest.approx(1 - found.total)


def test_a_case_by_hand() -> None:
    found = case(failures=6, aided_share=0.75, aided_detection_s=20, unaided_detection_s=1800, aided_diagnosis_s=100,
                 unaided_diagnosis_s=8000, checkpoint_save_s=72)  # fmt: skip
    seconds = (3600, 0.75 * 20 + 0.25 * 1800, 0.75 * 100 + 0.25 * 8000, 600)
    assert tuple(seconds_per_failure(found).values()) == pytest.approx(seconds)
    shares = downtime(found, 10)
    assert tuple(shares.parts.values()) == pytest.approx([6 * one / (10 * DAY_S) for one in seconds])
    assert tuple(shares.parts) == PARTS
    assert shares.saving == pytest.approx((1 - shares.total) * 72 / 7200)
    assert shares.useful == pytest.approx((1 - shares.total) * 0.99)


def test_the_shares_are_those_of_a_job_played_through_with_random_failures() -> None:
    """A job that works, saves, fails at random and starts again, second by second of its own clock."""
    rng = random.Random(7)
    played = case(failures=400, checkpoint_interval_s=1000, aided_share=0.5, aided_detection_s=10,
                  unaided_detection_s=300, aided_diagnosis_s=40, unaided_diagnosis_s=900, restart_s=120)  # fmt: skip
    running_s = since_checkpoint_s = 0.0
    lost = dict.fromkeys(PARTS, 0.0)
    uptime_s = 100 * DAY_S - 400 * (155 + 470 + 120)  # what the period leaves for running, redone work included
    for _ in range(400):
        ran_s = rng.expovariate(400 / uptime_s)
        running_s += ran_s
        since_checkpoint_s = (since_checkpoint_s + ran_s) % 1000
        lost["work done again"] += since_checkpoint_s
        since_checkpoint_s = 0.0
        by_itself = rng.random() < 0.5
        lost["detection"] += 10 if by_itself else 300
        lost["diagnosis and isolation"] += 40 if by_itself else 900
        lost["restart"] += 120
    period_s = running_s + sum(seconds for part, seconds in lost.items() if part != "work done again")
    expected = downtime(played, period_s / DAY_S)
    assert {part: seconds / period_s for part, seconds in lost.items()} == pytest.approx(expected.parts, rel=0.1)


def test_each_step_alone_changes_its_own_parts_and_all_together_are_the_other_case() -> None:
    cases = default_inputs().cases
    before, after = cases["before"], cases["after"]
    steps = alone(before, after)
    assert downtime(steps["faster restart"], 30).redone == downtime(before, 30).redone
    assert downtime(steps["fewer failures"], 30).total == pytest.approx(0.3 * downtime(before, 30).total)
    merged = before
    for changed in steps.values():
        different = {one.name: getattr(changed, one.name) for one in fields(Case)
                     if getattr(changed, one.name) != getattr(before, one.name)}  # fmt: skip
        merged = replace(merged, **different)
    assert downtime(merged, 30) == downtime(after, 30)


def test_the_best_interval_costs_least() -> None:
    found = case(failures=20, checkpoint_save_s=30)
    best_s = best_interval_s(found, 30)
    assert best_s == pytest.approx((2 * 30 * 30 * DAY_S / 20) ** 0.5)

    def useful(interval_s: float) -> float:
        return downtime(replace(found, checkpoint_interval_s=Figure(interval_s, "")), 30).useful

    assert useful(best_s) > max(useful(best_s * 0.8), useful(best_s * 1.25))
    assert best_interval_s(case(), 30) is None
    assert best_interval_s(case(failures=0, checkpoint_save_s=30), 30) is None


def test_the_built_in_inputs_have_sources_and_can_be_saved_and_read(tmp_path: Path) -> None:
    path = tmp_path / "inputs.yaml"
    path.write_text(default_text())
    built_in = default_inputs()
    assert load_inputs(path).cases == built_in.cases
    for one in built_in.cases.values():
        for field in fields(Case):
            assert not getattr(one, field.name).source.startswith("given in")
            assert field.name in MEANINGS


def test_settings_take_the_place_of_inputs() -> None:
    changed = with_settings(default_inputs(), {"after.failures": 24, "period_days": 60})
    assert downtime(changed.cases["after"], changed.period_days.value) == pytest.approx(
        downtime(default_inputs().cases["after"], 30)
    )
    assert changed.cases["after"].failures.source == "given in the command line"
    assert changed.cases["after"].restart_s == default_inputs().cases["after"].restart_s


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"later.failures": 1},
            "there is no input 'later.failures': the inputs are period_days, before.KEY, after.KEY",
        ),
        ({"failures": 1}, "there is no input 'failures'"),
        ({"after.failure": 1}, "cases.after.failure: this key is unknown; did you mean 'failures'"),
        ({"after.aided_share": 1.2}, "cases.after.aided_share: expected a share from 0 to 1, found 1.2"),
        ({"after.restart_s": -1}, "cases.after.restart_s: expected a number of at least 0"),
        ({"after.restart_s": float("nan")}, "cases.after.restart_s: expected a number of at least 0"),
        ({"after.checkpoint_interval_s": 0}, "checkpoint_interval_s: expected a number above 0, found 0"),
        ({"after.checkpoint_save_s": 994}, "checkpoint_save_s: expected less than the interval of 994 s"),
        ({"period_days": 0}, "period_days: expected a number above 0"),
    ],
)
def test_wrong_settings(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(DowntimeInputsError, match=sentence.replace("(", r"\(")):
        with_settings(default_inputs(), settings)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "mine.yaml: expected the keys period_days, cases"),
        ("period_days: 30\ncases: {}", "mine.yaml: cases: expected at least one case by its name"),
        ("period_days: 30\ncases: {a: {failures: 3}}", "cases.a.checkpoint_interval_s: this key is missing"),
        ("period_days: [", "mine.yaml: this is no YAML"),
        ("period_days: 30\nperiod_days: 31\ncases: {}", "the key 'period_days' occurs twice"),
    ],
)
def test_wrong_files(text: str, sentence: str) -> None:
    with pytest.raises(DowntimeInputsError, match=sentence):
        parse_inputs(text, "mine.yaml")


def test_failures_that_take_all_the_time_are_refused() -> None:
    with pytest.raises(DowntimeInputsError, match=r"1000 failures of 4,200 s each leave nothing of 30 days"):
        downtime(case(failures=1000), 30)
