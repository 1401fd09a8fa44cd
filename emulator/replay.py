"""Replays a schedule on the live hosts with iperf3, phase by phase, while links fail as planned."""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emulator import iperf3
from emulator.processes import await_listening, check_cancelled, end, spawn
from topologies.addresses import ipv4
from topologies.model import Fabric
from topologies.scale import Scale
from workloads.frontier import OnFailure
from workloads.records import ConnectionRecord, Event, EventKind, Progress, TransferRecord, TransferStatus
from workloads.schedule import Schedule, Transfer

NIC_BUFFER_BYTES = 32_768
NVLINK_BUFFER_BYTES = 262_144
SPARE_S = 20.0
NOT_STARTED = "not started"
SLOWEST_SHARE = 1 / 16
"""A transfer may run at this share of its NIC's rate before it is given up, plus SPARE_S."""


@dataclass
class _Flow:
    """One transfer with its two iperf3 processes and their output files."""

    transfer: Transfer
    size_bytes: int
    port: int
    server: subprocess.Popen[bytes]
    server_output: Path
    client_output: Path
    client: subprocess.Popen[bytes] | None = None
    server_ended_s: float | None = None
    given_up: str = ""

    def processes(self) -> list[subprocess.Popen[bytes]]:
        return [self.server] if self.client is None else [self.server, self.client]


@dataclass
class ReplayLog:
    """What a replay has produced so far; complete even when it was interrupted."""

    records: list[TransferRecord] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    last_computation_s: float | None = None
    connections: tuple[ConnectionRecord, ...] = ()
    progress: list[Progress] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Iperf3Replay:
    """One replay of one schedule. Times are monotonic seconds since the start that :meth:`run` is given."""

    def __init__(
        self,
        fabric: Fabric,
        scale: Scale,
        namespaces: dict[str, int],
        schedule: Schedule,
        directory: Path,
        cancelled: threading.Event,
        progress: Callable[[float], None],
        on_failure: OnFailure = OnFailure.CONTINUE,
    ) -> None:
        """Raises ScheduleError for a schedule without phases."""
        schedule.phases()
        self._fabric = fabric
        self._scale = scale
        self._namespaces = namespaces
        self._schedule = schedule
        self._directory = directory
        self._start_s = 0.0
        self._on_failure = on_failure
        self._cancelled = cancelled
        self._progress = progress
        self.log = ReplayLog()

    def run(self, start_s: float) -> ReplayLog:
        """Replay all phases from the monotonic time ``start_s`` on; a transfer that fails is recorded.

        The next phase starts all the same, unless a failure is to stop the schedule. Raises InterruptedRunError when
        cancelled; what was measured so far stays in :attr:`log`.
        """
        self._start_s = start_s
        phases = self._schedule.phases()
        for number, phase in enumerate(phases):
            self._progress(number / len(phases))
            self.log.events.append(Event(self._now_s(), EventKind.PHASE_START, str(number)))
            with tempfile.TemporaryDirectory(dir=self._directory) as directory:
                self._run_phase(phase, Path(directory))
            self.log.events.append(Event(self._now_s(), EventKind.PHASE_END, str(number)))
            failed = next((one for one in self.log.records if one.status is not TransferStatus.COMPLETE), None)
            if failed and self._on_failure is OnFailure.STOP:
                self._skip([transfer for phase in phases[number + 1 :] for transfer in phase], failed.transfer_id)
                break
        return self.log

    def _skip(self, transfers: Sequence[Transfer], failed_id: int) -> None:
        for transfer in transfers:
            size_bytes = self._scale.emulated_bytes(transfer.size_bytes)
            status, reason = TransferStatus.FAILED, not_started(failed_id)
            self.log.records.append(TransferRecord(transfer.id, status, None, None, 0.0, size_bytes, reason))

    def close(self) -> None:
        """Nothing is left to end: every phase ends what it started."""

    def _now_s(self) -> float:
        return time.monotonic() - self._start_s

    def _run_phase(self, phase: Sequence[Transfer], directory: Path) -> None:
        flows: list[_Flow] = []
        try:
            for offset, transfer in enumerate(phase):
                flows.append(self._start_server(transfer, iperf3.flow_port(offset), directory))
            await_listening([(flow.server, flow.port) for flow in flows], self._cancelled)
            for flow in flows:
                self._start_client(flow)
            self._await_end(flows)
        finally:
            end([process for flow in flows for process in flow.processes()])
        self.log.records.extend(self._record(flow) for flow in flows)

    def _start_server(self, transfer: Transfer, port: int, directory: Path) -> _Flow:
        output = directory / f"{transfer.id}.server"
        dst = self._fabric.gpu_of_rank(transfer.dst)
        size_bytes = self._scale.emulated_bytes(transfer.size_bytes)
        server = spawn(iperf3.server_command(port), self._namespaces[dst.id], output)
        return _Flow(transfer, size_bytes, port, server, output, directory / f"{transfer.id}.client")

    def _start_client(self, flow: _Flow) -> None:
        src = self._fabric.gpu_of_rank(flow.transfer.src)
        dst = self._fabric.gpu_of_rank(flow.transfer.dst)
        buffer_bytes = NVLINK_BUFFER_BYTES if src.domain == dst.domain else NIC_BUFFER_BYTES
        command = iperf3.client_command(ipv4(dst.domain, dst.rail), flow.port, flow.size_bytes, buffer_bytes)
        flow.client = spawn(command, self._namespaces[src.id], flow.client_output)

    def _await_end(self, flows: Sequence[_Flow]) -> None:
        """Wait until every process has ended or its transfer's deadline has passed."""
        nic_mbps = self._scale.emulated_rate_mbps(self._fabric.spec.nic_rate_mbps)
        largest_bytes = max(flow.size_bytes for flow in flows)
        deadline = time.monotonic() + SPARE_S + largest_bytes * 8 / 1e6 / (nic_mbps * SLOWEST_SHARE)
        with selectors.DefaultSelector() as selector:
            for flow in flows:
                for process in flow.processes():
                    selector.register(os.pidfd_open(process.pid), selectors.EVENT_READ, (flow, process))
            try:
                while selector.get_map() and time.monotonic() < deadline:
                    check_cancelled(self._cancelled, 0)
                    for key, _ in selector.select(0.1):
                        flow, process = key.data
                        if process is flow.server:
                            flow.server_ended_s = self._now_s()
                        elif process.wait() != 0 or _error(flow.client_output):
                            flow.server.kill()  # nobody will come any more; it would wait for its idle time-out
                        selector.unregister(key.fileobj)
                        os.close(key.fd)
            finally:
                for key in list(selector.get_map().values()):
                    key.data[0].given_up = f"no end after {SPARE_S:g} s more than the slowest acceptable time"
                    os.close(key.fd)

    def _record(self, flow: _Flow) -> TransferRecord:
        """What became of a transfer, from the receiver's report; a failure says why."""
        transfer = flow.transfer
        report = iperf3.receiver_report(flow.server_output.read_text(errors="replace"))
        if report is None or flow.server_ended_s is None:
            reason = flow.given_up or _error(flow.client_output) or "iperf3 gave no measurement"
            self.log.events.append(Event(self._now_s(), EventKind.TRANSFER_FAILED, str(transfer.id), reason))
            return TransferRecord(transfer.id, TransferStatus.FAILED, None, None, 0.0, flow.size_bytes, reason)
        start_s = max(0.0, flow.server_ended_s - report.duration_s)
        needed_s = report.time_of_byte_s(flow.size_bytes)
        if needed_s is None:
            share = report.received_bytes / flow.size_bytes
            reason = flow.given_up or f"the receiver had {share:.1%} when the sender ended"
            status, end_s = TransferStatus.INCOMPLETE, flow.server_ended_s
        else:
            reason, status, end_s = "", TransferStatus.COMPLETE, start_s + needed_s
        received = min(report.received_bytes, flow.size_bytes)
        return TransferRecord(transfer.id, status, start_s, end_s, received, flow.size_bytes, reason)


def not_started(failed_id: int) -> str:
    """The reason of a transfer that was not started, because another one failed."""
    return f"{NOT_STARTED}: transfer {failed_id} failed"


def _error(output: Path) -> str:
    """iperf3's own error in its output; its exit code is 0 even then."""
    return iperf3.error_text(output.read_text(errors="replace")) if output.exists() else ""
