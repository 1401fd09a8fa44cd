"""Results side by side: what is compared, what is refused, and what is called a difference."""

import dataclasses
from collections.abc import Sequence

import pytest

from experiments.compare import FASTER, NO_DIFFERENCE, SLOWER, UNKNOWN, Side, compare
from experiments.compare_tables import HEADINGS, comparison_notes, comparison_rows
from experiments.errors import UnlikeResultsError
from experiments.outcome import Outcome
from tests.experiments.cases import made, one, small

(BASE,) = [outcome for _, _, outcome in made(one()) if outcome.condition == "healthy"]


def live(seconds: Sequence[float | None], **changes: object) -> tuple[Outcome, ...]:
    """Repetitions on the emulator that took so long in real seconds."""
    return tuple(
        dataclasses.replace(BASE, backend="emulator", repetition=number, real_duration_s=value,
                            duration_s=value, status="complete" if value else "failed", **changes)  # type: ignore[arg-type]
        for number, value in enumerate(seconds, 1)
    )  # fmt: skip


def verdict(ours: Sequence[float | None], theirs: Sequence[float | None]) -> str:
    (found,) = compare([Side("a", live(ours)), Side("b", live(theirs))])
    return found.verdict


def test_a_difference_is_one_only_beyond_the_noise() -> None:
    assert verdict([1.0, 1.1, 0.9], [1.05, 0.95, 1.0]) == NO_DIFFERENCE
    assert verdict([1.0, 1.01, 0.99], [1.2, 1.21, 1.19]) == SLOWER
    assert verdict([1.0, 1.01, 0.99], [0.8, 0.81, 0.79]) == FASTER
    assert verdict([1.0, 1.01, 0.99], [1.2]) == UNKNOWN
    assert verdict([1.0, 1.01], [None, None]) == UNKNOWN


def test_the_difference_has_its_interval_in_shares_of_the_first() -> None:
    (found,) = compare([Side("a", live([1.9, 2.0, 2.1])), Side("b", live([2.2, 2.3, 2.4, None]))])
    assert found.difference == pytest.approx(0.15)
    assert found.interval
    # Welch: equal variances 0.01, n = 3 each: df 4, t = 2.776, standard error sqrt(2 * 0.01 / 3)
    half = 2.7764451 * (2 * 0.01 / 3) ** 0.5 / 2
    assert (found.interval.low, found.interval.high) == pytest.approx((0.15 - half, 0.15 + half), rel=1e-6)
    assert (found.other.repetitions, found.other.lost, found.other.median_s) == (4, 1, 2.3)


def test_the_simulator_is_exact() -> None:
    sides = [Side("a", (BASE,)), Side("b", (BASE,))]
    assert [found.verdict for found in compare(sides)] == [NO_DIFFERENCE]
    assert BASE.real_duration_s
    slower = dataclasses.replace(BASE, real_duration_s=BASE.real_duration_s * 1.001)
    assert [found.verdict for found in compare([sides[0], Side("c", (slower,))])] == [SLOWER]
    around = [BASE.real_duration_s * factor for factor in (0.98, 1.0, 1.03)]
    for pair in ([Side("a", live(around)), sides[1]], [sides[0], Side("b", live(around))]):
        (found,) = compare(pair)
        assert found.verdict == NO_DIFFERENCE
        assert found.interval
        assert found.interval.low < 0 < found.interval.high


def test_every_case_in_common_is_compared_with_every_other_result() -> None:
    outcomes = tuple(outcome for _, _, outcome in made(small()))
    found = compare([Side("a", outcomes), Side("b", outcomes[:4]), Side("c", outcomes)])
    assert len(found) == 4 + 8
    assert {one.verdict for one in found} == {NO_DIFFERENCE}
    rows = comparison_rows(found)
    assert {len(row) for row in rows} == {len(HEADINGS)}
    assert len(rows) == 8 + 12
    assert [row[2] for row in rows[:3]] == ["a", "b", "c"]
    assert "taken as exact" in " ".join(comparison_notes(found))


def test_results_with_other_failures_say_so() -> None:
    whole = Side("a", (BASE,), ("link auto, kind down, at 50%",))
    same, none, unknown = (Side("b", (BASE,), failures) for failures in (whole.failures, (), None))
    for other in (same, unknown):
        (found,) = compare([whole, other])
        assert found.remark == ""
    found = compare([whole, same, none])
    said = "The failures are not the same: a has link auto, kind down, at 50%; b has none."
    assert [one.remark for one in found] == ["", said]
    assert comparison_notes(found).count(said) == 1


def test_fabrics_of_different_names_are_compared_where_each_side_has_one() -> None:
    whole = Side("a", tuple(outcome for _, _, outcome in made(small())))
    found = compare([whole.only("rail-only"), whole.only("rail-optimized")])
    assert [(one.base.side, one.other.side) for one in found] == [("a:rail-only", "a:rail-optimized")] * 4
    with pytest.raises(UnlikeResultsError, match="a has no fabric 'ring'; its fabrics are: rail-only, rail-optimized"):
        whole.only("ring")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"size_bytes": 1}, "size_bytes is 268435456 in a and 1 in b"),
        ({"ranks": 99}, "ranks is 4 in a and 99 in b"),
        ({"operation": "all-gather"}, "the operation is all-reduce in a and all-gather in b"),
        ({"collective": "other"}, "a and b have nothing in common: a has all-reduce on rail-only; b has other on"),
    ],
)
def test_unlike_things_are_refused(change: dict[str, object], sentence: str) -> None:
    other = dataclasses.replace(BASE, **change)  # type: ignore[arg-type]
    with pytest.raises(UnlikeResultsError, match=sentence):
        compare([Side("a", (BASE,)), Side("b", (other,))])
    with pytest.raises(UnlikeResultsError, match="at least two"):
        compare([Side("a", (BASE,))])
