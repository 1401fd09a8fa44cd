"""What the links' queues did during a run: packets dropped, the longest line, and how full saturated links were."""

from __future__ import annotations

import json
import statistics
import subprocess
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from emulator.shape import Shape

INTERVAL_S = 2.0
_DATA, _SMALL = "2:", "3:"


@dataclass(frozen=True)
class QueueCounters:
    """Counters of one end of a link at one moment: bytes sent so far, packets dropped so far, bytes waiting now."""

    sent_bytes: int
    dropped_packets: int
    waiting_bytes: int


def parse_counters(text: str) -> dict[str, QueueCounters]:
    """Counters by interface from the JSON that ``tc -s -j qdisc show`` prints: both queues below each shaper."""
    found: dict[str, QueueCounters] = {}
    for one in json.loads(text):
        if one.get("kind") == "bfifo" and one.get("handle") in (_DATA, _SMALL):
            before = found.get(one["dev"], QueueCounters(0, 0, 0))
            waiting = one["backlog"] if one["handle"] == _DATA else 0
            found[one["dev"]] = QueueCounters(
                before.sent_bytes + one["bytes"],
                before.dropped_packets + one["drops"],
                before.waiting_bytes + waiting,
            )
    return found


def saturated_shares(
    before: Mapping[str, QueueCounters],
    after: Mapping[str, QueueCounters],
    elapsed_s: float,
    shapes: Mapping[str, Shape],
) -> list[float]:
    """Sent rate over nominal rate of every interface that had packets waiting at both moments, ``elapsed_s`` apart.

    Such a link had work all the time, so anything below 1 is time that the machine did not give it.
    """
    return [
        (after[name].sent_bytes - before[name].sent_bytes) / elapsed_s / shape.rate_bytes_per_s
        for name, shape in shapes.items()
        if name in before and name in after and before[name].waiting_bytes and after[name].waiting_bytes
    ]


@dataclass(frozen=True)
class QueueReport:
    """What was seen. ``saturated_share`` is the median over all links and moments, None if no link was saturated."""

    dropped_packets: int
    longest_bytes: int
    saturated_share: float | None


class QueueWatch:
    """Reads the queues of ``shapes`` every few seconds in a thread, until stopped; one list costs about 10 ms.

    Links in ``impaired`` (by interface) don't count as saturated, for their rate is not their own.
    """

    def __init__(self, shapes: Mapping[str, Shape], impaired: Collection[str] = ()) -> None:
        self._shapes = {name: shape for name, shape in shapes.items() if name not in impaired}
        self._shares: list[float] = []
        self._longest_bytes = 0
        self._over = threading.Event()
        self._first = self._last = _read()
        self._last_s = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="queue watch", daemon=True)
        self._thread.start()

    def stop(self) -> QueueReport:
        """End the watching; what was seen."""
        self._over.set()
        self._thread.join()
        last = _read()
        dropped = sum(
            last[name].dropped_packets - before.dropped_packets for name, before in self._first.items() if name in last
        )
        return QueueReport(
            dropped_packets=max(0, dropped),
            longest_bytes=self._longest_bytes,
            saturated_share=statistics.median(self._shares) if self._shares else None,
        )

    def _watch(self) -> None:
        while not self._over.wait(INTERVAL_S):
            now, now_s = _read(), time.monotonic()
            self._shares += saturated_shares(self._last, now, now_s - self._last_s, self._shapes)
            self._longest_bytes = max(self._longest_bytes, *(one.waiting_bytes for one in now.values()), 0)
            self._last, self._last_s = now, now_s


def _read() -> dict[str, QueueCounters]:
    done = subprocess.run(["tc", "-s", "-j", "qdisc", "show"], capture_output=True, text=True, check=False)
    return parse_counters(done.stdout) if done.returncode == 0 else {}
