"""How the tokens of a mixture of experts spread over the experts, step by step. Seeded: the same every time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workloads.errors import PlanError

UNIFORM = "uniform"
ZIPF = "zipf"
HOT_EXPERT = "hot-expert"
HOT_RANK = "hot-rank"
ZERO_RANK = "zero-rank"
ROTATING = "rotating"
BURSTY = "bursty"


@dataclass(frozen=True)
class ExpertLoad:
    """A pattern of load.

    ``uniform``: every expert alike. ``zipf``: the k-th expert in a drawn order has weight 1/k^``exponent``.
    ``hot-expert``: one drawn expert has ``factor`` times the weight of the others. ``hot-rank``: so have all experts of
    one drawn rank. ``zero-rank``: the experts of one drawn rank get nothing. ``rotating``: the hot expert is the next
    one in every step. ``bursty``: uniform, but a step is, with the chance ``burst``, one with a hot expert, drawn anew.
    Raises PlanError for an unknown pattern and for numbers out of range.
    """

    pattern: str = UNIFORM
    seed: int = 0
    exponent: float = 1.0
    factor: float = 4.0
    burst: float = 0.1

    def __post_init__(self) -> None:
        if self.pattern not in PATTERNS:
            raise PlanError(f"unknown expert load '{self.pattern}'; the loads are {', '.join(PATTERNS)}")
        if not (self.exponent >= 0 and self.factor >= 1 and 0 <= self.burst <= 1):
            raise PlanError(
                f"expert load '{self.pattern}': exponent {self.exponent}, factor {self.factor}, burst {self.burst}; "
                "exponent must be 0 or more, factor 1 or more, burst 0 to 1"
            )

    def shares(self, experts: int, ranks: int, top_k: int, step: int) -> tuple[float, ...]:
        """Share of all routed tokens that each expert gets in a step; they add up to 1.

        Rank r of ``ranks`` holds the r-th ``experts / ranks`` of them. No expert gets more than 1/``top_k``, as a token
        goes to ``top_k`` different ones; what is above is spread over the others in proportion.
        """
        weights = PATTERNS[self.pattern](self, experts, ranks, step)
        return _capped(weights, 1 / top_k, self.pattern)

    def rank_shares(self, experts: int, ranks: int, top_k: int, step: int) -> tuple[float, ...]:
        """Share of all routed tokens that each rank gets."""
        shares = self.shares(experts, ranks, top_k, step)
        each = experts // ranks
        return tuple(sum(shares[rank * each : (rank + 1) * each]) for rank in range(ranks))

    def _random(self, step: int = -1) -> random.Random:
        return random.Random(f"{self.pattern}/{self.seed}/{step}")


def _uniform(load: ExpertLoad, experts: int, ranks: int, step: int) -> list[float]:
    return [1.0] * experts


def _zipf(load: ExpertLoad, experts: int, ranks: int, step: int) -> list[float]:
    weights = [1 / place**load.exponent for place in range(1, experts + 1)]
    load._random().shuffle(weights)
    return weights


def _hot(load: ExpertLoad, experts: int, hot: int) -> list[float]:
    return [load.factor if expert == hot else 1.0 for expert in range(experts)]


def _hot_expert(load: ExpertLoad, experts: int, ranks: int, step: int) -> list[float]:
    return _hot(load, experts, load._random().randrange(experts))


def _rotating(load: ExpertLoad, experts: int, ranks: int, step: int) -> list[float]:
    return _hot(load, experts, (load._random().randrange(experts) + step) % experts)


def _bursty(load: ExpertLoad, experts: int, ranks: int, step: int) -> list[float]:
    rng = load._random(step)
    return _hot(load, experts, rng.randrange(experts)) if rng.random() < load.burst else [1.0] * experts


def _on_one_rank(load: ExpertLoad, experts: int, ranks: int, weight: float) -> list[float]:
    chosen = load._random().randrange(ranks)
    each = experts // ranks
    return [weight if expert // each == chosen else 1.0 for expert in range(experts)]


def _hot_rank(load: ExpertLoad, experts: int, ranks: int, step: int) -> list[float]:
    return _on_one_rank(load, experts, ranks, load.factor)


def _zero_rank(load: ExpertLoad, experts: int, ranks: int, step: int) -> list[float]:
    return _on_one_rank(load, experts, ranks, 0.0)


PATTERNS: dict[str, Callable[[ExpertLoad, int, int, int], list[float]]] = {
    UNIFORM: _uniform,
    ZIPF: _zipf,
    HOT_EXPERT: _hot_expert,
    HOT_RANK: _hot_rank,
    ZERO_RANK: _zero_rank,
    ROTATING: _rotating,
    BURSTY: _bursty,
}


def _capped(weights: Sequence[float], cap: float, pattern: str) -> tuple[float, ...]:
    """Shares in proportion to ``weights``, none above ``cap``."""
    full: set[int] = set()
    while True:
        room = 1 - cap * len(full)
        rest = sum(weight for place, weight in enumerate(weights) if place not in full)
        if rest <= 0 and room > 1e-9:
            raise PlanError(
                f"expert load '{pattern}': the experts that get any token are fewer than a token goes to; "
                "use more experts, fewer ranks in the expert group, or another load"
            )
        shares = [
            cap if place in full else weight * room / rest if rest else 0.0 for place, weight in enumerate(weights)
        ]
        over = {place for place, share in enumerate(shares) if share > cap * (1 + 1e-12) and place not in full}
        if not over:
            return tuple(shares)
        full |= over
