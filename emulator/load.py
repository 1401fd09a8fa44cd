"""Was the machine fast enough? Watches CPU while a run goes on and says what it saw."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

MOST_WAIT_SHARE = 0.60
MOST_STOLEN_SHARE = 0.10


@dataclass(frozen=True)
class Load:
    """CPU use over a run.

    ``switch_cores`` is what the switch daemons used, in cores. They poll as long as there is traffic, so being busy
    is no sign of overload; ``switch_wait_share`` is: of the time in which the worst of them wanted to run, the share
    that it had to wait for a core. ``machine_share`` and ``stolen_share`` are of the whole machine.
    """

    switch_cores: float
    switch_wait_share: float
    machine_share: float
    stolen_share: float

    @property
    def overload(self) -> str:
        """Why the machine was too slow for this run to be believed; empty if it was not."""
        if self.switch_wait_share > MOST_WAIT_SHARE:
            return f"the switches had to wait for a core in {self.switch_wait_share:.0%} of the time they needed one"
        if self.stolen_share > MOST_STOLEN_SHARE:
            return f"{self.stolen_share:.0%} of the machine's time was taken by its host"
        return ""

    def notes(self) -> list[str]:
        """Sentences for the result, the load first and then what makes it unfaithful."""
        notes = [
            f"CPU: switches used {self.switch_cores:.2f} cores and waited {self.switch_wait_share:.0%} of the time "
            f"they needed one, machine {self.machine_share:.0%} busy, {self.stolen_share:.0%} stolen"
        ]
        if self.overload:
            notes.append(f"overloaded: {self.overload}")
        return notes


class LoadWatch:
    """Takes the CPU's counters now and again when stopped; ``switch_pids`` are the switch daemons'."""

    def __init__(self, switch_pids: Sequence[int]) -> None:
        self._pids = tuple(switch_pids)
        self._started_s = time.monotonic()
        self._switches = [_scheduled_s(pid) for pid in self._pids]
        self._machine = psutil.cpu_times()

    def stop(self) -> Load:
        """Sum up what happened since this watch was made."""
        elapsed_s = max(1e-9, time.monotonic() - self._started_s)
        total_ran_s, wait_share = 0.0, 0.0
        for before, pid in zip(self._switches, self._pids, strict=True):
            after = _scheduled_s(pid)
            ran_s, waited_s = after[0] - before[0], after[1] - before[1]
            total_ran_s += ran_s
            if ran_s + waited_s > 0:
                wait_share = max(wait_share, waited_s / (ran_s + waited_s))
        after_machine = psutil.cpu_times()
        total_s = sum(after_machine) - sum(self._machine)
        idle_s = after_machine.idle - self._machine.idle + after_machine.iowait - self._machine.iowait
        stolen_s = after_machine.steal - self._machine.steal
        return Load(
            switch_cores=total_ran_s / elapsed_s,
            switch_wait_share=wait_share,
            machine_share=1 - idle_s / total_s if total_s else 0.0,
            stolen_share=stolen_s / total_s if total_s else 0.0,
        )


def _scheduled_s(pid: int) -> tuple[float, float]:
    """(seconds on a core, seconds waiting for one) of a process's main thread so far; zeros once it is gone."""
    try:
        ran_ns, waited_ns, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(ran_ns) / 1e9, int(waited_ns) / 1e9
