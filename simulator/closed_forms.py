"""Closed forms of what the Rail-only and HPN papers claim: relaying all-to-all traffic, and losing part of a network.

Shares and overheads are fractions of 1. Each function states its model, so that a difference from a published figure
can be traced to it.
"""

from __future__ import annotations

import math

from simulator.errors import SimulationError


def forwarding_overhead(
    rails: int, nic_rate_mbps: float, nvlink_rate_mbps: float, *, overlapped: bool = False
) -> float:
    """Share by which relaying lengthens an all-to-all on rail-only, against a fabric where NICs reach every GPU.

    Of the bytes that leave a domain (K-1)/K change rail, and each of those crosses NVLink once more; with the NIC busy
    for T seconds NVLink is busy for T * (K-1)/K * C_S/C_F. If NVLink waits for the NIC (or the NIC for NVLink) that is
    the overhead; if the two overlap fully the slower one alone counts. NVLink rates are per direction; with the sum of
    both directions in their place the overhead halves. Raises SimulationError for K or a rate of 0.
    """
    _at_least_one("rails", rails)
    for name, rate_mbps in (("nic_rate_mbps", nic_rate_mbps), ("nvlink_rate_mbps", nvlink_rate_mbps)):
        if not math.isfinite(rate_mbps) or rate_mbps <= 0:
            raise SimulationError(f"{name} is {rate_mbps!r}; it must be a number above 0")
    nvlink_time = (rails - 1) / rails * nic_rate_mbps / nvlink_rate_mbps
    return max(0.0, nvlink_time - 1) if overlapped else nvlink_time


def rail_down_factor(rails: int, *, spread: bool) -> float:
    """By what the network time grows when one of K rails is lost and its traffic takes the others.

    Spread evenly over the K-1 others each carries K/(K-1) of what it did: 1/K of the bandwidth is gone. On one other
    rail, that rail carries twice as much and everyone waits for it; so it is too with one flow a ring, which can't be
    split. NVLink is taken to be fast enough for the detour. Raises SimulationError for fewer than two rails.
    """
    _at_least_one("rails", rails)
    if rails < 2:
        raise SimulationError("rails is 1; without another rail there is nowhere for the traffic of a lost one to go")
    return rails / (rails - 1) if spread else 2.0


def slowdown(network_share: float, factor: float) -> float:
    """Share by which an iteration lengthens when the part of it that waits for the network grows by ``factor``.

    ``network_share`` is that part of the healthy iteration, 0 to 1; raises SimulationError outside it.
    """
    if not 0 <= network_share <= 1:
        raise SimulationError(f"network_share is {network_share!r}; it must be a share of the iteration, 0 to 1")
    return network_share * (factor - 1)


def uplink_down_loss(nics: int, uplinks: int) -> float:
    """Share of a host's network bandwidth that is gone with one uplink of one of its NICs.

    All uplinks have the same rate. Raises SimulationError for less than one NIC or uplink.
    """
    _at_least_one("nics", nics)
    _at_least_one("uplinks", uplinks)
    return 1 / (nics * uplinks)


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise SimulationError(f"{name} is {value!r}; it must be a whole number of at least 1")
