"""One look at a live fabric for a page that moves: counters of all links, what is wrong with them, new events."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.names import link_interfaces
from emulator.sampler import COUNTERS, sent_bytes

if TYPE_CHECKING:
    from emulator.emulation import Emulation


def observe(emulation: Emulation, since: int, impairments: bool, counters: Path = COUNTERS) -> dict[str, Any]:
    """Cumulative bytes of all links at ``t_s`` (monotonic), the controller's events and, if asked for, ``impairments``.

    ``a_to_b_bytes`` and ``b_to_a_bytes`` are in the order of the fabric's failure targets. ``events`` are those after
    the first ``since``, of which ``next`` says how many there are now. Impairments are read from
    every queue in the kernel, which costs far more than the rest. JSON-ready.
    """
    pairs = [link_interfaces(link) for link in emulation.fabric.failure_targets()]
    t_s = time.monotonic()
    sent = sent_bytes(counters.read_text())
    events = list(emulation.controller.events[since:])
    return {
        "t_s": t_s,
        "a_to_b_bytes": [sent.get(a, 0) for a, _ in pairs],
        "b_to_a_bytes": [sent.get(b, 0) for _, b in pairs],
        "impairments": emulation.mystery.shown_impairments() if impairments else None,
        "events": events,
        "next": since + len(events),
    }
