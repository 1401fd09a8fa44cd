"""iperf3 as a tool: the words it is called with, and a reader that believes none of its habits.

Measured habits (docs/iperf3.md): one test at a time per server; ``-n`` is rounded up to the block and ends when the
sender has queued its last byte; JSON can be doubled, trailed by text, contain ``-nan`` or only an error; exit code 0 is
not success.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

from emulator.errors import CapacityError, MissingToolError

BLOCK_BYTES = 8192
"""``-l``: what iperf3 reads and writes at once, and so the unit that sizes are rounded up to."""

INTERVAL_S = 0.1
"""``-i``: how often a server notes what it has received; its completion time is read from these notes."""

FIRST_PORT = 5201
LAST_PORT = 65_535

CONNECT_TIMEOUT_MS = 5000
IDLE_TIMEOUT_S = 15

START_S = 0.35
"""What it takes to start a phase of 16 flows, measured: two programs each, and a connection (docs/iperf3.md)."""


_NAN = re.compile(r"-?\bnan\b")


@dataclass(frozen=True)
class ReceiverReport:
    """What an iperf3 server said: payload received, and the seconds from the test's start to its end.

    ``intervals`` are (start, end, payload bytes), in seconds since the test's start.
    """

    received_bytes: int
    duration_s: float
    intervals: tuple[tuple[float, float, int], ...] = ()

    def time_of_byte_s(self, size_bytes: int) -> float | None:
        """When the receiver had ``size_bytes``, in seconds since the test's start; None if it never had.

        Within an interval the rate is taken as constant.
        """
        if self.received_bytes < size_bytes:
            return None
        total = 0
        for first, last, received in self.intervals:
            if total + received >= size_bytes and received:
                return first + (last - first) * (size_bytes - total) / received
            total += received
        return self.duration_s

    def received_between(self, start_s: float, end_s: float) -> float:
        """Payload bytes received in a window; an interval across its border counts in proportion."""
        total = 0.0
        for first, last, received in self.intervals:
            overlap = min(last, end_s) - max(first, start_s)
            if overlap > 0:
                total += received * overlap / (last - first)
        return total


def version() -> str:
    """The installed iperf3's version; raises MissingToolError if there is none."""
    if shutil.which("iperf3") is None:
        raise MissingToolError("iperf3 is not installed: run './railbed setup'")
    words = subprocess.run(["iperf3", "--version"], capture_output=True, text=True, check=False).stdout.split()
    return words[1] if len(words) > 1 else "unknown"


def sent_bytes(size_bytes: int, buffer_bytes: int) -> int:
    """What a sender is asked for so that its receiver gets ``size_bytes``: more by three buffers, in whole blocks.

    iperf3 ends a test when the last byte is queued, and what is still on its way then is not counted.
    """
    return -(-(size_bytes + 3 * buffer_bytes) // BLOCK_BYTES) * BLOCK_BYTES


def flow_port(number: int) -> int:
    """TCP port of the ``number``-th of the flows that run at once (from 0); raises CapacityError if none is left."""
    port = FIRST_PORT + number
    if port > LAST_PORT:
        raise CapacityError(
            f"flow number {number} has no port: {LAST_PORT - FIRST_PORT + 1} flows can run at once; "
            "split the phase, or use the simulator"
        )
    return port


def server_command(port: int, idle_timeout_s: int = IDLE_TIMEOUT_S) -> list[str]:
    """A server for one test that reports as JSON and waits for its client for ``idle_timeout_s`` at most."""
    return [
        "iperf3", "-s", "-1", "-p", str(port), "-J", "--idle-timeout", str(idle_timeout_s), "-i", f"{INTERVAL_S:g}",
    ]  # fmt: skip


def client_command(address: str, port: int, size_bytes: int, buffer_bytes: int) -> list[str]:
    """A client that gets ``size_bytes`` through to ``address``, with at most ``buffer_bytes`` queued at the sender."""
    return [
        "iperf3", "-c", address, "-p", str(port), "-n", str(sent_bytes(size_bytes, buffer_bytes)),
        "-l", str(BLOCK_BYTES), "-w", str(buffer_bytes), "-J", "--connect-timeout", str(CONNECT_TIMEOUT_MS),
    ]  # fmt: skip


def timed_client_command(address: str, port: int, duration_s: float, connect_timeout_s: float) -> list[str]:
    """A client that sends to ``address`` for ``duration_s``, as fast as TCP lets it."""
    return [
        "iperf3", "-c", address, "-p", str(port), "-t", f"{duration_s:g}", "-i", "0", "-J",
        "--connect-timeout", f"{connect_timeout_s * 1000:.0f}",
    ]  # fmt: skip


def parse_objects(text: str) -> list[dict[str, Any]]:
    """All JSON objects in iperf3's output, whatever stands between them; not-a-number becomes null."""
    text = _NAN.sub("null", text)
    decoder = json.JSONDecoder()
    found: list[dict[str, Any]] = []
    position = text.find("{")
    while position != -1:
        try:
            value, end = decoder.raw_decode(text, position)
        except ValueError:
            end = position + 1
        else:
            found.append(value)
        position = text.find("{", end)
    return [value for value in found if isinstance(value, dict)]


def receiver_report(text: str) -> ReceiverReport | None:
    """What the server measured, None if its output holds no usable measurement."""
    for value in parse_objects(text):
        total = value.get("end", {}).get("sum_received", {}) if isinstance(value.get("end"), dict) else {}
        received, duration = total.get("bytes"), total.get("seconds")
        if isinstance(received, (int, float)) and isinstance(duration, (int, float)) and duration > 0:
            return ReceiverReport(int(received), float(duration), _intervals(value))
    return None


def _intervals(value: dict[str, Any]) -> tuple[tuple[float, float, int], ...]:
    sums = [interval.get("sum", {}) for interval in value.get("intervals", []) if isinstance(interval, dict)]
    return tuple(
        (float(one["start"]), float(one["end"]), int(one["bytes"]))
        for one in sums
        if all(isinstance(one.get(key), (int, float)) for key in ("start", "end", "bytes"))
        and one["end"] > one["start"]
    )


def error_text(text: str) -> str:
    """iperf3's own error message in its output, empty if it gave none."""
    for value in parse_objects(text):
        if value.get("error"):
            return str(value["error"])
    return ""
