"""A real program on every emulated GPU: started, its output passed on line by line, ended together."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from emulator.errors import ProgramError
from emulator.kernel import CLONE_NEWPID, raise_open_files_limit, setns, unshare
from emulator.manager import Lease, RunningFabric
from emulator.rank_environment import RESOLVER_FILE, User, hosts_file
from emulator.rank_keeper import Places, Program, run_keeper
from emulator.remote_shell import SOCKET_VARIABLE

GRACE_S = 5.0
ASK_S = 0.1
_CHUNK_BYTES = 1 << 16

Sink = Callable[[int, bool, bytes], None]
"""Takes (rank, whether it is standard error, one line with its end; the last one may lack it)."""


@dataclass(frozen=True)
class Launch:
    """One rank's program: the GPU that it runs on, its command and its environment."""

    gpu_id: str
    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class RankExit:
    """How one rank ended: its exit code as a shell has it, seconds since the start, and the GPU that it ran on."""

    rank: int
    code: int
    after_s: float
    gpu_id: str


@dataclass
class Ending:
    """How all ended: ``exits`` in the order in which they did, ``notes`` about the machine's load."""

    exits: list[RankExit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def first_failure(self) -> RankExit | None:
        """The first that ended with another code than 0."""
        return next((one for one in self.exits if one.code), None)


def run_programs(
    running: RunningFabric,
    launches: Sequence[Launch],
    sink: Sink,
    *,
    user: User | None = None,
    timeout_s: float | None = None,
) -> Ending:
    """Run one program per rank on a fabric until all have ended; a failed one ends the others.

    Raises ProgramError after ``timeout_s`` or when the fabric ends, and KeyboardInterrupt when interrupted; all
    programs have ended by then, and whatever they started.
    """
    with running.lease() as lease, ExitStack() as stack:
        places, socket_path = prepared(running, lease, user, stack)
        group = ProgramGroup(places, launches, socket_path, sink)
        stack.callback(group.end)
        group.watch(lease, timeout_s)
        group.end()
        ending = group.ending
        ending.notes = lease.give_back()
    return ending


def prepared(running: RunningFabric, lease: Lease, user: User | None, stack: ExitStack) -> tuple[Places, Path]:
    """Where programs run on a leased fabric, and the path of the socket of their remote shell; ``stack`` tidies up."""
    raise_open_files_limit()
    files = {"/etc/hosts": hosts_file(running.fabric), "/etc/resolv.conf": RESOLVER_FILE}
    mounts = {target: _file(lease.run_path / Path(target).name, text) for target, text in files.items()}
    socket_path = lease.run_path / f"exec-{os.getpid()}.sock"
    stack.callback(socket_path.unlink, missing_ok=True)
    return Places(lease.namespaces, mounts, user), socket_path


class ProgramGroup:
    """The keeper of some ranks, as seen from the command line's process."""

    def __init__(self, places: Places, launches: Sequence[Launch], socket_path: Path, sink: Sink) -> None:
        self.ending = Ending()
        self.asked_after: int | None = None
        """How many ranks had ended by themselves when the others were asked to end; None before that."""
        self._ended = False
        self._launches = launches
        self._sink = sink
        self._partial: dict[int, bytes] = {}
        self._sources: dict[int, tuple[int, bool]] = {}
        self._selector = selectors.DefaultSelector()
        self.started_s = time.monotonic()
        """Of the monotonic clock."""
        reports, self._reports_in = os.pipe()
        orders_out, self._orders = os.pipe()
        programs = []
        writers = []
        for rank, launch in enumerate(launches):
            ends = []
            for is_error in (False, True):
                reader, writer = os.pipe()
                self._sources[reader] = (rank, is_error)
                ends.append(writer)
            writers += ends
            environment = {**launch.environment, SOCKET_VARIABLE: str(socket_path)}
            programs.append(Program(launch.gpu_id, launch.command, environment, ends[0], ends[1]))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(socket_path))
            socket_path.chmod(0o600)
            if places.user is not None:
                os.chown(socket_path, places.user.uid, places.user.gid)
            listener.listen(len(places.namespaces))
            self._keeper = _fork_into_process_namespace()
            if self._keeper == 0:
                for ours in (*self._sources, reports, self._orders):
                    os.close(ours)
                run_keeper(places, programs, orders_out, self._reports_in, listener)
        for theirs in (*writers, self._reports_in, orders_out):
            os.close(theirs)
        self._reports = reports
        self._report_text = b""
        for source in (*self._sources, reports):
            self._selector.register(source, selectors.EVENT_READ)

    def watch(self, lease: Lease, timeout_s: float | None, wants_end: Callable[[], bool] | None = None) -> None:
        """Pass output on until every rank has ended, or one has failed and the others were asked to end.

        ``wants_end`` is asked ten times a second; once it says so this returns, with ranks still running. Raises
        ProgramError when the programs cannot go on, and KeyboardInterrupt, which the ranks are told first.
        """
        try:
            self._watch(lease, timeout_s, wants_end)
        except KeyboardInterrupt:
            self.ask_to_end(signal.SIGINT)
            raise
        finally:
            with suppress(KeyError):
                self._selector.unregister(lease.connection)

    def _watch(self, lease: Lease, timeout_s: float | None, wants_end: Callable[[], bool] | None) -> None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._selector.register(lease.connection, selectors.EVENT_READ)
        while self.running():
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                late = self.running()
                self.ask_to_end(signal.SIGTERM)
                raise ProgramError(
                    f"the program did not end within {timeout_s:g} s on {len(late)} of {len(self._launches)} ranks "
                    f"({', '.join(map(str, late[:8]))}{', ...' if len(late) > 8 else ''}); all were ended"
                )
            if wants_end is not None:
                if wants_end():
                    return
                left_s = ASK_S if left_s is None else min(left_s, ASK_S)
            if lease.connection in self._handle(left_s):
                raise ProgramError("the fabric was taken down while the program ran; all ranks were ended")
            if self._reports not in self._selector.get_map():
                raise ProgramError("the programs were killed from outside; all ranks have ended")
            if self.ending.first_failure and self.running():
                self.ask_to_end(signal.SIGTERM)
                return

    def running(self) -> list[int]:
        """Ranks that have not ended."""
        ended = {one.rank for one in self.ending.exits}
        return [rank for rank in range(len(self._launches)) if rank not in ended]

    def ask_to_end(self, number: int) -> None:
        """Send a signal to all programs and give them a moment to end by themselves."""
        self.asked_after = len(self.ending.exits) if self.asked_after is None else self.asked_after
        with suppress(OSError):
            os.write(self._orders, bytes([number]))
        deadline = time.monotonic() + GRACE_S
        while self.running() and time.monotonic() < deadline and self._reports in self._selector.get_map():
            self._handle(deadline - time.monotonic())

    def end(self) -> None:
        """End whatever still runs, and read the rest of the output. Safe to call twice."""
        if self._ended:
            return
        self._ended = True
        os.close(self._orders)
        os.waitpid(self._keeper, 0)
        # The kernel has killed all writers, so every pipe has an end.
        while any(source in self._selector.get_map() for source in (*self._sources, self._reports)):
            self._handle(None, outputs_only=True)
        for source in (*self._sources, self._reports):
            os.close(source)

    def _handle(self, timeout_s: float | None, outputs_only: bool = False) -> Sequence[object]:
        """Read what there is; the sources that were ready."""
        ready = [key.fileobj for key, _ in self._selector.select(timeout_s)]
        for source in ready:
            if not isinstance(source, int):
                if outputs_only:
                    self._selector.unregister(source)
                continue
            data = os.read(source, _CHUNK_BYTES)
            if not data:
                self._selector.unregister(source)
            if source == self._reports:
                self._note_exits(data)
            else:
                self._pass_on(source, data)
        return ready

    def _note_exits(self, data: bytes) -> None:
        *lines, self._report_text = (self._report_text + data).split(b"\n")
        for line in lines:
            report = json.loads(line)
            rank, after_s = report["rank"], time.monotonic() - self.started_s
            self.ending.exits.append(RankExit(rank, report["code"], after_s, self._launches[rank].gpu_id))

    def _pass_on(self, source: int, data: bytes) -> None:
        rank, is_error = self._sources[source]
        lines = (self._partial.pop(source, b"") + data).splitlines(keepends=True)
        if data and lines and not lines[-1].endswith((b"\n", b"\r")):
            self._partial[source] = lines.pop()
        for line in lines:
            self._sink(rank, is_error, line)


def _file(path: Path, text: str) -> Path:
    """Write a file that everybody may read."""
    path.write_text(text)
    path.chmod(0o644)
    return path


def _fork_into_process_namespace() -> int:
    """Fork a child that is process 1 of a new process namespace; the caller's later children are not in it."""
    home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        unshare(CLONE_NEWPID)
        child = os.fork()
        if child:
            setns(home)
        return child
    finally:
        os.close(home)
