"""The path hash: the fast forms against the plain one."""

from __future__ import annotations

import random

import pytest

from controller.path_hash import chosen, first_two


@pytest.mark.parametrize("ways", [2, 3, 8, 64])
def test_the_first_two_ways_of_many_keys_are_those_of_each(ways: int) -> None:
    random_source = random.Random(ways)
    keys = [random_source.getrandbits(64) for _ in range(500)]
    every = tuple(range(10, 10 + ways))
    for key, (first, second) in zip(keys, first_two(keys, every), strict=True):
        assert first == chosen(key, every, every)
        assert second == chosen(key, every, [way for way in every if way != first])


def test_attempts_that_are_known_to_fail_can_be_left_out() -> None:
    every = (1, 2, 3, 4)
    for key in range(200):
        first = chosen(key, every, every)
        others = [way for way in every if way != first]
        assert chosen(key, every, others, tried=1) == chosen(key, every, others)
