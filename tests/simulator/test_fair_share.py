import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import SimulationError
from simulator.fair_share import max_min_rates

FAST = settings(derandomize=True, deadline=None, max_examples=150)


def rates(capacity: list[float], paths: list[list[int]]) -> list[float]:
    return [float(rate) for rate in max_min_rates(np.array(capacity, dtype=float), paths)]


def test_incast_shares_the_one_link() -> None:
    assert rates([10.0] * 6, [[k, 5] for k in range(5)]) == pytest.approx([2.0] * 5, rel=1e-12)


@pytest.mark.parametrize("links", [1, 2, 7])
def test_parking_lot(links: int) -> None:
    """One long flow over all links, one short flow on each: everybody gets half."""
    got = rates([1.0] * links, [list(range(links)), *([k] for k in range(links))])
    assert got == pytest.approx([0.5] * (links + 1), rel=1e-12)


def test_parking_lot_with_unequal_links() -> None:
    """The textbook case: the long flow is held by the narrow link, the short flow on the wide one takes the rest."""
    assert rates([1.0, 3.0], [[0, 1], [0], [1]]) == pytest.approx([0.5, 0.5, 2.5], rel=1e-12)


def test_dead_links_and_no_flows() -> None:
    assert rates([0.0, 5.0], [[0, 1], [1]]) == [0.0, 5.0]
    assert rates([1.0], []) == []


def test_a_link_crossed_twice_counts_twice() -> None:
    assert rates([9.0], [[0, 0], [0]]) == pytest.approx([3.0, 3.0], rel=1e-12)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(SimulationError, match="flow 1 crosses no link"):
        rates([1.0], [[0], []])
    for capacity in (-1.0, float("nan"), float("inf")):
        with pytest.raises(SimulationError, match="0 or more"):
            rates([capacity], [[0]])


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[float], list[list[int]]]:
    links = draw(st.integers(1, 8))
    capacity = draw(st.lists(st.one_of(st.integers(1, 20), st.floats(0.1, 50)), min_size=links, max_size=links))
    path = st.lists(st.integers(0, links - 1), min_size=1, max_size=links, unique=True)
    return [float(value) for value in capacity], draw(st.lists(path, min_size=1, max_size=15))


@FAST
@given(cases())
def test_max_min_property(case: tuple[list[float], list[list[int]]]) -> None:
    """No link above capacity, and every flow has a full link on which nobody is faster (Bertsekas and Gallager)."""
    capacity, paths = case
    got = rates(capacity, paths)
    load = [sum(rate for rate, path in zip(got, paths, strict=True) if link in path) for link in range(len(capacity))]
    for link, room in enumerate(capacity):
        assert load[link] <= room * (1 + 1e-9)
    for flow, path in enumerate(paths):
        assert got[flow] > 0
        bottlenecks = [
            link
            for link in path
            if load[link] >= capacity[link] * (1 - 1e-9)
            and all(got[other] <= got[flow] * (1 + 1e-9) for other, way in enumerate(paths) if link in way)
        ]
        assert bottlenecks
