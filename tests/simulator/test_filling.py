"""From event to event, what is filled again in part has the rates of what is filled whole."""

import numpy as np
import pytest

from simulator.fair_share import max_min_rates
from simulator.filling import fill, join, run
from simulator.network import FLOWS, Network, network


def random_network(seed: int, flows: int, links: int) -> tuple[Network, list[list[int]]]:
    """Flows over one to four links of three sizes; every fourth link is wide and seldom full."""
    rng = np.random.default_rng(seed)
    room = rng.choice([1.0, 2.0, 3.5], size=links) * 1e6
    room[::4] *= flows / links
    paths = [rng.choice(links, size=int(rng.integers(1, 5)), replace=False).tolist() for _ in range(flows)]
    first = np.concatenate(([0], np.cumsum([len(path) for path in paths]))).astype(np.int64)
    crossed = np.concatenate(paths).astype(np.int32)
    left = rng.integers(10**6, 10**8, size=flows).astype(float)
    return network(room, first, crossed, np.ones(len(crossed)), left), paths


@pytest.mark.parametrize("seed", range(8))
def test_rates_after_every_end_are_max_min_fair(seed: int) -> None:
    """Single ends, hundreds of them in a row, so that mistakes and rounding would add up."""
    flows = 150 + 50 * seed
    net, paths = random_network(seed, flows, 20 + 15 * seed)
    join(net, np.arange(flows, dtype=np.int32))
    ended, end = np.zeros(flows + 1, dtype=np.int32), np.zeros(flows + 1)
    waited = np.zeros(flows, dtype=np.uint8)
    ends = 0
    while net.state[FLOWS]:
        fill(net)
        active = np.sort(net.active[: int(net.state[FLOWS])])
        expected = max_min_rates(net.room, [paths[flow] for flow in active])
        assert net.rate[active] == pytest.approx(expected, rel=1e-9)
        ends += run(net, np.inf, 0.0, 0.0, waited, ended, end, 1)
    assert ends == flows


def test_a_flow_that_was_left_out_is_opened_when_its_link_fills_below_it() -> None:
    """As flow 0 ends, 1 and 2 share its link alone; 2 then fills a second link, on which 3 has to give way."""
    paths = [[0], [0], [0, 1], [1, 2]]
    first = np.array([0, 1, 2, 4, 6])
    room = np.array([3.0, 10.0, 8.7])
    crossed = np.array([0, 0, 0, 1, 1, 2], dtype=np.int32)
    net = network(room, first, crossed, np.ones(6), np.array([1.0, 9.0, 9.0, 90.0]))
    join(net, np.arange(4, dtype=np.int32))
    ended, end = np.zeros(5, dtype=np.int32), np.zeros(5)
    assert run(net, np.inf, 0.0, 0.0, np.zeros(4, dtype=np.uint8), ended, end, 1) == 1
    assert net.rate[1:] == pytest.approx([1.0, 1.0, 8.7])
    fill(net)
    assert net.rate[1:] == pytest.approx(max_min_rates(room, paths[1:]), rel=1e-12)
    assert net.rate[1:].tolist() == pytest.approx([1.5, 1.5, 8.5])
