"""The scale model: how rates, bytes and durations of the real machine become emulated ones and back.

``rate`` divides rates (400 Gbit/s / 20,000 = 20 Mbit/s); ``time`` is emulated seconds per real second. Hence
``emulated_bytes = real_bytes * time / rate``. Ratios between links are kept exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from topologies.errors import ScaleError
from topologies.model import Fabric, Link, LinkKind

NIC_FLOOR_MBPS = ((16, 20.0), (64, 5.0), (256, 1.0))
"""Default emulated NIC rate by the largest number of GPUs it is meant for (see docs/scale.md)."""

SMALLEST_RATE_MBPS = 0.1
LARGEST_RATE_MBPS = 10_000.0

DEFAULT_TIME = 1_000.0


@dataclass(frozen=True)
class Scale:
    """Two factors: ``rate`` (real rate / emulated rate) and ``time`` (emulated seconds per real second)."""

    rate: float
    time: float = DEFAULT_TIME

    def __post_init__(self) -> None:
        for name in ("rate", "time"):
            value = getattr(self, name)
            if not math.isfinite(value) or value <= 0:
                raise ScaleError(f"scale.{name} is {value!r}; it must be a number above 0")

    def emulated_rate_mbps(self, real_rate_mbps: float) -> float:
        """Emulated rate of a link of that real rate."""
        return real_rate_mbps / self.rate

    def emulated_bytes(self, real_bytes: float) -> int:
        """Bytes to send for ``real_bytes`` of the real machine, rounded up to a whole byte."""
        return math.ceil(real_bytes * self.time / self.rate)

    def emulated_s(self, real_s: float) -> float:
        """Emulated duration of a real one."""
        return real_s * self.time

    def real_s(self, emulated_s: float) -> float:
        """Real duration that an emulated one stands for."""
        return emulated_s / self.time

    def real_rate_mbps(self, emulated_rate_mbps: float) -> float:
        """Real rate that an emulated one stands for."""
        return emulated_rate_mbps * self.rate


def default_scale(fabric: Fabric, time: float = DEFAULT_TIME) -> Scale:
    """The default scale for a fabric of this size: the same on every machine and for every workload.

    Raises ScaleError above 256 GPUs, for which no scale was found to hold; the simulator has no such limit.
    """
    gpus = len(fabric.gpus)
    for largest, nic_mbps in NIC_FLOOR_MBPS:
        if gpus <= largest:
            return Scale(rate=fabric.spec.nic_rate_mbps / nic_mbps, time=time)
    raise ScaleError(f"{gpus} GPUs are more than the emulator's 256; use the simulator")


def check_scale(fabric: Fabric, scale: Scale) -> None:
    """Raise ScaleError if a link's emulated rate is outside what the traffic shaper can hold."""
    for link in fabric.links:
        if link.kind is LinkKind.HOST:
            continue
        rate_mbps = scale.emulated_rate_mbps(link.rate_mbps)
        if not SMALLEST_RATE_MBPS <= rate_mbps <= LARGEST_RATE_MBPS:
            raise ScaleError(
                f"link {link.id} would be emulated at {rate_mbps:g} Mbit/s; the shaper holds {SMALLEST_RATE_MBPS:g} to "
                f"{LARGEST_RATE_MBPS:g} Mbit/s: change scale.rate (now {scale.rate:g})"
            )


def link_rate_mbps(link: Link, scale: Scale) -> float:
    """Emulated rate of ``link`` in Mbit/s."""
    return scale.emulated_rate_mbps(link.rate_mbps)
