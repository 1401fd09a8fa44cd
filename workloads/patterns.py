"""Traffic that is no collective: incast, shifts, permutations and random pairs, as one phase of transfers."""

from __future__ import annotations

import random

from topologies.model import Fabric
from workloads.algorithms import SEND_RECV
from workloads.errors import ScheduleError
from workloads.schedule import Schedule, Tag, Transfer

INCAST = "incast"
SHIFT = "shift"
PERMUTATION = "permutation"
RANDOM_PAIRS = "random-pairs"
PATTERNS = (INCAST, SHIFT, PERMUTATION, RANDOM_PAIRS)

SIZE_MEANING = "bytes of each transfer"

MOST_DRAWS = 10_000


def pattern_on(
    fabric: Fabric,
    pattern: str,
    size_bytes: int,
    *,
    flows: int | None = None,
    target: int = 0,
    shift: int | None = None,
    name: str = "",
    seed: int = 0,
) -> Schedule:
    """``size_bytes`` from every sender at once.

    ``incast``: ``flows`` senders (default: all) of other domains send to rank ``target``. They are taken evenly from
    the domains, those on the target's rail first. ``shift``: rank i sends to rank i + ``shift`` (default: a domain and
    one rail more). ``permutation``: every rank sends to one other and receives from one other, all of other domains.
    ``random-pairs``: ``flows`` pairs (default: as many as ranks) of different domains are drawn, with repetition.
    The last two are drawn with ``seed``. Raises ScheduleError for patterns that the fabric can't hold.
    """
    ranks = len(fabric.gpus)
    domain_of = [gpu.domain for gpu in fabric.gpus]
    if max(domain_of) == 0:
        raise ScheduleError(f"the pattern '{pattern}' joins different domains, but this fabric has one; use more")
    rng = random.Random(f"{pattern}/{seed}")
    if pattern == INCAST:
        pairs = _incast(fabric, flows, target)
    elif pattern == SHIFT:
        step = fabric.spec.rails + 1 if shift is None else shift
        if step % ranks == 0:
            raise ScheduleError(f"a shift by {step} of {ranks} ranks sends everything to itself; use another one")
        pairs = [(rank, (rank + step) % ranks) for rank in range(ranks)]
    elif pattern == PERMUTATION:
        pairs = _permutation(domain_of, rng)
    elif pattern == RANDOM_PAIRS:
        count = ranks if flows is None else flows
        pairs = [_pair(domain_of, rng) for _ in range(count)]
    else:
        raise ScheduleError(f"unknown pattern '{pattern}'; the patterns are {', '.join(PATTERNS)}")
    tag = Tag(pattern, SEND_RECV, "all", 0)
    transfers = tuple(Transfer(number, *pair, size_bytes, (), tag) for number, pair in enumerate(pairs))
    return Schedule(name or pattern, SEND_RECV, "one phase", ranks, 2, size_bytes, SIZE_MEANING, seed, transfers)


def _incast(fabric: Fabric, flows: int | None, target: int) -> list[tuple[int, int]]:
    if not 0 <= target < len(fabric.gpus):
        raise ScheduleError(f"the target is rank {target}, but the ranks are 0 to {len(fabric.gpus) - 1}")
    at = fabric.gpu_of_rank(target)
    rails = fabric.spec.rails
    others = [gpu for gpu in fabric.gpus if gpu.domain != at.domain]
    others.sort(key=lambda gpu: ((gpu.rail - at.rail) % rails, gpu.domain))
    count = len(others) if flows is None else flows
    if not 1 <= count <= len(others):
        raise ScheduleError(f"an incast of {count} senders needs as many GPUs in other domains, of {len(others)}")
    return [(fabric.rank(gpu), target) for gpu in others[:count]]


def _permutation(domain_of: list[int], rng: random.Random) -> list[tuple[int, int]]:
    """A random order of receivers in which no rank sends within its domain: drawn at random, then mended by swaps."""
    ranks = len(domain_of)
    if max(map(domain_of.count, domain_of)) * 2 > ranks:
        raise ScheduleError(f"more than half of {ranks} ranks share a domain, so that not all can send to another one")
    to = list(range(ranks))
    rng.shuffle(to)
    for _ in range(MOST_DRAWS):
        wrong = [rank for rank in range(ranks) if domain_of[to[rank]] == domain_of[rank]]
        if not wrong:
            return list(enumerate(to))
        one, other = wrong[0], rng.randrange(ranks)
        to[one], to[other] = to[other], to[one]
    raise ScheduleError(f"no permutation of {ranks} ranks between domains was found; use another seed")


def _pair(domain_of: list[int], rng: random.Random) -> tuple[int, int]:
    while True:
        src, dst = rng.randrange(len(domain_of)), rng.randrange(len(domain_of))
        if domain_of[src] != domain_of[dst]:
            return src, dst
