"""Was the machine fast enough? Watches CPU while a run goes on and says what it saw."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

INTERVAL_S = 0.5
BUSY_MACHINE_SHARE = 0.97
BUSY_SAMPLES_SHARE = 0.5
STOLEN_SHARE = 0.10


@dataclass(frozen=True)
class Load:
    """CPU use over a run. ``switch_core_share`` is Open vSwitch's, 1.0 being one core; the others are the machine's."""

    switch_core_share: float
    machine_share: float
    stolen_share: float
    busy_samples_share: float

    @property
    def faithful(self) -> bool:
        """Whether the machine had time to spare: it was not fully busy for half of the run, nor robbed of its time."""
        return self.busy_samples_share < BUSY_SAMPLES_SHARE and self.stolen_share < STOLEN_SHARE

    def notes(self) -> list[str]:
        """Sentences for the result, the load first and then what makes it unfaithful."""
        notes = [
            f"CPU: Open vSwitch {self.switch_core_share:.0%} of one core, machine {self.machine_share:.0%}, "
            f"stolen {self.stolen_share:.0%}"
        ]
        if not self.faithful:
            notes.append(
                f"overloaded: the machine was fully busy in {self.busy_samples_share:.0%} of the samples "
                f"and {self.stolen_share:.0%} of its time was stolen"
            )
        return notes


class LoadWatch:
    """Samples CPU times in a thread until stopped; ``switch_pids`` are the switch daemons'."""

    def __init__(self, switch_pids: Sequence[int]) -> None:
        self._switches = [psutil.Process(pid) for pid in switch_pids]
        self._started_s = time.monotonic()
        self._switch_before_s = self._switch_cpu_s()
        self._before = psutil.cpu_times()
        self._busy: list[bool] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load-watch", daemon=True)
        self._thread.start()

    def stop(self) -> Load:
        """End the watch and sum it up."""
        self._stop.set()
        self._thread.join()
        elapsed_s = max(1e-9, time.monotonic() - self._started_s)
        after = psutil.cpu_times()
        total_s = sum(after) - sum(self._before)
        idle_s = after.idle - self._before.idle + after.iowait - self._before.iowait
        stolen_s = after.steal - self._before.steal
        return Load(
            switch_core_share=(self._switch_cpu_s() - self._switch_before_s) / elapsed_s,
            machine_share=1 - idle_s / total_s if total_s else 0.0,
            stolen_share=stolen_s / total_s if total_s else 0.0,
            busy_samples_share=sum(self._busy) / len(self._busy) if self._busy else 0.0,
        )

    def _run(self) -> None:
        psutil.cpu_percent(None)
        while not self._stop.wait(INTERVAL_S):
            self._busy.append(psutil.cpu_percent(None) >= 100 * BUSY_MACHINE_SHARE)

    def _switch_cpu_s(self) -> float:
        total_s = 0.0
        for process in self._switches:
            times = process.cpu_times()
            total_s += times.user + times.system
        return total_s
