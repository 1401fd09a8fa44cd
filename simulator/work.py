"""A schedule as arrays: its items (transfers, then computations), the gates they wait at, and their paths.

A gate is one set of dependencies, shared by all that wait for it; it opens when all of them have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import compiled
from simulator.folding import Crossings, Waits, dense, distinct
from simulator.paths import NO_LINK
from topologies.scale import Scale
from workloads.schedule import Computation, Schedule, Transfer

T = TypeVar("T", bound=np.generic)
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Work:
    """``size_bytes`` and ``delay_s`` are emulated ones; ``duration_s`` those of the computations."""

    src: Ints
    dst: Ints
    size_bytes: Ints
    delay_s: Floats
    duration_s: Floats
    gate_of: Ints
    gates: int
    waits: Waits

    @property
    def transfers(self) -> int:
        """Number of transfers; the items from there on are computations."""
        return len(self.src)


def work_of(schedule: Schedule, scale: Scale) -> Work:
    """The arrays of a schedule, its times and sizes emulated ones of ``scale``."""
    transfers, computations = schedule.transfers, schedule.computations
    items: list[Transfer | Computation] = [*transfers, *computations]
    place = {item.id: at for at, item in enumerate(items)}
    gate_of = np.empty(len(place), dtype=np.int64)
    known: dict[int, int] = {}
    afters: list[tuple[int, ...]] = []
    for at, item in enumerate(items):
        gate = known.get(id(item.after))
        if gate is None:
            gate = known[id(item.after)] = len(afters)
            afters.append(item.after)
        gate_of[at] = gate
    waits = [(gate, place[before]) for gate, after in enumerate(afters) for before in dict.fromkeys(after)]
    rows = np.array(waits, dtype=np.int64).reshape(-1, 2)
    sizes, with_size = distinct(_column(transfers, "size_bytes", np.int64))
    delays, with_delay = distinct(_column(transfers, "delay_s", np.float64))
    emulated_bytes = np.array([scale.emulated_bytes(size) for size in sizes.tolist()], dtype=np.int64)
    emulated_s = np.array([scale.emulated_s(delay_s) for delay_s in delays.tolist()], dtype=float)
    return Work(
        src=_column(transfers, "src", np.int64),
        dst=_column(transfers, "dst", np.int64),
        size_bytes=emulated_bytes[with_size],
        delay_s=emulated_s[with_delay],
        duration_s=np.array([scale.emulated_s(one.duration_s) for one in computations], dtype=float),
        gate_of=gate_of,
        gates=len(afters),
        waits=Waits(rows[:, 0], rows[:, 1]),
    )


def _column(transfers: Sequence[Transfer], name: str, dtype: type[T]) -> NDArray[T]:
    """One field of every transfer."""
    return np.fromiter(map(attrgetter(name), transfers), dtype=dtype, count=len(transfers))


def crossings(rows: NDArray[np.int32]) -> Crossings:
    """The crossings of flows whose directed links are the rows of ``rows``."""
    flow, column = np.nonzero(rows != NO_LINK)
    return Crossings(flow.astype(np.int64), rows[flow, column].astype(np.int64))


def is_phased(work: Work) -> bool:
    """Whether there is no computing, and every gate but one waits for all items of just one other gate, in a chain."""
    if len(work.duration_s) or work.delay_s.any():
        return False
    before = work.gate_of[work.waits.item]
    first = np.full(work.gates, work.gates)
    last = np.full(work.gates, -1)
    np.minimum.at(first, work.waits.gate, before)
    np.maximum.at(last, work.waits.gate, before)
    waiting = last >= 0
    counts = np.bincount(work.waits.gate, minlength=work.gates)
    items = np.bincount(work.gate_of, minlength=work.gates)
    parents = last[waiting]
    return bool(
        waiting.sum() == work.gates - 1
        and np.all(first[waiting] == parents)
        and np.all(counts[waiting] == items[parents])
        and len(np.unique(parents)) == len(parents)
    )


def depths(gates: int, gate_of: Ints, waits: Waits) -> Ints:
    """For every gate the number of gates on the longest way to it: a first guess at which ones differ."""
    depth = np.zeros(gates, dtype=np.int64)
    before = gate_of[waits.item]
    while _deepen(depth, before, waits.gate):
        pass
    return depth


@compiled
def _deepen(depth: Ints, before: Ints, behind: Ints) -> bool:
    """One pass over all waits; in order of the schedule, one is enough."""
    changed = False
    for at in range(len(before)):
        least = depth[before[at]] + 1
        if depth[behind[at]] < least:
            depth[behind[at]] = least
            changed = True
    return changed


def unique_rows(rows: Sequence[NDArray[np.generic]]) -> Ints:
    """Equal columns of the stacked ``rows`` get equal numbers, from 0."""
    number = np.zeros(len(rows[0]), dtype=np.int64)
    for row in rows:
        values = dense(row)
        number = dense(number * (int(values.max(initial=0)) + 1) + values)
    return number
