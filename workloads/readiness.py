"""What becomes ready when the things that it waits for have ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class _Gate(Generic[T]):
    left: int
    ready_s: float = 0.0
    behind: list[T] = field(default_factory=list)


class Readiness(Generic[T]):
    """Things that each wait for some items, told apart by their ids; equal sets of ids are kept once."""

    def __init__(self, waiting: Iterable[tuple[T, tuple[int, ...]]]) -> None:
        """``waiting`` has each thing with the ids that it waits for."""
        gates: dict[tuple[int, ...], _Gate[T]] = {}
        self._gates_of: dict[int, list[_Gate[T]]] = {}
        for thing, after in waiting:
            if after not in gates:
                gates[after] = _Gate(len(set(after)))
                for item in set(after):
                    self._gates_of.setdefault(item, []).append(gates[after])
            gates[after].behind.append(thing)
        self._at_once = gates.get((), _Gate(0)).behind

    def at_once(self) -> list[T]:
        """What waits for nothing."""
        return self._at_once

    def end(self, item: int, end_s: float) -> list[tuple[T, float]]:
        """An item has ended: what is ready by that, and since when."""
        ready = []
        for gate in self._gates_of.pop(item, ()):
            gate.left -= 1
            gate.ready_s = max(gate.ready_s, end_s)
            if not gate.left:
                ready += [(thing, gate.ready_s) for thing in gate.behind]
        return ready
