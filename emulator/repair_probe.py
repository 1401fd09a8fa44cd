"""How long traffic is interrupted when a link fails: a fast stream of datagrams, and the controller's own timeline."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from emulator.devices import set_link_up
from emulator.errors import EmulatorError
from emulator.probe import StreamProcess

if TYPE_CHECKING:
    from emulator.emulation import Emulation

MAX_RATE_PER_S = 5000
TIMELINE_KEYS = ("detected_s", "computed_s", "repaired_s", "reaction_s", "rules_added")
STEADY_S = 0.3
"""How long the stream runs before the failure, after the repair and after the restore."""


def measure_absence(
    emulation: Emulation, link_id: str, src_id: str, dst_id: str, away_s: float, rate_per_s: int
) -> dict[str, Any]:
    """Kill the controller, fail ``link_id`` while it is away, and start another one ``away_s`` later, under a stream.

    The result has the stream's ``longest_gap_s``, ``sent`` and ``lost``, and ``ready_s``, the seconds that the new
    controller took to have every switch as it should be. JSON-ready.
    """
    link = emulation.links.target(link_id)
    src, dst = emulation.fabric.gpu(src_id), emulation.fabric.gpu(dst_id)
    pause = threading.Event()
    process = StreamProcess(emulation.devices.namespaces, src, dst, rate_per_s)
    pause.wait(STEADY_S)
    emulation.controller.stop()
    pause.wait(away_s / 2)
    set_link_up(emulation.devices, link, up=False)
    pause.wait(away_s / 2)
    began_s = time.monotonic()
    emulation.start_controller_again()
    ready_s = time.monotonic() - began_s
    pause.wait(STEADY_S)
    stream = process.stop()
    gap = stream.longest_gap()
    return {
        "longest_gap_s": gap and gap[0],
        "sent": stream.sent,
        "lost": stream.sent - len(stream.arrivals),
        "ready_s": ready_s,
    }


def measure_repair(emulation: Emulation, link_id: str, src_id: str, dst_id: str, rate_per_s: int) -> dict[str, Any]:
    """Fail ``link_id`` and restore it under ``rate_per_s`` datagrams a second from ``src_id`` to ``dst_id``.

    ``failure`` and ``restore`` of the result each have ``longest_gap_s``, ``sent`` and ``lost``. ``timeline`` has
    seconds since the failure: ``detected_s``, ``repaired_s`` (the last switch has confirmed its rules),
    ``traffic_back_s`` (the longest gap is over), the durations ``computed_s`` and ``reaction_s`` (first port message to
    last confirmation), and how many rules were sent (``rules_added``). JSON-ready. Raises UnknownElementError for
    unknown names, EmulatorError for an impossible rate.
    """
    emulation.links.target(link_id)
    src, dst = emulation.fabric.gpu(src_id), emulation.fabric.gpu(dst_id)
    if src == dst or not 1 <= rate_per_s <= MAX_RATE_PER_S:
        raise EmulatorError(
            f"{rate_per_s} datagrams a second from {src_id} to {dst_id} cannot be sent: name two different GPUs and a "
            f"rate from 1 to {MAX_RATE_PER_S}"
        )
    result: dict[str, Any] = {"link": link_id, "src": src_id, "dst": dst_id}
    pause = threading.Event()
    for up, name in ((False, "failure"), (True, "restore")):
        process = StreamProcess(emulation.devices.namespaces, src, dst, rate_per_s)
        pause.wait(STEADY_S)
        changed_s = time.monotonic()
        done = emulation.links.set_link(link_id, up)
        pause.wait(STEADY_S)
        stream = process.stop()
        gap = stream.longest_gap()
        result[name] = {
            "longest_gap_s": gap and gap[0],
            "sent": stream.sent,
            "lost": stream.sent - len(stream.arrivals),
        }
        if not up:
            result["timeline"] = {
                **{key: done.get(key) for key in TIMELINE_KEYS},
                "traffic_back_s": gap and gap[1] - changed_s,
            }
    return result
