"""Fair rates against an independent solver, and against closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from simulator.fair_share import max_min_rates


def by_linear_programs(capacity: list[float], paths: list[list[int]]) -> np.ndarray:
    """Max-min rates by the definition: raise the least rate as far as it goes, fix who can't go higher, repeat."""
    flows, links = len(paths), len(capacity)
    use = np.zeros((links, flows))
    for flow, path in enumerate(paths):
        for link in path:
            use[link, flow] += 1
    fixed: dict[int, float] = {}
    while len(fixed) < flows:
        open_flows = [flow for flow in range(flows) if flow not in fixed]
        # Variables: the rates, and the least rate t of the open flows, which is raised.
        rows = [np.append(row, 0.0) for row in use]
        for flow in open_flows:
            row = np.zeros(flows + 1)
            row[flow], row[flows] = -1.0, 1.0
            rows.append(row)
        bound = [*capacity, *([0.0] * len(open_flows))]
        limits = [(fixed[flow], fixed[flow]) if flow in fixed else (0, None) for flow in range(flows)] + [(0, None)]
        target = np.zeros(flows + 1)
        target[flows] = -1
        level = -linprog(target, A_ub=np.array(rows), b_ub=bound, bounds=limits, method="highs").fun
        for flow in open_flows:
            # Can this one go above the level while no open one falls below it?
            target = np.zeros(flows + 1)
            target[flow] = -1
            at_least = [
                (fixed[one], fixed[one]) if one in fixed else (level * (1 - 1e-9), None) for one in range(flows)
            ]  # fmt: skip
            most = -linprog(target[:flows], A_ub=use, b_ub=capacity, bounds=at_least, method="highs").fun
            if most <= level * (1 + 1e-6):
                fixed[flow] = level
    return np.array([fixed[flow] for flow in range(flows)])


@settings(derandomize=True, deadline=None, max_examples=60)
@given(data=st.data(), links=st.integers(1, 6), flows=st.integers(1, 8))
def test_random_networks_have_the_rates_of_the_linear_programs(data: st.DataObject, links: int, flows: int) -> None:
    capacity = data.draw(st.lists(st.sampled_from([1.0, 2.0, 3.0, 5.0, 8.0]), min_size=links, max_size=links))
    link = st.integers(0, links - 1)
    paths = data.draw(st.lists(st.lists(link, min_size=1, max_size=3, unique=True), min_size=flows, max_size=flows))
    assert max_min_rates(np.array(capacity), paths) == pytest.approx(by_linear_programs(capacity, paths), rel=1e-6)


@pytest.mark.parametrize("hops", [1, 2, 7, 40])
def test_parking_lot(hops: int) -> None:
    """One flow over all links, one more on each: everyone gets half, whatever the number of links."""
    paths = [list(range(hops)), *([hop] for hop in range(hops))]
    assert max_min_rates(np.full(hops, 3.0), paths) == pytest.approx(np.full(hops + 1, 1.5), rel=1e-12)


@pytest.mark.parametrize("flows", [1, 3, 1000])
def test_incast(flows: int) -> None:
    paths = [[flow, flows] for flow in range(flows)]
    assert max_min_rates(np.full(flows + 1, 7.0), paths) == pytest.approx(np.full(flows, 7 / flows), rel=1e-12)


def test_bottlenecks_one_after_the_other() -> None:
    """Link k has capacity k + 1 and the flows k to n-1: its share is left by those that stopped before."""
    n = 6
    capacity = np.array([float(n * (k + 1)) for k in range(n)])
    paths = [list(range(flow + 1)) for flow in range(n)]
    # All cross link 0, which is the tightest: n flows, capacity n.
    assert max_min_rates(capacity, paths) == pytest.approx(np.ones(n), rel=1e-12)
    paths = [[flow, n - 1] if flow < n - 1 else [n - 1] for flow in range(n)]
    tight = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 30.0])
    assert max_min_rates(tight, paths) == pytest.approx([1, 2, 3, 4, 5, 15], rel=1e-12)
