"""A series of unknown length in bounded memory: evenly spaced samples, ever wider apart. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

Sample = TypeVar("Sample")


class Thinned(Generic[Sample]):
    """Keeps at most ``most`` samples and the last one: when full, it lets go of every second one it has or gets."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._every = 1
        self._count = 0
        self._kept: list[Sample] = []
        self._last: list[Sample] = []

    def add(self, sample: Sample) -> None:
        """Take the next sample."""
        self._last = [sample]
        if self._count % self._every == 0:
            self._kept.append(sample)
            self._last = []
            if len(self._kept) > self._most:
                del self._kept[1::2]
                self._every *= 2
        self._count += 1

    def samples(self) -> list[Sample]:
        """What was kept, in order, and the last one in any case."""
        return self._kept + self._last
