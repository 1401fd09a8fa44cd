"""Equal flows solved once: the coarsest equitable partition of flows, gates and links, by colour refinement.

Two flows stay in one class only while they have the same size, wait for gates of the same class and cross links of the
same classes; two links, while flows of the same classes cross them; two gates, while they wait for the same classes.
When no class splits any more, every link of a class is crossed by the same number of flows of each class. The classes
then have the fair rates of their members (Grohe, Kersting, Mladenov, Selman: Dimension reduction via colour refinement,
2014, show it for linear programs), and so the members start and end together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import compiled
from simulator.errors import SimulationError

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio, odd: spreads words over a hash table."""


@dataclass(frozen=True)
class Crossings:
    """Which flow crosses which link: flow ``flow[e]`` crosses ``link[e]``. One for each state of the routes."""

    flow: Ints
    link: Ints


@dataclass(frozen=True)
class Waits:
    """Which gate waits for which item: gate ``gate[e]`` waits for ``item[e]``."""

    gate: Ints
    item: Ints


def mixed(words: NDArray[np.generic]) -> Words:
    """Every word scrambled, so that sums of scrambled words stand for multisets."""
    with np.errstate(over="ignore"):
        word: Words = words.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        word ^= word >> np.uint64(31)
    return word


def sums(values: Words, groups: Ints, size: int) -> Words:
    """Sum of ``values`` by group, modulo 2^64."""
    whole = np.zeros(size, dtype=np.uint64)
    _add(whole, values, groups)
    return whole


@compiled
def _add(whole: Words, values: Words, groups: Ints) -> None:
    for at in range(len(values)):
        whole[groups[at]] += values[at]


def dense(values: NDArray[np.generic]) -> Ints:
    """Equal values get equal numbers, from 0 in order of the values."""
    return distinct(values)[1]


def distinct(values: NDArray[Any]) -> tuple[NDArray[Any], Ints]:
    """The different values in order, and for each of ``values`` its place there.

    As ``numpy.unique``, which sorts all values; there are few different ones where folding is of use.
    """
    words = np.ascontiguousarray(values + 0.0 if values.dtype.kind == "f" else values)  # without minus zero
    if words.dtype.itemsize != 8:
        words = words.astype(np.int64)
    numbers = np.empty(len(words), dtype=np.int64)
    count, first = _number(words.view(np.uint64), numbers)
    found = words[first[:count]]
    order = np.argsort(found)
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    return found[order], place[numbers]


@compiled
def _number(words: Words, numbers: Ints) -> tuple[int, Ints]:
    """Number ``words`` in order of their first appearance; their count, and where each appears first.

    A hash table with linear probing that doubles when it is half full.
    """
    size = 1024
    table = np.full(size, -1, dtype=np.int64)
    first = np.empty(size, dtype=np.int64)
    count = 0
    for at in range(len(words)):
        word = words[at]
        spot = np.int64(((word ^ (word >> np.uint64(29))) * FACTOR) >> np.uint64(32)) & (size - 1)
        while table[spot] >= 0 and words[first[table[spot]]] != word:
            spot = (spot + 1) & (size - 1)
        if table[spot] < 0:
            table[spot] = count
            first[count] = at
            count += 1
        numbers[at] = table[spot]
        if 2 * count > size:
            size *= 2
            wider = np.empty(size, dtype=np.int64)
            wider[:count] = first[:count]
            first = wider
            table = np.full(size, -1, dtype=np.int64)
            for number in range(count):
                word = words[first[number]]
                spot = np.int64(((word ^ (word >> np.uint64(29))) * FACTOR) >> np.uint64(32)) & (size - 1)
                while table[spot] >= 0:
                    spot = (spot + 1) & (size - 1)
                table[spot] = number
    return count, first


@dataclass(frozen=True)
class Partition:
    """Class numbers of items (flows first, then computations), gates and links."""

    items: Ints
    gates: Ints
    links: Ints


def refine(
    items: Ints, gate_of: Ints, gates: Ints, links: Ints, waits: Waits, crossings: Sequence[Crossings]
) -> Partition:
    """The coarsest equitable partition that is at least as fine as the given classes of items, gates and links."""
    classes = -1
    while True:
        found = sum(int(part.max(initial=-1)) + 1 for part in (items, gates, links))
        if found == classes:
            return Partition(items, gates, links)
        classes = found
        with np.errstate(over="ignore"):
            of_item, of_link = mixed(items), mixed(links)
            gate_word = mixed(gates) * np.uint64(3) + sums(of_item[waits.item], waits.gate, len(gates))
            item_word = mixed(of_item) + mixed(gates)[gate_of] * np.uint64(5)
            link_word = mixed(of_link)
            for state, crossed in enumerate(crossings):
                factor = np.uint64(2 * state + 7)
                item_word += factor * sums(mixed(of_link + factor)[crossed.link], crossed.flow, len(items))
                link_word += factor * sums(mixed(of_item + factor)[crossed.flow], crossed.link, len(links))
        items, gates, links = dense(item_word), dense(gate_word), dense(link_word)


def first_members(classes: Ints) -> Ints:
    """The first member of every class; classes are numbered from 0 without gaps."""
    members = np.full(int(classes.max(initial=-1)) + 1, -1, dtype=np.int64)
    _first_places(members, classes)
    return members


@compiled
def _first_places(members: Ints, classes: Ints) -> None:
    for at in range(len(classes)):
        if members[classes[at]] < 0:
            members[classes[at]] = at


def quotient(crossed: Crossings, items: Ints, links: Ints, members: Ints) -> tuple[Ints, Ints, NDArray[np.float64]]:
    """Of every class of flows the classes of links that it crosses, and its flows per link there.

    ``members`` is a flow of every class. Returns offsets by class, link classes and weights. Raises SimulationError if
    the partition is not equitable.
    """
    link_classes = int(links.max(initial=-1)) + 1
    key = items[crossed.flow] * link_classes + links[crossed.link]
    found, place = distinct(key)
    counts = np.bincount(place, minlength=len(found))
    of_link = np.bincount(links, minlength=link_classes)[found % link_classes]
    if np.any(counts % of_link):
        raise SimulationError("flows that should be equal are not; run it with fold=False")
    first = np.zeros(len(members) + 1, dtype=np.int64)
    np.cumsum(np.bincount(found // link_classes, minlength=len(members)), out=first[1:])
    return first, found % link_classes, (counts // of_link).astype(np.float64)
