"""How long a turn of a switch daemon's loop takes: it answers its control socket once per turn."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

INTERVAL_S = 0.5
GIVE_UP_S = 5.0
_QUESTION = json.dumps({"id": 0, "method": "version", "params": []}).encode()


class LoopProbe:
    """Asks every daemon twice a second, over its control socket, until stopped; costs next to nothing."""

    def __init__(self, sockets: Sequence[Path]) -> None:
        self._sockets = tuple(sockets)
        self._seen_s: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop probe", daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """End the asking; what 95 % of all answers took at most, in seconds (0 if nobody was asked)."""
        self._over.set()
        self._thread.join()
        return percentile(self._seen_s, 0.95)

    def _watch(self) -> None:
        while not self._over.wait(INTERVAL_S):
            self._seen_s += [answer_s(path) for path in self._sockets]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of ``values`` that at least ``share`` of them do not exceed; 0 for none."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else 0.0


def answer_s(path: Path) -> float:
    """Seconds until a daemon answered; GIVE_UP_S for one that did not."""
    began_s = time.monotonic()
    try:
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(GIVE_UP_S)
            asked.connect(str(path))
            asked.sendall(_QUESTION)
            if not asked.recv(4096):
                return GIVE_UP_S
    except OSError:
        return GIVE_UP_S
    return time.monotonic() - began_s
