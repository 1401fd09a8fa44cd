import dataclasses

import numpy as np
import pytest

from experiments.statistics import cases, difference_interval, mean_interval, median
from experiments.tables import footnotes, rows
from tests.experiments.cases import made, small


def test_students_interval_of_known_values() -> None:
    found = mean_interval([9.0, 10.0, 11.0])
    assert found is not None
    # mean 10, standard error 1/sqrt(3), t(0.975, 2) = 4.30265
    assert (found.low, found.high) == pytest.approx((10 - 4.30265 / 3**0.5, 10 + 4.30265 / 3**0.5), rel=1e-5)


def test_an_interval_needs_two_values() -> None:
    assert mean_interval([]) is None
    assert mean_interval([3.0]) is None
    assert difference_interval([3.0], [1.0, 2.0]) is None
    assert median([]) is None
    assert median([None, 2.0, 4.0]) == 3.0


def test_values_without_spread_have_a_point_for_an_interval() -> None:
    same, gap = mean_interval([2.0, 2.0]), difference_interval([3.0, 3.0], [1.0, 1.0])
    assert same is not None
    assert (same.low, same.high) == (2.0, 2.0)
    assert gap is not None
    assert (gap.low, gap.high) == (2.0, 2.0)


def test_the_difference_is_covered_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(1000):
        found = difference_interval(rng.normal(12, 1, 6).tolist(), rng.normal(10, 2, 5).tolist())
        assert found is not None
        hits += 2.0 in found
    assert 0.93 < hits / 1000 < 0.97


def test_repetitions_are_one_row_with_an_interval_and_the_lost_ones() -> None:
    (_, _, outcome), *_ = made(small())
    assert outcome.duration_s
    repeated = [dataclasses.replace(outcome, repetition=number, duration_s=outcome.duration_s * factor)
                for number, factor in enumerate((0.99, 1.0, 1.01, 1.0), 1)]  # fmt: skip
    repeated.append(dataclasses.replace(outcome, repetition=5, duration_s=None, status="not made", problems=("gone",)))
    (case,) = cases(repeated)
    assert (case.lost, case.status) == (1, "not made")
    (row,) = rows(repeated)
    assert row[3].endswith(", 1 of 5 lost")
    assert " to " in row[3]
    notes = " ".join(footnotes(repeated))
    assert "Of 5 repetitions: medians" in notes
    assert "repetition 5: gone." in notes
