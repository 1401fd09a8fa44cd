"""The keeper: process 1 of a process namespace in which the programs on emulated GPUs run.

It starts each program inside its GPU (network, host name, ``/etc/hosts`` and ``/sys`` of its own), passes signals on,
reports who ended with which code, and starts further programs on a GPU for whoever asks at its socket, as a remote
shell would. Whatever ends it ends every program and their children, daemons too: the kernel sees to that.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from emulator.kernel import (
    CLONE_NEWNS,
    CLONE_NEWUTS,
    MS_BIND,
    MS_PRIVATE,
    MS_REC,
    die_with_parent,
    mount,
    mount_own_sys,
    private_mounts,
    setns,
    unshare,
)
from emulator.rank_environment import User

CANNOT_START = 126
_NICENESS = 5
_PASSED_ON = (signal.SIGINT, signal.SIGTERM)
_REQUEST_BYTES = 1 << 20


@dataclass(frozen=True)
class Program:
    """One program on one GPU; ``output`` and ``errors`` are descriptors that it writes to."""

    gpu_id: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    output: int
    errors: int


@dataclass(frozen=True)
class Places:
    """Where programs run: descriptors of the GPUs' network namespaces, files to mount over others (by the name that
    they get), and who the programs run as (None: as root).
    """

    namespaces: Mapping[str, int]
    mounts: Mapping[str, Path]
    user: User | None


class Keeper:
    """Runs in process 1; ``orders`` carries signal numbers (a byte each) and ends it by closing, ``reports`` the ends.

    A report is a line of JSON: ``{"rank": r, "code": c}``, the code as a shell has it (128 + number for a signal).
    """

    def __init__(self, places: Places, orders: int, reports: int, listener: socket.socket) -> None:
        self._places = places
        self._orders = orders
        self._reports = reports
        self._listener = listener
        self._ranks: dict[int, int] = {}
        self._guests: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()

    def keep(self, programs: Sequence[Program]) -> None:
        """Start the programs and serve until the orders end."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for rank, program in enumerate(programs):
            self._ranks[self._start(program, os.open(os.devnull, os.O_RDONLY))] = rank
            os.close(program.output)
            os.close(program.errors)
        for source in (self._orders, woken, self._listener):
            self._selector.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == self._orders:
                    orders = os.read(self._orders, 16)
                    if not orders:
                        return
                    self._signal_all(orders)
                elif key.fileobj == woken:
                    os.read(woken, 4096)
                    self._bury()
                elif key.fileobj is self._listener:
                    self._admit()

    def _start(self, program: Program, stdin: int) -> int:
        # What is sent to a child before it has become the program waits for it instead of being lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        child = os.fork()
        if child:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
            os.close(stdin)
            return child
        try:
            _become(program, self._places, stdin)
        except BaseException as error:
            os.write(2, f"railbed: {program.command[0]} cannot be started on {program.gpu_id}: {error}\n".encode())
        os._exit(CANNOT_START)

    def _signal_all(self, numbers: bytes) -> None:
        for number in numbers:
            for pid in (*self._ranks, *self._guests):
                for send in (os.killpg, os.kill):
                    with suppress(ProcessLookupError):
                        send(pid, number)
                        break

    def _bury(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            code = code if code >= 0 else 128 - code
            if pid in self._ranks:
                report = {"rank": self._ranks.pop(pid), "code": code}
                os.write(self._reports, json.dumps(report).encode() + b"\n")
            elif pid in self._guests:
                with self._guests.pop(pid) as asker, suppress(OSError):
                    asker.sendall(bytes([code]))

    def _admit(self) -> None:
        """Start what the remote shell asks for: ``{"gpu": id, "command": [...], "environment": {...}}``, 3 descriptors.

        It is answered with one byte, the exit code.
        """
        asker, _ = self._listener.accept()
        descriptors: list[int] = []
        try:
            message, descriptors, _, _ = socket.recv_fds(asker, _REQUEST_BYTES, 3)
            request = json.loads(message)
            stdin, output, errors = descriptors
            program = Program(request["gpu"], tuple(request["command"]), dict(request["environment"]), output, errors)
            if program.gpu_id not in self._places.namespaces:
                raise KeyError(program.gpu_id)
            self._guests[self._start(program, os.dup(stdin))] = asker
        except (OSError, ValueError, KeyError, TypeError):
            traceback.print_exc()
            asker.close()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def run_keeper(
    places: Places, programs: Sequence[Program], orders: int, reports: int, listener: socket.socket
) -> NoReturn:
    """What process 1 does from birth to end; never returns. The caller must have forked it into a new namespace."""
    try:
        die_with_parent()
        os.setsid()
        os.nice(_NICENESS)
        private_mounts()
        mount("proc", "/proc", "proc")
        Keeper(places, orders, reports, listener).keep(programs)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _become(program: Program, places: Places, stdin: int) -> NoReturn:
    """Turn this process into the program, on its GPU and as its user; raises OSError where that cannot be."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    namespace = places.namespaces[program.gpu_id]
    os.dup2(stdin, 0)
    os.dup2(program.output, 1)
    os.dup2(program.errors, 2)
    setns(namespace)
    unshare(CLONE_NEWNS | CLONE_NEWUTS)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount_own_sys()
    for target, path in places.mounts.items():
        if os.path.exists(target):
            mount(str(path), target, None, MS_BIND)
    socket.sethostname(program.gpu_id)
    user = places.user
    if user is not None:
        os.initgroups(user.name, user.gid)
        os.setgid(user.gid)
        os.setuid(user.uid)
    os.execvpe(program.command[0], program.command, dict(program.environment))
