"""A running fabric through Mininet's API from another process: nodes whose shells live inside the fabric.

What :mod:`emulator.mininet_net` is for the fabric's own process, this is for a console.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mininet.net import Mininet

from emulator.errors import EmulatorError
from emulator.mininet_net import FabricSwitch, GpuHost, ShellOnDemand, mininet_of
from emulator.wire import messages, raise_error, send

if TYPE_CHECKING:
    from emulator.manager import RunningFabric


class ShellProcess:
    """A shell inside the fabric as Mininet's nodes see it, like a subprocess.Popen; it ends with ``connection``."""

    def __init__(self, connection: socket.socket, answers: Iterator[dict[str, Any]], pid: int) -> None:
        self.pid = pid
        self.connection = connection
        self._answers = answers
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, None while it runs; -9 if the fabric ended and the shell with it."""
        if self._code is None:
            with suppress(BlockingIOError):
                if not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                    self._code = -signal.SIGKILL
                else:
                    self._code = int(next(self._answers, {}).get("result", -signal.SIGKILL))
        return self._code

    def hang_up(self) -> None:
        """End it, and wait until it has ended."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            for _ in self._answers:
                pass
        self.connection.close()


def open_shell(fabric: RunningFabric, node: str, terminal: str, command: list[str]) -> ShellProcess:
    """Start ``command`` at a node of a fabric on the caller's ``terminal``; raises NoSuchFabricError, EmulatorError."""
    request = {
        "verb": "shell", "node": node, "terminal": terminal, "command": command, "cwd": os.getcwd(),
        "environment": dict(os.environ),
    }  # fmt: skip
    connection = fabric.connect()
    try:
        send(connection, request)
        answers = messages(connection)
        message = next(answers, {})
        raise_error(message)
        if "progress" not in message:
            raise EmulatorError(f"the fabric '{fabric.name}' ended before it started a shell on {node}")
        peer, *_ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return ShellProcess(connection, answers, _outer_pid(peer, message["progress"]["pid"]))
    except BaseException:
        connection.close()
        raise


def _outer_pid(neighbour: int, inner_pid: int) -> int:
    """The process id here of the process that has ``inner_pid`` in the process namespace of ``neighbour``."""
    wanted = os.readlink(f"/proc/{neighbour}/ns/pid")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                status = (entry / "status").read_text()
                numbers = status.partition("NSpid:")[2].partition("\n")[0].split()
                if numbers[-1:] == [str(inner_pid)] and os.readlink(entry / "ns" / "pid") == wanted:
                    return int(entry.name)
    raise EmulatorError(f"the shell that was started inside the fabric (process {inner_pid} there) has ended already")


class _ShellInFabric(ShellOnDemand):
    """Mixin for nodes: the shell that Mininet starts is started inside the fabric instead."""

    name: str
    slave: int

    def __init__(self, name: str, fabric: RunningFabric, **params: Any) -> None:
        self._fabric = fabric
        super().__init__(name, **params)  # type: ignore[call-arg]

    def _popen(self, cmd: list[str], **params: Any) -> Any:
        if not self._starting:
            return super()._popen(cmd, **params)  # type: ignore[misc]
        shell = open_shell(self._fabric, self.name, os.ttyname(self.slave), cmd)
        # While this end is held open, the end of the shell would not be seen; Mininet closes what is there instead.
        os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), self.slave)
        return shell

    @property
    def started(self) -> bool:
        """Whether there is a shell already."""
        return self._shell is not None

    def end_shell(self) -> None:
        """End the shell, if there is one; the next command starts another."""
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.hang_up()
            self.stdin.close()  # type: ignore[attr-defined]
            os.close(self.slave)
            self.waiting, self.readbuf = False, ""

    def terminate(self) -> None:
        """End the shell for good."""
        self._closing = True
        self.end_shell()


class ConsoleHost(_ShellInFabric, GpuHost):
    """A GPU's host as a console sees it."""


class ConsoleSwitch(_ShellInFabric, FabricSwitch):
    """A switch as a console sees it."""


def console_view(running: RunningFabric) -> Mininet:
    """A Mininet object for a fabric of another process; nothing is started before a node is asked for something."""
    host = {"cls": ConsoleHost, "fabric": running, "namespace_fd": -1}
    return mininet_of(running.fabric, lambda _gpu_id: host, {"cls": ConsoleSwitch, "fabric": running})
