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

import numpy as np
from numpy.typing import NDArray

from simulator.errors import SimulationError

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]


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
    # A bincount has floating-point weights: the halves of the words are summed apart, exactly below 2^21 members each.
    low = np.bincount(groups, (values & np.uint64(0xFFFFFFFF)).astype(np.float64), minlength=size)
    high = np.bincount(groups, (values >> np.uint64(32)).astype(np.float64), minlength=size)
    with np.errstate(over="ignore"):
        whole: Words = low.astype(np.uint64) + (high.astype(np.uint64) << np.uint64(32))
    return whole


def dense(values: NDArray[np.generic]) -> Ints:
    """Equal values get equal numbers, from 0 in order of the values."""
    numbers: Ints = np.unique(values, return_inverse=True)[1].astype(np.int64)
    return numbers


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
    """The first member of every class."""
    return np.unique(classes, return_index=True)[1].astype(np.int64)


def quotient(crossed: Crossings, items: Ints, links: Ints, members: Ints) -> tuple[Ints, Ints, NDArray[np.float64]]:
    """Of every class of flows the classes of links that it crosses, and its flows per link there.

    ``members`` is a flow of every class. Returns offsets by class, link classes and weights. Raises SimulationError if
    the partition is not equitable.
    """
    link_classes = int(links.max(initial=-1)) + 1
    key = items[crossed.flow] * link_classes + links[crossed.link]
    found, counts = np.unique(key, return_counts=True)
    of_link = np.bincount(links, minlength=link_classes)[found % link_classes]
    if np.any(counts % of_link):
        raise SimulationError("flows that should be equal are not; run it with fold=False")
    first = np.zeros(len(members) + 1, dtype=np.int64)
    np.cumsum(np.bincount(found // link_classes, minlength=len(members)), out=first[1:])
    return first, found % link_classes, (counts // of_link).astype(np.float64)
