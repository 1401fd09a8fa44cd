"""Delay and loss of a link: where the kernel's netem is placed, what tc is told, and what its answer means. Pure.

netem is the root of an interface, and the whole shaper (HTB with its bounded queues) is its only child. So a packet is
lost or waits out its delay first and then stands in the link's own queue, which has the rate, burst and bound that it
has without delay; delay and queueing add up, as they do on a long cable. The other way round, netem as the queue below
the shaper, time spent in the queue counts as delay, and the queue has no bound in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emulator.errors import ImpairmentError
from emulator.shape import Shape, shaper

LARGEST_DELAY_MS = 10_000.0
HANDLE = 0x00090000
MOST_PACKETS = 100_000
"""netem's own bound. TCP's windows keep far fewer packets on a link; it must never be what loses one."""

TICK_S = 64e-9
"""Unit of times in the packet scheduler's messages, since Linux 2.6.30."""

_WHOLE = 0xFFFFFFFF
"""What a probability of 1 is in netem's messages."""


@dataclass(frozen=True)
class Netem:
    """What a link does to packets in each direction: delay and its variation (+/-) in ms, share that it loses."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss_share: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.delay_ms or self.jitter_ms or self.loss_share)

    def check(self, link_id: str) -> None:
        """Raise ImpairmentError unless the delay is 0 to 10,000 ms, the jitter at most the delay, the loss 0 to 1."""
        if not (math.isfinite(self.delay_ms) and 0 <= self.delay_ms <= LARGEST_DELAY_MS):
            raise ImpairmentError(
                f"link {link_id} cannot have a delay of {self.delay_ms:g} ms: use 0 to {LARGEST_DELAY_MS:g} ms"
            )
        if not 0 <= self.jitter_ms <= self.delay_ms:
            raise ImpairmentError(
                f"link {link_id} cannot have a jitter of {self.jitter_ms:g} ms: use 0 to its delay of "
                f"{self.delay_ms:g} ms"
            )
        if not 0 <= self.loss_share <= 1:
            raise ImpairmentError(
                f"link {link_id} cannot lose a share of {self.loss_share:g} of its packets: use 0 to 1"
            )

    @property
    def words(self) -> str:
        """netem's arguments for tc."""
        jitter = f" {self.jitter_ms:g}ms" if self.jitter_ms else ""
        return f"netem limit {MOST_PACKETS} delay {self.delay_ms:g}ms{jitter} loss {self.loss_share * 100:.9g}%"


def netem_batch(name: str, wanted: Netem, present: Netem, shape: Shape) -> list[str]:
    """Lines for ``tc -batch`` that bring one interface from ``present`` to ``wanted``.

    ``shape`` is the one that the interface has now: where netem comes or goes, the shaper is made anew below or without
    it, and what stands in its queue at that moment is lost. Where netem stays, only its values change.
    """
    if wanted == present:
        return []
    if wanted and present:
        return [f"qdisc change dev {name} root handle {HANDLE >> 16:x}: {wanted.words}"]
    lines = [f"qdisc del dev {name} root"]
    if not wanted:
        return lines + shaper(name, shape)
    lines.append(f"qdisc add dev {name} root handle {HANDLE >> 16:x}: {wanted.words}")
    return lines + shaper(name, shape, parent=f"parent {HANDLE >> 16:x}:1")


def netem_of(options: Mapping[str, Any]) -> Netem:
    """What the options of a netem message of the kernel say."""
    return Netem(
        delay_ms=options["delay"] * TICK_S * 1e3,
        jitter_ms=options["jitter"] * TICK_S * 1e3,
        loss_share=options["loss"] / _WHOLE,
    )
