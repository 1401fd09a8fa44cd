"""What waits for what while a schedule runs: the gates of its items, or of their classes, and which may open."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import compiled
from simulator.folding import Partition, distinct
from simulator.work import Work

Ints = NDArray[np.int64]


class Gates:
    """Gates of classes of items. ``items`` has the classes behind every gate, ``opening`` the gates to be opened."""

    def __init__(self, part: Partition, work: Work, member: Ints) -> None:
        """``member`` is an item of every class; gates that wait for nothing are ready to be opened."""
        items, gates = len(member), int(part.gates.max(initial=-1)) + 1
        waits = distinct(part.items[work.waits.item] * gates + part.gates[work.waits.gate])[0]
        item, self._behind = np.divmod(waits, max(1, gates))
        self._first = np.zeros(items + 1, dtype=np.int64)
        np.cumsum(np.bincount(item, minlength=items), out=self._first[1:])
        self._left = np.bincount(self._behind, minlength=gates)
        self.items = _members_by(part.gates[work.gate_of[member]], gates)
        self.is_waited_for: NDArray[np.bool_] = np.diff(self._first) > 0
        self.opening = deque(np.flatnonzero(self._left == 0).tolist())

    def passed(self, items: Ints) -> None:
        """Items have ended, well or not: less to wait for."""
        self.opening.extend(np.sort(_pass(self._first, self._behind, self._left, items)).tolist())


def _members_by(groups: Ints, size: int) -> list[Ints]:
    """The members of every group, in order."""
    order = np.argsort(groups, kind="stable")
    return np.split(order, np.cumsum(np.bincount(groups, minlength=size))[:-1]) if size else []


@compiled
def _pass(first: Ints, behind: Ints, left: Ints, items: Ints) -> Ints:
    """Take ``items`` off what their gates wait for; returns the gates that have nothing left."""
    ready = np.empty(len(left), dtype=np.int64)
    count = 0
    for item in items:
        for at in range(first[item], first[item + 1]):
            gate = behind[at]
            left[gate] -= 1
            if left[gate] == 0:
                ready[count] = gate
                count += 1
    return ready[:count]
