"""Families of equal groups of ranks: on a grid, where there is one, else one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

Axis = tuple[int, int]
"""How many, and how many ranks apart."""

Members = tuple[int, ...]


@dataclass(frozen=True)
class Family:
    """Equal groups of ranks that lie on a grid.

    ``inside`` are the axes within a group and ``between`` those from group to group, the last one running fastest;
    ``first`` is the first rank of the first group. A negative distance runs backwards.
    """

    name: str
    inside: tuple[Axis, ...]
    between: tuple[Axis, ...] = ()
    first: int = 0

    @property
    def group_size(self) -> int:
        """Ranks in each group."""
        return prod(count for count, _ in self.inside)

    @property
    def group_count(self) -> int:
        """Number of groups."""
        return prod(count for count, _ in self.between)

    def groups(self) -> Iterator[Members]:
        """The members of every group."""
        within = _offsets(self.inside)
        for start in _offsets(self.between):
            yield tuple([self.first + start + offset for offset in within])

    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest rank."""
        reach = [(count - 1) * apart for count, apart in (*self.inside, *self.between)]
        return self.first + sum(min(0, one) for one in reach), self.first + sum(max(0, one) for one in reach)


@dataclass(frozen=True)
class ListedFamily:
    """Equal groups of ranks that follow no grid, each with its members; at least one."""

    name: str
    listed: tuple[Members, ...]

    @property
    def group_size(self) -> int:
        """Ranks in each group."""
        return len(self.listed[0])

    @property
    def group_count(self) -> int:
        """Number of groups."""
        return len(self.listed)

    def groups(self) -> Iterator[Members]:
        """The members of every group."""
        return iter(self.listed)

    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest rank."""
        return min(map(min, self.listed)), max(map(max, self.listed))


AnyFamily = Family | ListedFamily


def family_of(name: str, groups: Sequence[Members]) -> AnyFamily:
    """The family of these equal groups, on a grid if they lie on one; in the order given."""
    first = groups[0]
    inside = _axes([member - first[0] for member in first])
    between = _axes([members[0] - first[0] for members in groups])
    if inside is not None and between is not None:
        family = Family(name, inside, between, first[0])
        if all(told == found for told, found in zip(groups, family.groups(), strict=True)):
            return family
    return ListedFamily(name, tuple(groups))


def _axes(offsets: Sequence[int]) -> tuple[Axis, ...] | None:
    """The axes whose offsets are these, which start with 0; None if there are none."""
    if len(offsets) == 1:
        return ()
    apart = offsets[1]
    if not apart:
        return None
    count = 1
    while count < len(offsets) and offsets[count] == count * apart:
        count += 1
    if len(offsets) % count:
        return None
    outer = _axes(offsets[::count])
    return None if outer is None else (*outer, (count, apart))


def _offsets(axes: Sequence[Axis]) -> list[int]:
    return [sum(steps) for steps in product(*(range(0, count * apart, apart) for count, apart in axes))]
