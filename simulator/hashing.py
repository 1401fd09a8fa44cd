"""The path hash of :mod:`controller.path_hash` for many pairs at once, on a fabric where nothing is broken.

The tests hold the two against each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.selectors import COARSE_CLASSES, HASH_DOMAINS

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

LEAF_SALT, SPINE_SALT = 1, 2


def mixed(words: Words) -> Words:
    """The finaliser of SplitMix64 on every word."""
    word = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    whole: Words = word ^ (word >> np.uint64(31))
    return whole


def _absorbed(state: Words, word: Ints | int) -> Words:
    return mixed(state + np.uint64(0x9E3779B97F4A7C15) + np.asarray(word, dtype=np.int64).astype(np.uint64))


def source_word(domain: Ints, rail: Ints, domains: int, at_leaf: bool) -> Ints:
    """What a leaf or a spine tells apart of a source."""
    mask = COARSE_CLASSES - 1
    if not at_leaf:
        return ((domain + 1) & mask) << 9 | (rail & mask) << 1 | 1
    return _wrapped(domain, domains) << 9 | rail << 1 | 1


def target_word(domain: Ints, rail: Ints, domains: int, wrapped: bool, whole_domain: bool) -> Ints:
    """What a switch tells apart of a destination: the rail unless ``whole_domain``; many domains where ``wrapped``."""
    bits = _wrapped(domain, domains) if wrapped else domain + 1
    return bits << 8 | (0 if whole_domain else rail)


def _wrapped(domain: Ints, domains: int) -> Ints:
    return domain + 1 if domains <= HASH_DOMAINS else (domain + 1) & (HASH_DOMAINS - 1)


def chosen(seed: int, salt: int, dpid: Ints, source: Ints, target: Ints, count: Ints) -> Ints:
    """For every pair which of the ``count`` ways of its switch it takes."""
    with np.errstate(over="ignore"):
        state = mixed(np.full(len(dpid), seed & ((1 << 64) - 1), dtype=np.uint64))
        for word in (salt, dpid, source, target):
            state = _absorbed(state, word)
        ways: Ints = (mixed(state) % count.astype(np.uint64)).astype(np.int64)
    return ways
