"""The path hash: which of several equally short ways a pair takes, from a seed and in the same way everywhere.

A key is tried against all ways that a healthy fabric has, one attempt after another, until an attempt names a way that
is usable. So a failure moves only the keys that used the dead way, and those in equal shares to all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
ATTEMPTS = 64
"""After so many attempts (with one usable way in eight: once in 5,000 keys) the key alone decides."""


def mixed(word: int) -> int:
    """The finaliser of SplitMix64: a bijection of 64-bit words in which every input bit moves every output bit."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


def absorbed(state: int, words: Iterable[int]) -> int:
    """``state`` after taking in ``words``; their order matters."""
    for word in words:
        state = mixed((state + _GOLDEN + word) & WORD)
    return state


def chosen(key: int, every: Sequence[int], usable: Sequence[int], tried: int = 0) -> int:
    """The member of ``usable`` that ``key`` gets; ``every`` has all ways that there are when nothing is broken.

    So many attempts as ``tried`` are known to have named ways that are not usable.
    """
    for attempt in range(tried, ATTEMPTS):
        way = every[mixed((key + attempt * _GOLDEN) & WORD) % len(every)]
        if way in usable:
            return way
    return usable[mixed(key) % len(usable)]


def first_two(keys: Sequence[int], every: Sequence[int]) -> list[tuple[int, int]]:
    """For each of ``keys`` the member of ``every`` that it gets, and the one that it gets where that one is dead."""
    ways = zip(keys, _named(keys, every, 0), _named(keys, every, 1), strict=True)
    return [
        (first, second if second != first else chosen(key, every, [way for way in every if way != first], 2))
        for key, first, second in ways
    ]


def _named(keys: Iterable[int], every: Sequence[int], attempt: int) -> list[int]:
    """What one attempt names for each key; :func:`mixed` is written out here, for tables have millions of keys."""
    shift, count = attempt * _GOLDEN, len(every)
    found = []
    for key in keys:
        word = (key + shift) & WORD
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
        found.append(every[(word ^ (word >> 31)) % count])
    return found
