"""Was the machine fast enough? Watches CPU while a run goes on and says what it saw."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from emulator.loop_probe import LoopProbe
from emulator.queue_watch import QueueReport, QueueWatch
from emulator.shape import WINDOW_S, Shape

NO_QUEUES = QueueReport(0, 0, None)

MOST_WAIT_SHARE = 0.60
MOST_STOLEN_SHARE = 0.10
MOST_LOOP_S = WINDOW_S
"""Above, a packet waits longer for the switches than TCP's windows bridge, and flows get less than their share."""

LEAST_SATURATED_SHARE = 0.90


@dataclass(frozen=True)
class Load:
    """CPU use over a run.

    ``switch_cores`` is what the switch daemons used, in cores. They poll as long as there is traffic, so being busy
    is no sign of overload; ``switch_wait_share`` is: of the time in which the worst of them wanted to run, the share
    that it had to wait for a core. ``machine_share`` and ``stolen_share`` are of the whole machine. ``loop_s`` is what
    95 % of the turns of the switches' loops took at most. ``queues`` is what the links' queues did.
    """

    switch_cores: float
    switch_wait_share: float
    machine_share: float
    stolen_share: float
    loop_s: float = 0.0
    queues: QueueReport = NO_QUEUES

    @property
    def overload(self) -> str:
        """Why the machine was too slow for this run to be believed; empty if it was not."""
        if self.switch_wait_share > MOST_WAIT_SHARE:
            return f"the switches had to wait for a core in {self.switch_wait_share:.0%} of the time they needed one"
        if self.stolen_share > MOST_STOLEN_SHARE:
            return f"{self.stolen_share:.0%} of the machine's time was taken by its host"
        if self.loop_s > MOST_LOOP_S:
            return f"a turn of the switches took up to {self.loop_s * 1000:.0f} ms"
        saturated = self.queues.saturated_share
        if saturated is not None and saturated < LEAST_SATURATED_SHARE:
            return f"links that had work all the time carried {saturated:.0%} of their rate"
        return ""

    def notes(self) -> list[str]:
        """Sentences for the result, the load first and then what makes it unfaithful."""
        notes = [
            f"CPU: switches used {self.switch_cores:.2f} cores and waited {self.switch_wait_share:.0%} of the time "
            f"they needed one, machine {self.machine_share:.0%} busy, {self.stolen_share:.0%} stolen; a turn of the "
            f"switches took up to {self.loop_s * 1000:.0f} ms",
            f"queues: {self.queues.dropped_packets} packets dropped, at most {self.queues.longest_bytes} bytes waiting"
            + (
                ", no link saturated"
                if self.queues.saturated_share is None
                else f", saturated links carried {self.queues.saturated_share:.0%} of their rate (median)"
            ),
        ]
        if self.overload:
            notes.append(f"overloaded: {self.overload}")
        return notes


class LoadWatch:
    """Takes the CPU's counters now and again when stopped, and watches loops and queues meanwhile.

    ``switches`` maps the switch daemons' process ids to their control sockets; ``shapes`` and ``impaired`` are those of
    :class:`emulator.queue_watch.QueueWatch`.
    """

    def __init__(
        self, switches: Mapping[int, Path], shapes: Mapping[str, Shape], impaired: Collection[str] = ()
    ) -> None:
        self._pids = tuple(switches)
        self._queues = QueueWatch(shapes, impaired)
        self._loops = LoopProbe(list(switches.values()))
        self._started_s = time.monotonic()
        self._switches = [_scheduled_s(pid) for pid in self._pids]
        self._machine = psutil.cpu_times()

    def stop(self) -> Load:
        """Sum up what happened since this watch was made."""
        loop_s, queues = self._loops.stop(), self._queues.stop()
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
            loop_s=loop_s,
            queues=queues,
        )


def _scheduled_s(pid: int) -> tuple[float, float]:
    """(seconds on a core, seconds waiting for one) of a process's main thread so far; zeros once it is gone."""
    try:
        ran_ns, waited_ns, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(ran_ns) / 1e9, int(waited_ns) / 1e9
