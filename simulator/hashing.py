"""The path hash of :mod:`controller.routing` for many pairs at once; the tests hold the two against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.selectors import ALL_BITS, COARSE_CLASSES, HASH_DOMAINS
from simulator.compiled import compiled

Ints = NDArray[np.int64]

LEAF_SALT, SPINE_SALT = np.uint64(1), np.uint64(2)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_ALL = np.uint64(ALL_BITS)
_WRAP = np.uint64(HASH_DOMAINS - 1)
_COARSE = np.uint64(COARSE_CLASSES - 1)
_NONE = np.uint64(0)


@compiled
def _mixed(word: Any) -> Any:
    word = (word ^ (word >> _S30)) * _FIRST
    word = (word ^ (word >> _S27)) * _SECOND
    return word ^ (word >> _S31)


@compiled
def _absorbed(state: Any, word: Any) -> Any:
    return _mixed(state + _GOLDEN + word)


def first_state(seed: int) -> np.uint64:
    """The state of the hash before its first word."""
    with np.errstate(over="ignore"):
        # Compiled code returns a plain number, whose type as an argument would depend on its value.
        state: np.uint64 = np.uint64(_mixed(np.uint64(seed & ((1 << 64) - 1))))
    return state


@compiled
def chosen_ports(
    seed: np.uint64, at_leaf: bool, whole_domain: bool, domains: int, dpid: Ints,
    src_domain: Ints, src_rail: Ints, dst_domain: Ints, dst_rail: Ints, first: Ints, count: Ints, ports: Ints,
) -> Ints:  # fmt: skip
    """For every pair the place in ``ports`` of the port that its switch chooses, among ``count`` from ``first`` on."""
    made = np.zeros(len(dpid), dtype=np.int64)
    wide = _ALL if domains <= HASH_DOMAINS else _WRAP
    for at in range(len(dpid)):
        source, target = np.uint64(src_domain[at] + 1), np.uint64(dst_domain[at] + 1)
        source_rail, target_rail = np.uint64(src_rail[at]), np.uint64(dst_rail[at])
        state = _absorbed(seed, LEAF_SALT if at_leaf else SPINE_SALT)
        state = _absorbed(state, np.uint64(dpid[at]))
        source_mask = wide if at_leaf else _COARSE
        source_rail_mask = _ALL if at_leaf else _COARSE
        target_mask = wide if at_leaf else _ALL
        for word in (source & source_mask, source_mask, source_rail & source_rail_mask, source_rail_mask):
            state = _absorbed(state, word)
        for word in (
            target & target_mask, target_mask, _NONE if whole_domain else target_rail, _NONE if whole_domain else _ALL
        ):  # fmt: skip
            state = _absorbed(state, word)
        best = first[at]
        most = _NONE
        for place in range(first[at], first[at] + count[at]):
            hashed = _mixed(state + np.uint64(ports[place]) * _GOLDEN)
            if place == first[at] or hashed > most:
                best, most = place, hashed
        made[at] = best
    return made
