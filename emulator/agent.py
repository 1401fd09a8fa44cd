"""The resident agent: sends and receives for all GPUs of a fabric from one process, with one clock.

Started by :mod:`emulator.agent_replay` as ``python -m emulator.agent`` with the order as one line of JSON on standard
input, and the schedule behind it as pickled batches of steps (pickle keeps shared tuples shared). It says
``{"ready": true}``, starts when told so through the control socket, and then reports about five times a second:
``{"t_s", "ended", "active", "computed_s"}``, and last ``{"over": {...}}``. Its end comes with that of its parent.
"""

from __future__ import annotations

import heapq
import json
import os
import pickle
import queue
import resource
import select
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any, BinaryIO

from emulator.agent_steps import Step
from emulator.channels import Channels, Host, Sending
from emulator.kernel import Timer, peak_memory_mb, raise_open_files_limit
from emulator.replay import not_started
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
        self._report_s = order["report_s"]
        self._pairs = [(src, dst) for src, dst in order["pairs"]]
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
        word = self._control.recv(64)
        if not word:
            return
        self._start_s = float(word)
        self._channels.watch(self._control.fileno(), select.EPOLLIN, lambda _events: sys.exit(0))
        self._replay()

    def _open_ahead(self) -> None:
        """Open a connection for every pair that talks, some at a time; what does not open soon is not waited for."""
        for first in range(0, len(self._pairs), OPEN_WAVE):
            for src, dst in self._pairs[first : first + OPEN_WAVE]:
                self._channels.open_ahead(src, dst)
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
                if due_s <= now_s:
                    self._due(ready.item, due_s)
                else:
                    heapq.heappush(self._timers, (due_s, ready.item.id, ready.item))
                moved = True
            for skipped in self._frontier.take_skipped():
                if skipped.item.size_bytes:
                    reason = not_started(skipped.failed_id)
                    self._finish(skipped.item.id, TransferStatus.FAILED, None, None, 0, reason)
            if len(self._frontier) < LOOKAHEAD and (batch := self._feed.take()):
                self._add(batch, now_s)
                moved = True

    def _due(self, step: Step, due_s: float) -> None:
        if not step.size_bytes:
            self._computed_s = max(due_s, self._computed_s or 0.0)
            self._frontier.end(step.id, due_s)
            return
        allowed_s = self._spare_s + step.size_bytes / self._slowest_bytes_per_s
        self._channels.send(Sending(step.id, step.src, step.dst, step.size_bytes, allowed_s))

    def _ended(self, sending: Sending) -> None:
        assert sending.end_s is not None
        self._frontier.end(sending.id, sending.end_s)
        self._finish(sending.id, TransferStatus.COMPLETE, sending.start_s, sending.end_s, sending.received_bytes, "")

    def _failed(self, sending: Sending, reason: str) -> None:
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
        active = sorted(self._channels.active(), key=lambda one: one.start_s or 0.0)[:MOST_ACTIVE]
        finished, self._finished = self._finished, []
        self._tell(
            {
                "t_s": self._since_start(time.monotonic()),
                "ended": finished,
                "active": [(one.id, one.received_bytes) for one in active],
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
