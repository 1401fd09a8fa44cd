from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.errors import PlanError
from workloads.expert_load import PATTERNS, ExpertLoad

FAST = settings(derandomize=True, deadline=None, max_examples=100)


@FAST
@given(st.sampled_from(list(PATTERNS)), st.integers(1, 8), st.sampled_from([2, 4, 8]), st.integers(1, 8),
       st.integers(0, 5), st.integers(0, 9))  # fmt: skip
def test_shares_are_shares(pattern: str, each: int, ranks: int, top_k: int, seed: int, step: int) -> None:
    experts = each * ranks
    top_k = min(top_k, experts - each)
    load = ExpertLoad(pattern, seed)
    shares = load.shares(experts, ranks, top_k, step)
    assert len(shares) == experts
    assert sum(shares) == pytest.approx(1)
    assert all(0 <= share <= 1 / top_k * (1 + 1e-9) for share in shares)
    assert load.shares(experts, ranks, top_k, step) == shares
    assert sum(load.rank_shares(experts, ranks, top_k, step)) == pytest.approx(1)


def test_every_pattern_is_what_it_says() -> None:
    def shares(pattern: str, step: int = 0, **more: float) -> list[float]:
        return sorted(ExpertLoad(pattern, 1, **more).shares(16, 4, 2, step), reverse=True)

    assert shares("uniform") == [1 / 16] * 16
    zipf = shares("zipf")
    assert [round(zipf[0] / share) for share in zipf] == list(range(1, 17))
    assert shares("hot-expert")[:3] == [4 / 19, 1 / 19, 1 / 19]
    assert shares("hot-expert", factor=1000.0)[0] == 1 / 2, "a token goes to two different experts"
    ranks = ExpertLoad("hot-rank", 1).rank_shares(16, 4, 2, 0)
    assert sorted(ranks) == pytest.approx([4 / 28, 4 / 28, 4 / 28, 16 / 28])
    assert sorted(ExpertLoad("zero-rank", 1).rank_shares(16, 4, 2, 0)) == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])
    hot = [max(range(16), key=ExpertLoad("rotating", 1).shares(16, 4, 2, step).__getitem__) for step in range(20)]
    assert [(after - before) % 16 for before, after in pairwise(hot)] == [1] * 19
    bursts = [max(ExpertLoad("bursty", 1).shares(16, 4, 2, step)) > 0.1 for step in range(1000)]
    assert 60 < sum(bursts) < 140
    assert ExpertLoad("zipf", 1).shares(16, 4, 2, 0) != ExpertLoad("zipf", 2).shares(16, 4, 2, 0)


def test_bad_loads_are_refused() -> None:
    with pytest.raises(PlanError, match="unknown expert load 'lukewarm'; the loads are uniform, zipf"):
        ExpertLoad("lukewarm")
    with pytest.raises(PlanError, match=r"factor 0\.5"):
        ExpertLoad("hot-rank", factor=0.5)
    with pytest.raises(PlanError, match="fewer than a token goes to"):
        ExpertLoad("zero-rank").shares(4, 2, 3, 0)
