"""Programs started inside a GPU's network namespace, and waiting for them."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from emulator.errors import InterruptedRunError, ReplayError
from emulator.kernel import inside_network_namespace

LISTEN_TIMEOUT_S = 10.0
_TCP_LISTEN = "0A"


def spawn(command: Sequence[str], namespace_fd: int, output: Path) -> subprocess.Popen[bytes]:
    """Start ``command`` inside a network namespace, its output going to a file; it ends with the fabric.

    The thread enters the namespace and the child is born there: one program less to start, and nothing to run between
    fork and exec, so that Python can use vfork. Starting 32 programs is what a phase's start costs.
    """
    with open(output, "wb") as sink, inside_network_namespace(namespace_fd):
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Kill those that still run and bury all."""
    for process in processes:
        if process.poll() is None:
            process.kill()
    for process in processes:
        process.wait()


def listens(pid: int, port: int) -> bool:
    """Whether a TCP socket in the network namespace of process ``pid`` listens on ``port``."""
    wanted = f":{port:04X}"
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                columns = line.split()
                if columns[1].endswith(wanted) and columns[3] == _TCP_LISTEN:
                    return True
    return False


def await_listening(servers: Sequence[tuple[subprocess.Popen[bytes], int]], cancelled: threading.Event) -> None:
    """Wait until every (server, port) listens.

    Raises ReplayError for one that ends or is late, InterruptedRunError when cancelled.
    """
    deadline = time.monotonic() + LISTEN_TIMEOUT_S
    waiting = list(servers)
    while waiting:
        waiting = [(server, port) for server, port in waiting if not listens(server.pid, port)]
        for server, port in waiting:
            if server.poll() is not None:
                raise ReplayError(f"the server for port {port} ended with code {server.returncode} before it listened")
        if waiting and time.monotonic() > deadline:
            raise ReplayError(f"{len(waiting)} servers do not listen after {LISTEN_TIMEOUT_S:g} s")
        check_cancelled(cancelled, 0.005 if waiting else 0)


def check_cancelled(cancelled: threading.Event, wait_s: float) -> None:
    """Wait ``wait_s`` and raise InterruptedRunError if the run was cancelled meanwhile."""
    if cancelled.wait(wait_s):
        raise InterruptedRunError("the run was interrupted; what was measured before is kept")
