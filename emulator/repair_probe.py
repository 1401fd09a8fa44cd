"""How long traffic is interrupted when a link fails: a fast stream of datagrams, and the controller's own timeline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from emulator.devices import set_link_up
from emulator.errors import EmulatorError
from emulator.gap_stream import LINGER_S
from emulator.probe import Stream, StreamProcess, pair_across

if TYPE_CHECKING:
    from emulator.emulation import Emulation

MAX_RATE_PER_S = 5000
TIMELINE_KEYS = ("detected_s", "computed_s", "repaired_s", "reaction_s", "rules_added")
WATCH_RATE_PER_S = 1000
SILENT_S = 0.1
"""A stream that ends with a silence of this length has not come back."""

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
    for up, name in ((False, "failure"), (True, "restore")):
        process = StreamProcess(emulation.devices.namespaces, src, dst, rate_per_s)
        changed_s, done, stream = _under(process, partial(emulation.links.set_link, link_id, up))
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


def change_watched(emulation: Emulation, link_id: str, up: bool) -> dict[str, Any]:
    """Fail a link, or undo all that is wrong with it, under a stream whose healthy path crosses it, if there is one.

    The result is that of :meth:`LinkControl.set_target` or :meth:`LinkControl.restore_target`. With a stream it also
    has ``stream`` (source, destination), ``gap_s``, its longest silence to about a millisecond, and ``traffic_back_s``,
    the end of that silence in seconds since the change. Both are None if the stream did not come back. JSON-ready.
    """
    emulation.links.target(link_id)
    change = emulation.links.restore_target if up else lambda one: emulation.links.set_target(one, up=False)
    down = emulation.links.links_down()
    pair = pair_across(emulation.fabric, link_id, emulation.policy, down)
    if pair is None:
        return change(link_id)
    process = StreamProcess(emulation.devices.namespaces, *pair, WATCH_RATE_PER_S)
    changed_s, done, stream = _under(process, lambda: change(link_id))
    gap_s, back_s = silence(stream, changed_s, time.monotonic())
    return {**done, "stream": [gpu.id for gpu in pair], "gap_s": gap_s, "traffic_back_s": back_s}


def silence(stream: Stream, changed_s: float, over_s: float) -> tuple[float | None, float | None]:
    """(longest silence, its end since the change) of a stream from ``changed_s`` on; None twice if it stayed silent.

    ``over_s`` is when the stream was over.
    """
    received = [received for _, received in stream.arrivals]
    if not received or over_s - max(received) > SILENT_S + LINGER_S:
        return None, None
    gap = Stream(stream.sent, tuple(pair for pair in stream.arrivals if pair[1] >= changed_s - SILENT_S)).longest_gap()
    if gap is None:
        return None, None
    return gap[0], max(0.0, gap[1] - changed_s)


def _under(process: StreamProcess, change: Callable[[], dict[str, Any]]) -> tuple[float, dict[str, Any], Stream]:
    """(monotonic time of a change, its result, what the stream saw) of a change in the middle of a stream."""
    pause = threading.Event()
    pause.wait(STEADY_S)
    changed_s = time.monotonic()
    try:
        done = change()
        pause.wait(STEADY_S)
    finally:
        stream = process.stop()
    return changed_s, done, stream
