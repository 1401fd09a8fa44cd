"""From link counters to the load that is shown. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


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


def loads(before: Counters, after: Counters) -> dict[str, Any]:
    """The message about the load of all links: rates of each direction, and what each has carried so far.

    ``carried_mb`` is whole frames of both directions, in MB (10^6 bytes) to 0.01.
    """
    out, back = rates_mbps(before, after)
    pairs = zip(after.a_to_b_bytes, after.b_to_a_bytes, strict=True)
    carried_mb = [round((a_to_b + b_to_a) / 1e6, 2) for a_to_b, b_to_a in pairs]
    return {"event": "loads", "t_s": round(after.t_s, 3), "a_to_b_mbps": out, "b_to_a_mbps": back,
            "carried_mb": carried_mb}  # fmt: skip
