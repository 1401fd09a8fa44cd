"""From link counters to the load that is shown. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Counters:
    """Cumulative bytes of all links, in each direction, at the monotonic time ``t_s``."""

    t_s: float
    a_to_b_bytes: Sequence[float]
    b_to_a_bytes: Sequence[float]


def rates_mbps(before: Counters, after: Counters) -> tuple[list[float], list[float]]:
    """(a to b, b to a) rates of all links between two readings, in Mbit/s, rounded to 0.001.

    All are 0 when no time has passed; a counter that went back (its interface was made anew) counts as 0.
    """
    passed_s = after.t_s - before.t_s
    if passed_s <= 0:
        return [0.0] * len(after.a_to_b_bytes), [0.0] * len(after.b_to_a_bytes)

    def rates(old: Sequence[float], new: Sequence[float]) -> list[float]:
        return [round(max(0.0, now - then) * 8 / passed_s / 1e6, 3) for then, now in zip(old, new, strict=True)]

    return rates(before.a_to_b_bytes, after.a_to_b_bytes), rates(before.b_to_a_bytes, after.b_to_a_bytes)
