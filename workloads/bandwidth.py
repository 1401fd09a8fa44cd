"""Algorithm and bus bandwidth, as nccl-tests defines them (its doc/PERFORMANCE.md), with the formula as text.

``algbw = size / time``. ``busbw = algbw * factor``, where the factor makes the number comparable between collectives
and group sizes: on a flat fabric it is the rate that every GPU's link would have to sustain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workloads.errors import CollectiveError

CAVEAT = "busbw re-calibrates algbw for a flat fabric; it is not the measured rate of any link."


@dataclass(frozen=True)
class BusFactor:
    """Factor from algorithm to bus bandwidth for ``n`` ranks, and what "size" means for the collective."""

    factor: Callable[[int], float]
    text: str
    size_meaning: str


_SHARE = "(n-1)/n"

BUS_FACTORS: dict[str, BusFactor] = {
    "all-reduce": BusFactor(lambda n: 2 * (n - 1) / n, "2(n-1)/n", "buffer of each rank"),
    "all-gather": BusFactor(lambda n: (n - 1) / n, _SHARE, "receive buffer of each rank (n parts)"),
    "reduce-scatter": BusFactor(lambda n: (n - 1) / n, _SHARE, "send buffer of each rank (n parts)"),
    "all-to-all": BusFactor(lambda n: (n - 1) / n, _SHARE, "send buffer of each rank (n parts)"),
    "broadcast": BusFactor(lambda n: 1.0, "1", "buffer of the root"),
    "reduce": BusFactor(lambda n: 1.0, "1", "buffer of each rank"),
    "gather": BusFactor(lambda n: (n - 1) / n, _SHARE, "receive buffer of the root (n parts)"),
    "scatter": BusFactor(lambda n: (n - 1) / n, _SHARE, "send buffer of the root (n parts)"),
    "send-recv": BusFactor(lambda n: 1.0, "1", "buffer that is sent"),
}


@dataclass(frozen=True)
class Bandwidth:
    """Algorithm and bus bandwidth in Gbit/s of the real machine, and the formula behind ``busbw_gbps``."""

    algbw_gbps: float
    busbw_gbps: float
    formula: str


def bandwidth(collective: str, group_size: int, size_bytes: float, duration_s: float) -> Bandwidth:
    """Bandwidths of a collective of ``size_bytes`` among ``group_size`` ranks that took ``duration_s`` seconds.

    Size and duration must both be of the real machine, or both be emulated. Raises CollectiveError for an unknown
    collective, fewer than 2 ranks, or a duration of 0.
    """
    if collective not in BUS_FACTORS:
        raise CollectiveError(f"no bandwidth is defined for '{collective}'; known: {', '.join(BUS_FACTORS)}")
    if group_size < 2:
        raise CollectiveError(f"a bandwidth needs at least 2 ranks, not {group_size}")
    if not duration_s > 0:
        raise CollectiveError(f"a bandwidth needs a duration above 0 s, not {duration_s}")
    known = BUS_FACTORS[collective]
    algbw_gbps = size_bytes * 8 / duration_s / 1e9
    formula = f"busbw = size/time * {known.text}, n = {group_size}"
    return Bandwidth(algbw_gbps, algbw_gbps * known.factor(group_size), formula)
