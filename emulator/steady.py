"""Long flows side by side: what each gets when all are active, held against its max-min fair share."""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from emulator import iperf3
from emulator.errors import ReplayError
from emulator.processes import await_listening, check_cancelled, end, spawn
from topologies.addresses import ipv4
from topologies.model import Gpu

SETTLE_S = 1.0
"""From the start of the last flow to the start of the window."""

START_S = 0.1
"""What starting one flow may take."""

CONNECT_TIMEOUT_S = 30.0
"""For a flow to begin; those that began before it have the links by then."""

SPARE_S = 10.0
END_S = 0.1
"""What ending one flow may take, on top of SPARE_S for all: many of them at once are slow to exchange their results."""


@dataclass(frozen=True)
class SteadyFlow:
    """One long flow: payload rate at the receiver over the window in which all flows were active."""

    src: Gpu
    dst: Gpu
    rate_mbps: float


def run_steady_flows(
    namespaces: dict[str, int],
    pairs: Sequence[tuple[Gpu, Gpu]],
    window_s: float,
    directory: Path,
    cancelled: threading.Event,
) -> list[SteadyFlow]:
    """Run one iperf3 flow per pair and measure each over the same ``window_s``, from 1 s after the last one began.

    Raises ReplayError when a flow gives no measurement, InterruptedRunError when cancelled.
    """
    with tempfile.TemporaryDirectory(dir=directory) as outputs:
        processes = []
        files: list[Path] = []
        clients: list[Path] = []
        try:
            # The last client may start that long after its server.
            patience_s = round(iperf3.IDLE_TIMEOUT_S + START_S * len(pairs))
            for number, (_, dst) in enumerate(pairs):
                files.append(Path(outputs) / str(number))
                command = iperf3.server_command(iperf3.flow_port(number), patience_s)
                processes.append(spawn(command, namespaces[dst.id], files[-1]))
            servers = list(processes)
            await_listening([(server, iperf3.flow_port(number)) for number, server in enumerate(servers)], cancelled)
            # Every flow must outlast the window, however late the last one starts.
            duration_s = window_s + 2 * SETTLE_S + START_S * len(pairs)
            for number, (src, dst) in enumerate(pairs):
                address, port = ipv4(dst.domain, dst.rail), iperf3.flow_port(number)
                command = iperf3.timed_client_command(address, port, duration_s, CONNECT_TIMEOUT_S)
                clients.append(Path(outputs) / f"{number}.client")
                processes.append(spawn(command, namespaces[src.id], clients[-1]))
            spare_s = SPARE_S + END_S * len(pairs)
            deadline = time.monotonic() + duration_s + spare_s
            ended_s = _await_ends(servers, deadline, cancelled)
        finally:
            end(processes)
        reports = [iperf3.receiver_report(file.read_text(errors="replace")) for file in files]
        reasons = [iperf3.error_text(file.read_text(errors="replace")) for file in clients]
    measured = []
    silent = [number for number, report in enumerate(reports) if report is None or number not in ended_s]
    if silent:
        src, dst = pairs[silent[0]]
        reason = reasons[silent[0]] or f"its receiver had not ended {spare_s:g} s after it should have"
        raise ReplayError(
            f"{len(silent)} of {len(pairs)} flows gave no measurement, the first from {src.id} to {dst.id}: {reason}"
        )
    for number, report in enumerate(reports):
        assert report is not None
        measured.append((ended_s[number] - report.duration_s, ended_s[number], report))
    start_s = max(start for start, _, _ in measured) + SETTLE_S
    end_s = start_s + window_s
    if min(last for _, last, _ in measured) < end_s:
        raise ReplayError("the flows were not all active for the whole window; the machine is too slow to start them")
    return [
        SteadyFlow(src, dst, report.received_between(start_s - first, end_s - first) * 8 / 1e6 / window_s)
        for (src, dst), (first, _, report) in zip(pairs, measured, strict=True)
    ]


def _await_ends(
    servers: Sequence[subprocess.Popen[bytes]], deadline_s: float, cancelled: threading.Event
) -> dict[int, float]:
    """When each server ended (monotonic), by its place; those that had not by ``deadline_s`` are left out."""
    ended_s: dict[int, float] = {}
    with ExitStack() as opened, selectors.DefaultSelector() as selector:
        for number, server in enumerate(servers):
            descriptor = os.pidfd_open(server.pid)
            opened.callback(os.close, descriptor)
            selector.register(descriptor, selectors.EVENT_READ, number)
        while selector.get_map() and time.monotonic() < deadline_s:
            check_cancelled(cancelled, 0)
            for key, _ in selector.select(0.1):
                ended_s[key.data] = time.monotonic()
                selector.unregister(key.fileobj)
    return ended_s
