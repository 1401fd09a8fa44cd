"""How far a run is, in the field's own measures: calls that ended, bytes, bus bandwidth so far and just now. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from topologies.scale import Scale
from workloads.bandwidth import BUS_FACTORS, bandwidth
from workloads.schedule import Schedule
from workloads.telemetry import calls

NOW_S = 1.0
"""What "just now" means: over so many emulated seconds, or since the start of a younger run."""

MOST_LAST = 6
"""Calls that ended last, which are told one by one."""


@dataclass(frozen=True)
class Meaning:
    """What the bytes of a schedule mean: sizes are of the real machine but ``total_bytes``, the emulated sum of all."""

    collective: str
    group_size: int
    size_bytes: int
    total_bytes: int
    scale: Scale

    @classmethod
    def of(cls, schedule: Schedule, scale: Scale) -> Meaning:
        """The meaning of a schedule at a scale."""
        total_bytes = sum(scale.emulated_bytes(transfer.size_bytes) for transfer in schedule.transfers)
        return cls(schedule.collective, schedule.group_size, schedule.size_bytes, total_bytes, scale)

    def busbw_gbps(self, share: float, duration_s: float) -> float | None:
        """Bus bandwidth of ``share`` of the collective in ``duration_s`` emulated seconds; None where none is defined.

        As nccl-tests defines it for the whole (:mod:`workloads.bandwidth`), in Gbit/s of the real machine.
        """
        if self.collective not in BUS_FACTORS or duration_s <= 0:
            return None
        real_s = self.scale.real_s(duration_s)
        return round(bandwidth(self.collective, self.group_size, self.size_bytes * share, real_s).busbw_gbps, 2)


@dataclass(frozen=True)
class CallTime:
    """One collective call that has ended; times in emulated seconds since the start of the run."""

    collective: str
    group: str
    sequence: int
    start_s: float
    end_s: float


class Calls:
    """The collective calls of a run: how many there are to be of each collective, and those that have ended."""

    def __init__(self, total: Mapping[str, int], meaning: Meaning) -> None:
        self._total = total
        self._meaning = meaning
        self._ended: dict[str, list[float]] = {}
        self._last: deque[CallTime] = deque(maxlen=MOST_LAST)

    def end(self, call: CallTime) -> None:
        """Count a call that has ended."""
        self._ended.setdefault(call.collective, []).append(call.end_s - call.start_s)
        self._last.append(call)

    def shown(self) -> dict[str, Any]:
        """``calls``: by collective how many and how long (emulated and real seconds); ``last``: those of the end."""
        rows = []
        for collective, count in self._total.items():
            took_s = self._ended.get(collective, [])
            mean_s = sum(took_s) / len(took_s) if took_s else None
            rows.append({"collective": collective, "calls": count, "ended": len(took_s), "mean_s": _rounded(mean_s)})
        return {"calls": rows, "last": [self._row(call) for call in self._last]}

    def _row(self, call: CallTime) -> dict[str, Any]:
        duration_s = call.end_s - call.start_s
        whole = call.collective == self._meaning.collective
        return {
            "name": f"{call.collective}, {call.group}" + (f", call {call.sequence + 1}" if call.sequence else ""),
            "end_s": _rounded(call.end_s),
            "duration_s": _rounded(duration_s),
            "real_s": self._meaning.scale.real_s(duration_s),
            "busbw_gbps": self._meaning.busbw_gbps(1.0, duration_s) if whole else None,
        }


class RunProgress:
    """One run as its reports come in; ``meaning`` and ``calls`` are missing for a run that was started elsewhere."""

    def __init__(
        self,
        name: str,
        engine: str,
        transfers: int,
        meaning: Meaning | None = None,
        calls: Calls | None = None,
        fine: bool = True,
    ) -> None:
        """``fine`` says whether the bytes of transfers on their way are known: without, there are no bandwidths yet."""
        self._name, self._engine, self._transfers = name, engine, transfers
        self._meaning, self.calls, self._fine = meaning, calls, fine
        self._t_s = 0.0
        self._ended = self._failed = self._active = 0
        self._ended_bytes = self._active_bytes = 0.0
        self._shares: deque[tuple[float, float]] = deque([(0.0, 0.0)])
        self._now_gbps: float | None = None
        self.running = True

    def at(self, t_s: float) -> None:
        """It is ``t_s`` emulated seconds after the start."""
        self._t_s = max(self._t_s, t_s)

    def end(self, complete: bool, received_bytes: float) -> None:
        """One more transfer has ended, in full or not."""
        self._ended += 1
        self._failed += not complete
        self._ended_bytes += received_bytes

    def under_way(self, received_bytes: Iterable[float]) -> None:
        """The transfers on their way now, with what each receiver has so far; told after :meth:`at`."""
        received = list(received_bytes)
        self._active, self._active_bytes = len(received), sum(received)
        share = self._share()
        if self._meaning is None or share is None or not self._fine or self._t_s <= self._shares[-1][0]:
            return
        while len(self._shares) > 1 and self._shares[1][0] <= self._t_s - NOW_S:
            self._shares.popleft()
        before_s, before = self._shares[0]
        self._now_gbps = self._meaning.busbw_gbps(max(0.0, share - before), self._t_s - before_s)
        self._shares.append((self._t_s, share))

    def over(self) -> None:
        """The run is over."""
        self.running, self._active, self._now_gbps = False, 0, None

    def _share(self) -> float | None:
        if self._meaning is None or not self._meaning.total_bytes:
            return None
        return min(1.0, (self._ended_bytes + self._active_bytes) / self._meaning.total_bytes)

    def shown(self) -> dict[str, Any]:
        """The message for viewers.

        ``share`` is of the bytes; ``busbw_gbps`` is that so far, ``now_gbps`` that of the last :data:`NOW_S`.
        """
        share = self._share()
        busbw_gbps = None
        if self._meaning is not None and share is not None and self._fine:
            busbw_gbps = self._meaning.busbw_gbps(share, self._t_s)
        return {
            "event": "run", "running": self.running, "name": self._name, "engine": self._engine,
            "t_s": round(self._t_s, 2), "transfers": self._transfers, "ended": self._ended, "failed": self._failed,
            "active": self._active, "share": share if share is None else round(share, 4),
            "busbw_gbps": busbw_gbps, "now_gbps": self._now_gbps,
            **(self.calls.shown() if self.calls is not None else {"calls": [], "last": []}),
        }  # fmt: skip


class ReportedRun:
    """Feeds a :class:`RunProgress` from what a fabric tells of a run (:meth:`RunningFabric.follow`)."""

    def __init__(self, start: Mapping[str, Any], schedule: Schedule | None, scale: Scale) -> None:
        """``start`` is the ``run-start``; ``schedule`` is None for a run that was started elsewhere."""
        self._open: dict[int, _OpenCall] = {}
        meaning = found = None
        if schedule is not None:
            meaning = Meaning.of(schedule, scale)
            total: dict[str, int] = {}
            for call in calls(schedule):
                total[call.collective] = total.get(call.collective, 0) + 1
                open_call = _OpenCall(call.collective, call.group, call.sequence, len(call.transfers))
                self._open.update((transfer.id, open_call) for transfer in call.transfers)
            found = Calls(total, meaning)
        self.progress = RunProgress(start["name"], start["engine"], start["transfers"], meaning, found)

    def take(self, message: Mapping[str, Any]) -> None:
        """One more message of the run."""
        self.progress.at(message.get("t_s", 0.0))
        if message["event"] == "run-end":
            self.progress.over()
        elif message["event"] == "transfers":
            for transfer_id, status, start_s, end_s, received, _reason in message["ended"]:
                complete = status == "complete"
                self.progress.end(complete, received)
                if complete and transfer_id in self._open:
                    self._end(self._open[transfer_id], start_s, end_s)
            self.progress.under_way(received for _, received in message["active"])

    def _end(self, call: _OpenCall, start_s: float, end_s: float) -> None:
        if call.end(start_s, end_s) and self.progress.calls is not None:
            self.progress.calls.end(CallTime(call.collective, call.group, call.sequence, call.start_s, call.end_s))


@dataclass
class _OpenCall:
    """A call of which ``left`` transfers have not ended."""

    collective: str
    group: str
    sequence: int
    left: int
    start_s: float = float("inf")
    end_s: float = 0.0

    def end(self, start_s: float, end_s: float) -> bool:
        """One of its transfers has ended; whether it was the last."""
        self.left -= 1
        self.start_s, self.end_s = min(self.start_s, start_s), max(self.end_s, end_s)
        return self.left == 0


def _rounded(value_s: float | None) -> float | None:
    return None if value_s is None else round(value_s, 4)
