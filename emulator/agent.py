"""The resident agent: sends and receives for all GPUs of a fabric from one process, with one clock.

Started by :mod:`emulator.agent_replay` as ``python -m emulator.agent`` with the order as one line of JSON on standard
input, and the schedule behind it as pickled batches of steps (pickle keeps shared tuples shared). It says
``{"ready": true}``, starts when told so through the control socket, and then reports about five times a second:
``{"t_s", "ended", "active", "channels", "computed_s"}``, and last ``{"over": {...}}``. Meanwhile it may be told other
shares. Its end comes with that of its parent.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import pickle
import queue
import resource
import select
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

from controller.planning.traffic import divided
from emulator.agent_steps import Step
from emulator.channels import Channels, Host, Sending
from emulator.kernel import Timer, peak_memory_mb, raise_open_files_limit
from emulator.replay import NOT_STARTED, not_started
from workloads.frontier import Frontier, OnFailure
from workloads.records import TransferStatus

PRIORITY = -15
LOOKAHEAD = 50_000
"""Steps that are known at a time; the rest of the schedule waits in its maker's hands."""

BATCHES_AHEAD = 4
CHECK_S = 0.25
OPEN_WAVE, OPEN_WAVE_S = 256, 0.5
"""Connections that are opened at a time before the run, and how long they may take."""

SPARE_FILES = 256
MOST_ACTIVE = 512
"""Transfers on their way that a report lists, the longest running first."""


NEVER_COMPUTED = f"{NOT_STARTED}: it waits for a rank that never ends its computing"


class _Feed:
    """Batches of steps, read by a thread so that a slow maker never holds up what is on the wire."""

    def __init__(self, stream: BinaryIO, wake_fd: int) -> None:
        self._stream = stream
        self._wake_fd = wake_fd
        self._batches: queue.Queue[list[Step] | None] = queue.Queue(BATCHES_AHEAD)
        self.over = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            batch = pickle.load(self._stream)
            self._batches.put(batch)
            os.eventfd_write(self._wake_fd, 1)
            if batch is None:
                return

    def take(self, block: bool = False) -> list[Step]:
        """The next batch, empty if there is none yet or none any more."""
        if self.over:
            return []
        try:
            batch = self._batches.get(block)
        except queue.Empty:
            return []
        self.over = batch is None
        return batch or []


@dataclass(slots=True)
class _Divided:
    """A transfer whose bytes are divided among the channels of its pair; ``received_bytes`` of the parts that ended."""

    parts: int
    start_s: float | None = None
    end_s: float = 0.0
    received_bytes: int = 0
    reason: str = ""


class Agent:
    """One replay by the resident agent. ``order`` is what :mod:`emulator.agent_replay` writes."""

    def __init__(self, order: dict[str, Any], steps: BinaryIO, reports: BinaryIO) -> None:
        hosts = [Host(**host) for host in order["hosts"]]
        most_connections = (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES) // 2
        self._channels = Channels(
            hosts, order["nic_buffer_bytes"], order["nvlink_buffer_bytes"], most_connections, order["give_up_s"],
            self._ended, self._failed,
        )  # fmt: skip
        self._frontier: Frontier[Step] = Frontier(OnFailure(order["on_failure"]))
        self._spare_s, self._slowest_bytes_per_s = order["spare_s"], order["slowest_bytes_per_s"]
        self._report_s, self._give_up_s = order["report_s"], order["give_up_s"]
        self._never: set[int] = set()
        self._pairs = [(src, dst) for src, dst in order["pairs"]]
        self._shares: dict[tuple[int, int], list[float]] = {}
        self._take_shares(order["shares"])
        self._divided: dict[int, _Divided] = {}
        self._measured: list[tuple[int, int, int, int, float]] = []
        self._heard = b""
        self._control = socket.socket(fileno=order["control_fd"])
        self._reports = reports
        self._timer = Timer()
        self._timers: list[tuple[float, int, Step]] = []
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._feed = _Feed(steps, self._wake_fd)
        self._start_s = 0.0
        self._finished: list[tuple[Any, ...]] = []
        self._computed_s: float | None = None

    def run(self) -> None:
        """Open the connections, wait for the word to start, replay everything, report."""
        self._channels.watch(self._wake_fd, select.EPOLLIN, lambda _events: self._woken())
        self._channels.watch(self._timer.fd, select.EPOLLIN, lambda _events: self._rang())
        self._open_ahead()
        while not self._feed.over and len(self._frontier) < LOOKAHEAD:
            self._add(self._feed.take(block=True), 0.0)
        self._tell({"ready": True})
        while not self._start_s:
            if not self._hear():
                return
        self._channels.watch(self._control.fileno(), select.EPOLLIN, lambda _events: self._heard_more())
        self._replay()

    def _heard_more(self) -> None:
        if not self._hear():
            sys.exit(0)

    def _hear(self) -> bool:
        """Take in what the other side says: when to start, or other shares; False when it has gone."""
        data = self._control.recv(1 << 16)
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self._start_s = message.get("start_s", self._start_s)
            self._take_shares(message.get("shares", ()))
        return bool(data)

    def _take_shares(self, told: Iterable[tuple[int, int, list[float]]]) -> None:
        self._shares.update({(src, dst): shares for src, dst, shares in told})

    def _open_ahead(self) -> None:
        """Open a connection for every pair that talks, some at a time; what does not open soon is not waited for."""
        wanted = [(*pair, number) for pair in self._pairs for number in range(len(self._shares.get(pair, "1")))]
        for first in range(0, len(wanted), OPEN_WAVE):
            for src, dst, number in wanted[first : first + OPEN_WAVE]:
                self._channels.open_ahead(src, dst, number)
            wave_over_s = time.monotonic() + OPEN_WAVE_S
            while self._channels.opening and time.monotonic() < wave_over_s:
                for _ in self._channels.poll(CHECK_S):
                    pass

    def _replay(self) -> None:
        cpu_from_s = time.process_time()
        self._start_ready()
        report_s = check_s = time.monotonic()
        while len(self._frontier) or not self._feed.over:
            self._timer.set(self._timers[0][0] if self._timers else None)
            for _ in self._channels.poll(min(CHECK_S, max(0.0, report_s - time.monotonic()))):
                self._start_ready()
            now_s = time.monotonic()
            if now_s >= check_s:
                check_s = now_s + CHECK_S
                self._channels.give_up_late()
                self._start_ready()
            if now_s >= report_s:
                report_s = now_s + self._report_s
                self._report()
        self._report()
        cpu_s = time.process_time() - cpu_from_s
        used = [{name: getattr(use, name) for name in use.__dataclass_fields__} for use in self._channels.used()]
        self._tell({"over": {"connections": used, "cpu_s": cpu_s, "peak_mb": peak_memory_mb()}})

    def _woken(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)

    def _rang(self) -> None:
        self._timer.rang()

    def _add(self, batch: list[Step], now_s: float) -> None:
        for step in batch:
            self._frontier.add(step, now_s)

    def _start_ready(self) -> None:
        """Start all that may start by now, and take in more of the schedule where there is room."""
        moved = True
        while moved:
            moved = False
            now_s = time.monotonic()
            while self._timers and self._timers[0][0] <= now_s:
                due_s, _, step = heapq.heappop(self._timers)
                if not self._frontier.skip_if_stopped(step, now_s):
                    self._due(step, due_s)
                moved = True
            for ready in self._frontier.take_ready():
                due_s = max(ready.since_s, self._start_s) + ready.item.wait_s
                if due_s == math.inf:
                    # Nothing that waits for it can start; it is given up like a transfer that does not move.
                    due_s = now_s + self._give_up_s
                    self._never.add(ready.item.id)
                if due_s <= now_s:
                    self._due(ready.item, due_s)
                else:
                    heapq.heappush(self._timers, (due_s, ready.item.id, ready.item))
                moved = True
            for skipped in self._frontier.take_skipped():
                if skipped.item.size_bytes:
                    is_computing = skipped.failed_id in self._never
                    reason = NEVER_COMPUTED if is_computing else not_started(skipped.failed_id)
                    self._finish(skipped.item.id, TransferStatus.FAILED, None, None, 0, reason)
            if len(self._frontier) < LOOKAHEAD and (batch := self._feed.take()):
                self._add(batch, now_s)
                moved = True

    def _due(self, step: Step, due_s: float) -> None:
        if step.id in self._never:
            self._frontier.fail(step.id, due_s)
            return
        if not step.size_bytes:
            self._computed_s = max(due_s, self._computed_s or 0.0)
            self._frontier.end(step.id, due_s)
            return
        allowed_s = self._spare_s + step.size_bytes / self._slowest_bytes_per_s
        shares = self._shares.get((step.src, step.dst))
        if shares is None:
            self._channels.send(Sending(step.id, step.src, step.dst, step.size_bytes, allowed_s))
            return
        parts = [(number, part) for number, part in enumerate(divided(step.size_bytes, shares)) if part]
        self._divided[step.id] = _Divided(len(parts))
        for number, part in parts:
            self._channels.send(Sending(step.id, step.src, step.dst, part, allowed_s, number))

    def _ended(self, sending: Sending) -> None:
        assert sending.end_s is not None
        if sending.channel is not None:
            assert sending.start_s is not None
            duration_s = sending.end_s - sending.start_s
            self._measured.append((sending.src, sending.dst, sending.channel, sending.size_bytes, duration_s))
            self._end_part(sending, "")
            return
        self._frontier.end(sending.id, sending.end_s)
        self._finish(sending.id, TransferStatus.COMPLETE, sending.start_s, sending.end_s, sending.received_bytes, "")

    def _end_part(self, sending: Sending, reason: str) -> None:
        """A part has ended, badly where there is a reason; the transfer has when its last part has."""
        whole = self._divided[sending.id]
        whole.parts -= 1
        whole.received_bytes += sending.received_bytes
        starts = [each for each in (whole.start_s, sending.start_s) if each is not None]
        whole.start_s = min(starts, default=None)
        whole.end_s = max(whole.end_s, sending.end_s or time.monotonic())
        whole.reason = whole.reason or (reason and f"channel {sending.channel}: {reason}")
        if whole.parts:
            return
        del self._divided[sending.id]
        received = whole.received_bytes
        if not whole.reason:
            self._frontier.end(sending.id, whole.end_s)
            self._finish(sending.id, TransferStatus.COMPLETE, whole.start_s, whole.end_s, received, "")
            return
        self._frontier.fail(sending.id, whole.end_s)
        status = TransferStatus.INCOMPLETE if received else TransferStatus.FAILED
        self._finish(sending.id, status, whole.start_s, None, received, whole.reason)

    def _failed(self, sending: Sending, reason: str) -> None:
        if sending.channel is not None:
            self._end_part(sending, reason)
            return
        self._frontier.fail(sending.id, time.monotonic())
        status = TransferStatus.INCOMPLETE if sending.received_bytes else TransferStatus.FAILED
        if sending.received_bytes:
            reason += f" ({sending.received_bytes:,} of {sending.size_bytes:,} bytes had arrived)"
        self._finish(sending.id, status, sending.start_s, None, sending.received_bytes, reason)

    def _finish(
        self, step_id: int, status: TransferStatus, start_s: float | None, end_s: float | None, received: int,
        reason: str,
    ) -> None:  # fmt: skip
        self._finished.append((step_id, status.value, self._since_start(start_s), self._since_start(end_s), received,
                               reason))  # fmt: skip

    def _since_start(self, t_s: float | None) -> float | None:
        return None if t_s is None else round(t_s - self._start_s, 6)

    def _report(self) -> None:
        active: Counter[int] = Counter()
        for one in sorted(self._channels.active(), key=lambda one: one.start_s or 0.0):
            if one.id in active or len(active) < MOST_ACTIVE:
                ended = self._divided[one.id].received_bytes if one.id in self._divided and one.id not in active else 0
                active[one.id] += one.received_bytes + ended
        finished, self._finished = self._finished, []
        measured, self._measured = self._measured, []
        self._tell(
            {
                "t_s": self._since_start(time.monotonic()),
                "ended": finished,
                "active": list(active.items()),
                "channels": measured,
                "computed_s": self._since_start(self._computed_s),
            }
        )

    def _tell(self, message: dict[str, Any]) -> None:
        self._reports.write(json.dumps(message).encode() + b"\n")
        self._reports.flush()


def main() -> None:
    """Entry point."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    raise_open_files_limit(1 << 20)
    sys.setswitchinterval(0.0005)
    order = json.loads(sys.stdin.buffer.readline())
    Agent(order, sys.stdin.buffer, sys.stdout.buffer).run()


if __name__ == "__main__":
    main()
