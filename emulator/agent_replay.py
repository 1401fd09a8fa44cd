"""Replays a schedule by its dependencies with the resident agent: the side that starts it, feeds it and listens."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from controller.diagnosis.replayed import Ended, Report, Teller
from controller.diagnosis.telemetry import to_row
from emulator.agent_steps import batches, steps
from emulator.errors import ReplayError
from emulator.kernel import die_with_parent
from emulator.processes import check_cancelled, end
from emulator.replay import (
    NIC_BUFFER_BYTES,
    NOT_STARTED,
    NVLINK_BUFFER_BYTES,
    SLOWEST_SHARE,
    SPARE_S,
    ReplayLog,
)
from emulator.run_order import GIVE_UP_S
from emulator.thinning import Thinned
from topologies.addresses import ipv4
from topologies.model import Fabric
from topologies.scale import Scale
from workloads.frontier import OnFailure, in_dependency_order
from workloads.records import ConnectionRecord, Event, EventKind, Progress, TransferRecord, TransferStatus
from workloads.schedule import Schedule

REPORT_S = 0.2
MOST_REPORTS = 2_000
"""Reports of which the transfers on their way are kept; of a longer run, reports further apart."""

BATCH_STEPS = 500
MOST_AHEAD = 4_096
"""Pairs whose first connection is opened before the run; later ones are opened when they are needed."""

AGAIN = 10
"""Reports after which the communicators are told again: every two seconds."""

START_TIMEOUT_S = 60.0
WATCHDOG_S = 30.0
"""An agent that says nothing for so long has failed; it reports five times a second."""

_PIPE_BYTES = 1 << 20

Shares = Mapping[tuple[int, int], Sequence[float]]
"""By pair of ranks, the shares of its bytes that its channels carry."""

Measured = Sequence[tuple[int, int, int, int, float]]
"""Parts of transfers that have arrived: source and destination rank, channel, bytes, seconds."""

Explain = Callable[[int, int], str]
"""Why nothing gets from one rank to another just now; empty if it should."""


class AgentReplay:
    """One replay of one schedule. Times are monotonic seconds since the start that :meth:`run` is given."""

    def __init__(
        self,
        fabric: Fabric,
        scale: Scale,
        namespaces: dict[str, int],
        schedule: Schedule,
        cancelled: threading.Event,
        progress: Callable[[float], None],
        *,
        on_failure: OnFailure = OnFailure.CONTINUE,
        give_up_s: float = GIVE_UP_S,
        explain: Explain = lambda _src, _dst: "",
        follow: Callable[[dict[str, Any]], None] = lambda _report: None,
        shares: Shares | None = None,
        measured: Callable[[Measured], None] = lambda _parts: None,
        telemetry: bool = True,
    ) -> None:
        """Start the agent and have it open its connections; raises ReplayError if that fails.

        Transfers of the pairs in ``shares`` are divided among as many channels as there are shares; ``measured`` is
        told how fast the parts were. ``telemetry`` says whether ``follow`` is told what a diagnosis looks at.
        """
        self._teller = Teller(schedule, scale) if telemetry else None
        self._reports = 0
        self._scale = scale
        self._schedule = schedule
        self._cancelled = cancelled
        self._progress = progress
        self._explain = explain
        self._follow = follow
        self._measured = measured
        self._progressed: Thinned[list[Progress]] = Thinned(MOST_REPORTS)
        self.log = ReplayLog()
        fds = [namespaces[gpu.id] for gpu in fabric.gpus[: schedule.ranks]]
        nic_mbps = scale.emulated_rate_mbps(fabric.spec.nic_rate_mbps)
        self._control, control = socket.socketpair()
        order = {
            "hosts": [
                {"gpu_id": gpu.id, "domain": gpu.domain, "address": ipv4(gpu.domain, gpu.rail), "namespace_fd": fd}
                for gpu, fd in zip(fabric.gpus, fds, strict=False)
            ],
            "pairs": list(islice(dict.fromkeys((one.src, one.dst) for one in schedule.transfers), MOST_AHEAD)),
            "nic_buffer_bytes": NIC_BUFFER_BYTES,
            "nvlink_buffer_bytes": NVLINK_BUFFER_BYTES,
            "on_failure": on_failure.value,
            "give_up_s": give_up_s,
            "spare_s": SPARE_S,
            "slowest_bytes_per_s": nic_mbps * 1e6 / 8 * SLOWEST_SHARE / max(1, schedule.ranks),
            "report_s": REPORT_S,
            "control_fd": control.fileno(),
            "shares": _told(shares or {}),
        }
        with control:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "emulator.agent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                pass_fds=[*fds, control.fileno()], preexec_fn=die_with_parent,
            )  # fmt: skip
        try:
            self._feeder = threading.Thread(target=self._feed, args=(order,), daemon=True)
            self._feeder.start()
            self._lines = self._read()
            next(self._lines)
        except BaseException:
            self.close()
            raise

    def _feed(self, order: dict[str, Any]) -> None:
        """Write the order and the schedule behind it; the pipe makes this wait while the agent has enough."""
        assert self._process.stdin is not None
        made = steps(in_dependency_order(self._schedule), self._scale)
        with suppress(OSError, ValueError):  # the agent has ended, or was closed
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            for batch in batches(made, BATCH_STEPS):
                pickle.dump(batch, self._process.stdin, pickle.HIGHEST_PROTOCOL)
            pickle.dump(None, self._process.stdin)
            self._process.stdin.flush()

    def _read(self) -> Iterator[dict[str, Any]]:
        """What the agent says; raises ReplayError when it ends or falls silent, InterruptedRunError when cancelled."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        deadline = time.monotonic() + START_TIMEOUT_S
        rest = b""
        while True:
            check_cancelled(self._cancelled, 0)
            if not select.select([fd], [], [], 0.1)[0]:
                if time.monotonic() > deadline:
                    raise ReplayError("the agent that replays the schedule does not answer any more")
                continue
            data = os.read(fd, _PIPE_BYTES)
            if not data:
                raise ReplayError(f"the agent that replays the schedule ended with code {self._process.wait()}")
            *lines, rest = (rest + data).split(b"\n")
            deadline = time.monotonic() + WATCHDOG_S
            for line in lines:
                yield json.loads(line)

    def run(self, start_s: float) -> ReplayLog:
        """Replay everything, from the monotonic time ``start_s`` on; a transfer that fails is recorded.

        Raises InterruptedRunError when cancelled; what was measured so far stays in :attr:`log`. Should the agent
        itself fail, all that is left has failed, and says why.
        """
        self._tell({"start_s": start_s})
        try:
            for message in self._lines:
                if "over" in message:
                    self._take_over(message["over"])
                    break
                self._take(message)
        except ReplayError as error:
            self._give_up(str(error), time.monotonic() - start_s)
        self.log.events.extend(self._phase_events())
        self.log.progress.extend(one for report in self._progressed.samples() for one in report)
        return self.log

    def set_shares(self, shares: Shares) -> None:
        """Divide the transfers of these pairs that start from now on by other shares."""
        self._tell({"shares": _told(shares)})

    def _tell(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # the agent has ended, which the reader of its reports will say
            self._control.sendall(json.dumps(message).encode() + b"\n")

    def _take(self, report: dict[str, Any]) -> None:
        reasons: dict[tuple[int, int], str] = {}
        for transfer_id, status, start_s, end_s, received, reason in report["ended"]:
            transfer = self._schedule.by_id[transfer_id]
            if reason and not reason.startswith(NOT_STARTED):
                pair = transfer.src, transfer.dst
                if pair not in reasons:
                    reasons[pair] = self._explain(*pair)
                reason += reasons[pair] and f": {reasons[pair]}"
            self._record(transfer_id, TransferStatus(status), start_s, end_s, received, reason, report["t_s"])
        self.log.last_computation_s = report["computed_s"]
        self._progress(len(self.log.records) / max(1, len(self._schedule.transfers)))
        self._progressed.add([Progress(report["t_s"], *one) for one in report["active"]])
        self._follow({"event": "transfers", **report})
        if report["channels"]:
            self._measured(report["channels"])
        if self._teller is not None:
            self._tell_telemetry(self._teller, report)

    def _tell_telemetry(self, teller: Teller, report: dict[str, Any]) -> None:
        """Tell followers what a diagnosis looks at; the communicators again from time to time, for who comes late."""
        items = teller.begin() if not self._reports else []
        if self._reports and self._reports % AGAIN == 0:
            items += teller.communicators()
        self._reports += 1
        ended = tuple(
            Ended(transfer_id, start_s, end_s, received)
            for transfer_id, _, start_s, end_s, received, _ in report["ended"]
            if start_s is not None
        )
        items += teller.report(Report(report["t_s"], ended, dict(report["active"])))
        self._follow({"event": "telemetry", "t_s": report["t_s"], "items": [to_row(item) for item in items]})

    def _record(
        self, transfer_id: int, status: TransferStatus, start_s: float | None, end_s: float | None, received: int,
        reason: str, t_s: float,
    ) -> None:  # fmt: skip
        size_bytes = self._scale.emulated_bytes(self._schedule.by_id[transfer_id].size_bytes)
        self.log.records.append(TransferRecord(transfer_id, status, start_s, end_s, received, size_bytes, reason))
        if status is not TransferStatus.COMPLETE:
            self.log.events.append(Event(t_s, EventKind.TRANSFER_FAILED, str(transfer_id), reason))

    def _take_over(self, over: dict[str, Any]) -> None:
        self.log.connections = tuple(ConnectionRecord(**use) for use in over["connections"])
        self.log.notes.append(f"agent: {over['cpu_s']:.2f} s of CPU, {over['peak_mb']:.0f} MB of memory at most")

    def _give_up(self, reason: str, t_s: float) -> None:
        done = {record.transfer_id for record in self.log.records}
        for transfer in self._schedule.transfers:
            if transfer.id not in done:
                self._record(transfer.id, TransferStatus.FAILED, None, None, 0, reason, t_s)

    def _phase_events(self) -> list[Event]:
        """Start and end of every phase of a schedule with barriers, from the transfers in it."""
        if not self._schedule.is_phased:
            return []
        by_id = {record.transfer_id: record for record in self.log.records}
        events = []
        for number, phase in enumerate(self._schedule.phases()):
            made: Sequence[TransferRecord] = [by_id[one.id] for one in phase if one.id in by_id]
            starts = [one.start_s for one in made if one.start_s is not None]
            ends = [one.end_s for one in made if one.end_s is not None]
            events += [Event(min(starts), EventKind.PHASE_START, str(number))] if starts else []
            events += [Event(max(ends), EventKind.PHASE_END, str(number))] if ends else []
        return events

    def close(self) -> None:
        """End the agent, whatever it does."""
        self._control.close()
        end([self._process])
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if stream is not None:
                    stream.close()


def _told(shares: Shares) -> list[tuple[int, int, list[float]]]:
    return [(src, dst, list(of_pair)) for (src, dst), of_pair in shares.items()]
