"""What the links' queues did during a run: packets dropped, the longest line, and how full saturated links were."""

from __future__ import annotations

import json
import statistics
import subprocess
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from emulator.shape import Shape

LOOK_S = 0.5
LOOKS = 4
"""Links are judged over so many looks in a row: that a link which is not saturated has packets waiting at two moments
is chance, at five it is not."""

COST = 20
"""A look is taken at most once in so many times what it costs."""

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
    looks: Sequence[Mapping[str, QueueCounters]], elapsed_s: float, shapes: Mapping[str, Shape]
) -> list[float]:
    """Sent rate over nominal rate of every interface that had packets waiting at all looks, ``elapsed_s`` in all.

    Such a link had work all the time, so anything below 1 is time that the machine did not give it.
    """
    return [
        (looks[-1][name].sent_bytes - looks[0][name].sent_bytes) / elapsed_s / shape.rate_bytes_per_s
        for name, shape in shapes.items()
        if all(name in look and look[name].waiting_bytes for look in looks)
    ]


@dataclass(frozen=True)
class QueueReport:
    """What was seen. ``saturated_share`` is the median over all links and moments, None if no link was saturated."""

    dropped_packets: int
    longest_bytes: int
    saturated_share: float | None


class QueueWatch:
    """Reads the queues of ``shapes`` twice a second in a thread, until stopped; one look costs about 10 ms.

    Links in ``impaired`` (by interface) don't count as saturated, for their rate is not their own.
    """

    def __init__(self, shapes: Mapping[str, Shape], impaired: Collection[str] = ()) -> None:
        self._shapes = {name: shape for name, shape in shapes.items() if name not in impaired}
        self._shares: list[float] = []
        self._longest_bytes = 0
        self._over = threading.Event()
        began_s = time.monotonic()
        self._first = _read()
        self._looks = [(time.monotonic(), self._first)]
        self._pause_s = max(LOOK_S, COST * (self._looks[0][0] - began_s))
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
        while not self._over.wait(self._pause_s):
            now = _read()
            self._looks.append((time.monotonic(), now))
            self._longest_bytes = max(self._longest_bytes, *(one.waiting_bytes for one in now.values()), 0)
            if len(self._looks) > LOOKS:
                (first_s, _), (last_s, _) = self._looks[0], self._looks[-1]
                self._shares += saturated_shares([look for _, look in self._looks], last_s - first_s, self._shapes)
                del self._looks[:-1]


def _read() -> dict[str, QueueCounters]:
    done = subprocess.run(["tc", "-s", "-j", "qdisc", "show"], capture_output=True, text=True, check=False)
    return parse_counters(done.stdout) if done.returncode == 0 else {}
