"""Fabrics from outside: start one in the background, find those that run, talk to them, clean up after crashes."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pyroute2 import netns

from controller.placement import Placement
from controller.planning.steering import Planning
from controller.policy import RoutingPolicy, relay_named
from emulator import machine_settings
from emulator.engines import Engine
from emulator.errors import EmulatorError, FabricExistsError, NoSuchFabricError, NotRootError, out_of_room
from emulator.foreign_controller import chosen_controller
from emulator.iperf3 import version as iperf3_version
from emulator.kernel import open_network_namespace, process_start_ticks
from emulator.locks import exclusive
from emulator.openvswitch import check_tools
from emulator.run_order import GIVE_UP_S, RunOrder
from emulator.rundir import RUN_ROOT, FabricState, RunDir, check_name, known_names
from emulator.sampler import DEFAULT_INTERVAL_S
from emulator.wire import messages, raise_error, record_from_dict, send
from topologies.addresses import check_addressable
from topologies.builders import build
from topologies.model import Fabric, FabricSpec
from topologies.scale import Scale, check_scale, default_scale
from workloads.failures import LinkFailure
from workloads.frontier import OnFailure
from workloads.records import RunRecord
from workloads.schedule import Schedule

Progress = Callable[[str], None]
DEFAULT_NAME = "default"
DEFAULT_OPENFLOW_PORT = 6653
GRACE_S = 10.0


class RunningFabric:
    """A fabric that is up, wherever it was started from. Every call raises NoSuchFabricError once it is gone."""

    def __init__(self, state: FabricState) -> None:
        self.state = state
        self.name = state.name
        self.spec = FabricSpec.from_dict(state.spec)
        self.scale = Scale(**state.scale)
        self.seed = state.seed
        self._run_dir = RunDir(state.name)

    @property
    def fabric(self) -> Fabric:
        """The fabric's model."""
        return build(self.spec)

    def status(self) -> dict[str, Any]:
        """State as read back by the fabric just now."""
        return dict(self._request({"verb": "status"}))

    def policy(self) -> RoutingPolicy:
        """The routing policy that the fabric's controller was started with."""
        status = self.status()
        placed = status["placement"]
        placement = Placement.from_dict(placed) if placed is not None else None
        return RoutingPolicy(relay_named(status["relay"]), int(status["seed"]), status["local_repair"], placement)

    def provenance(self) -> dict[str, str]:
        """Versions of what the fabric runs on."""
        return dict(self._request({"verb": "provenance"}))

    def fail(self, link_id: str) -> dict[str, Any]:
        """Take a link down; returns when all switches have their new rules, with the times it took."""
        return dict(self._request({"verb": "fail", "link": link_id}))

    def restore(self, link_id: str) -> dict[str, Any]:
        """Bring a link back; returns when all switches have their new rules, with the times it took."""
        return dict(self._request({"verb": "restore", "link": link_id}))

    def drain(self, target_id: str, on: bool = True) -> dict[str, Any]:
        """Take a link, GPU, switch or rail out of service, or into it again; returns when the rules say so."""
        return dict(self._request({"verb": "drain", "target": target_id, "on": on}))

    def drained(self) -> list[str]:
        """Ids of the links that are out of service."""
        return list(self._request({"verb": "drained"}))

    def blackhole(self, link_id: str, direction: str = "both", on: bool = True) -> dict[str, Any]:
        """Swallow all packets of a link (``both``, ``out`` or ``in``) while its ports stay up, or stop doing so."""
        what = {"blackhole": direction, "on": on}
        return dict(self._request({"verb": "impair", "link": link_id, "what": what}))

    def degrade(self, link_id: str, rate_mbps: float | None) -> dict[str, Any]:
        """Give a link a lower emulated rate, or its own again (None)."""
        return dict(self._request({"verb": "impair", "link": link_id, "what": {"rate_mbps": rate_mbps}}))

    def delay(self, link_id: str, delay_ms: float, jitter_ms: float = 0.0) -> dict[str, Any]:
        """Delay packets of a link each way, on kernels that can; 0 takes it away. What it loses stays."""
        what = {"delay_ms": delay_ms, "jitter_ms": jitter_ms}
        return dict(self._request({"verb": "impair", "link": link_id, "what": what}))

    def lose(self, link_id: str, loss_share: float) -> dict[str, Any]:
        """Lose a share of a link's packets each way, on kernels that can; 0 takes it away. Its delay stays."""
        return dict(self._request({"verb": "impair", "link": link_id, "what": {"loss_share": loss_share}}))

    def flap(self, link_id: str, down_s: float, up_s: float, count: int) -> dict[str, Any]:
        """Take a link down and up again and again, in the background; how it flaps."""
        return dict(self._request({"verb": "flap", "link": link_id, "down_s": down_s, "up_s": up_s, "count": count}))

    def flapping(self, link_id: str) -> dict[str, Any]:
        """Whether and how a link flaps now: ``flapping``, ``down_s``, ``up_s``, ``count``, ``remaining``."""
        return dict(self._request({"verb": "flapping", "link": link_id}))

    def stop_flap(self, link_id: str) -> dict[str, Any]:
        """End a link's flapping; it is up when this returns."""
        return dict(self._request({"verb": "stop-flap", "link": link_id}))

    def impairment(self, link_id: str) -> dict[str, Any]:
        """What is wrong with one link, as the kernel holds it."""
        return dict(self._request({"verb": "impairment", "link": link_id}))

    def impairments(self) -> list[dict[str, Any]]:
        """All links with something wrong, as the kernel holds it."""
        return list(self._request({"verb": "impairments"}))

    def reset_impairments(self) -> list[str]:
        """Undo everything that is wrong with any link; ids of the links that were impaired."""
        return list(self._request({"verb": "reset"}))

    def hide_fault(self, seed: int, kinds: Sequence[str] = ()) -> dict[str, Any]:
        """Hide the fault of ``seed``, of one of ``kinds`` (FaultKind; none: those that every kernel can do).

        It is in no list of what is wrong until it is found; the answer is that of :meth:`mystery`.
        """
        return dict(self._request({"verb": "hide-fault", "seed": seed, "kinds": list(kinds)}))

    def mystery(self) -> dict[str, Any]:
        """Whether a hidden fault is ``open`` and, if so, its ``seed``, possible ``kinds`` and the ``tries`` so far."""
        return dict(self._request({"verb": "mystery"}))

    def solve(self, component: str) -> dict[str, Any]:
        """Judge an answer to it: ``judgement`` (right, close, wrong), ``sentence``, ``tries``, ``open``, ``fault``.

        ``fault`` is the impairment of the link, None while it is open.
        """
        return dict(self._request({"verb": "solve", "component": component}))

    def give_up(self) -> dict[str, Any]:
        """End it unsolved; like :meth:`solve`, with the judgement ``given-up``."""
        return dict(self._request({"verb": "give-up"}))

    def reach_all(self, timeout_s: float = 5.0) -> dict[str, Any]:
        """Which ordered pairs a datagram gets through, tried for ``timeout_s``."""
        return dict(self._request({"verb": "reach", "timeout_s": timeout_s}))

    def trace(self, src: str, dst: str, count: int = 5) -> dict[str, Any]:
        """The hops that ``count`` marked probes really took, and what the port counters say of them."""
        return dict(self._request({"verb": "trace", "src": src, "dst": dst, "count": count}))

    def path(self, src: str, dst: str, count: int = 3) -> dict[str, Any]:
        """The declared path, the one by the installed rules and the one that ``count`` probes took."""
        return dict(self._request({"verb": "path", "src": src, "dst": dst, "count": count}))

    def rules(self, switch: str | None = None) -> dict[str, Any]:
        """Installed flows and groups by switch id: of one switch with counters, or of all."""
        return dict(self._request({"verb": "rules", "switch": switch}))

    def mininet(self, line: str) -> str:
        """What Mininet's command line prints for one line, such as ``d0r0 ping -c1 d1r1``."""
        return str(self._request({"verb": "mininet", "line": line}))

    def steady(self, pairs: Sequence[tuple[str, str]], window_s: float = 10.0) -> dict[str, Any]:
        """Payload rate of one long flow per pair of GPU ids, all at once, over ``window_s``."""
        request = {"verb": "steady", "pairs": [list(pair) for pair in pairs], "window_s": window_s}
        return dict(self._request(request))

    def events(self) -> list[dict[str, Any]]:
        """The events of the fabric's controller, in order."""
        return list(self._request({"verb": "events"}))

    def observe(self, since: int = 0, impairments: bool = False) -> dict[str, Any]:
        """Counters of all links, the controller's events after the first ``since`` and, if asked for, impairments."""
        return dict(self._request({"verb": "observe", "since": since, "impairments": impairments}))

    def change_watched(self, link_id: str, up: bool) -> dict[str, Any]:
        """Fail or restore a link under a stream of datagrams; the times it took and the gap that the stream saw."""
        return dict(self._request({"verb": "change-watched", "link": link_id, "up": up}))

    def measure_absence(
        self, link_id: str, src: str, dst: str, away_s: float = 1.0, rate_per_s: int = 1000
    ) -> dict[str, Any]:
        """Kill the controller, fail a link meanwhile, start another one; what a stream of datagrams saw of it."""
        request = {"verb": "measure-absence", "link": link_id, "src": src, "dst": dst, "away_s": away_s}
        return dict(self._request({**request, "rate_per_s": rate_per_s}))

    def measure_repair(self, link_id: str, src: str, dst: str, rate_per_s: int = 1000) -> dict[str, Any]:
        """Fail a link and bring it back under a stream of datagrams; what the stream saw, and when who did what."""
        request = {"verb": "measure-repair", "link": link_id, "src": src, "dst": dst, "rate_per_s": rate_per_s}
        return dict(self._request(request))

    def calibrate(self) -> dict[str, Any]:
        """Measure what the machine forwards; meant for a fabric whose links are faster than that."""
        return dict(self._request({"verb": "calibrate"}))

    def run(
        self,
        schedule: Schedule,
        failures: Sequence[LinkFailure] = (),
        seed: int = 0,
        progress: Callable[[float], None] | None = None,
        *,
        engine: Engine | None = None,
        on_failure: OnFailure = OnFailure.CONTINUE,
        give_up_s: float = GIVE_UP_S,
        sample_s: float = DEFAULT_INTERVAL_S,
        probe: bool = True,
        planning: Planning | None = None,
        telemetry: bool = True,
    ) -> RunRecord:
        """Replay a schedule while links fail as planned; ``progress`` is told the share done.

        ``engine`` None is the one that suits the schedule. ``on_failure`` says what becomes of the rest when a transfer
        fails; the agent gives one up of which no byte arrives for ``give_up_s``. Links are sampled every ``sample_s``;
        ``probe`` says whether a stream of datagrams watches the first failing link. With ``planning`` connections are
        planned, and the agent replays. ``telemetry`` says whether followers get the telemetry of an agent's run. Ctrl-C
        cancels the run on the fabric too.
        """
        order = RunOrder(
            schedule, tuple(failures), seed, engine, on_failure, give_up_s, sample_s, probe, planning, telemetry
        )
        request = {"verb": "run", "order": order.to_dict()}
        return record_from_dict(self._request(request, progress))

    def stop_run(self) -> bool:
        """End the run that goes on now; its :meth:`run` returns what was measured so far. False if there is none."""
        return bool(self._request({"verb": "stop-run"})["stopped"])

    @contextmanager
    def lease(self) -> Iterator[Lease]:
        """Have the fabric's traffic to oneself; raises EmulatorError if a run has it."""
        with self._connected() as connection:
            send(connection, {"verb": "lease"})
            answers = messages(connection)
            message = next(answers, {})
            raise_error(message)
            if "progress" not in message:
                raise EmulatorError(f"the fabric '{self.name}' ended; its log: {self._run_dir.log_path}")
            # The fabric's process keeps the namespaces open; its descriptors are opened anew from here.
            pid, *_ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            namespaces: dict[str, int] = {}
            try:
                for gpu_id, number in message["progress"].items():
                    namespaces[gpu_id] = os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY | os.O_CLOEXEC)
                yield Lease(namespaces, self._run_dir.path, connection, answers)
            finally:
                for descriptor in namespaces.values():
                    os.close(descriptor)

    def follow(self) -> Iterator[dict[str, Any]]:
        """What happens on the fabric from now on, as it happens, until the fabric ends or the iterator is closed.

        Messages have an ``event``: ``run-start`` (``name``, ``engine``, ``links``, number of ``transfers``, monotonic
        ``start_s``), then five times a second ``links`` (cumulative bytes of all links, in the order of ``links``) and,
        with the agent, ``transfers`` (``active``: id and bytes received so far; ``ended``: id, status, start, end,
        bytes received, reason) and ``telemetry`` (``items``, rows of :mod:`controller.diagnosis.telemetry`), and
        ``run-end``. ``t_s`` is emulated seconds since the start. ``missed`` says how many
        messages a slow reader did not get.
        """
        for message in self._messages({"verb": "follow"}):
            if "progress" in message:
                yield message["progress"]

    def connect(self) -> socket.socket:
        """A connection to the fabric's control socket (:mod:`emulator.wire`), which the caller closes."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self._run_dir.socket_path))
        except OSError:
            connection.close()
            raise NoSuchFabricError(
                f"the fabric '{self.name}' does not answer; 'railbed down' clears it away, 'railbed up' starts anew"
            ) from None
        return connection

    def close(self) -> None:
        """Take the fabric down."""
        down(self.name)

    @contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        with self.connect() as connection:
            yield connection

    def _request(self, request: dict[str, Any], progress: Callable[[Any], None] | None = None) -> Any:
        for message in self._messages(request):
            if "result" in message:
                return message["result"]
            if progress:
                progress(message["progress"])
        raise EmulatorError(f"the fabric '{self.name}' ended before it answered; its log: {self._run_dir.log_path}")

    def _messages(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Send a request and give what comes back, line by line; raises what the fabric reports as an error."""
        with self._connected() as connection:
            send(connection, request)
            for message in messages(connection):
                raise_error(message)
                yield message


@dataclass(frozen=True)
class Lease:
    """A fabric's traffic, held by us: descriptors of the GPUs' network namespaces by GPU id, and its run directory.

    ``connection`` becomes readable when the fabric ends.
    """

    namespaces: dict[str, int]
    run_path: Path
    connection: socket.socket
    answers: Iterator[dict[str, Any]]

    def give_back(self) -> list[str]:
        """End the lease; sentences about the load of the machine meanwhile, none if it was fast enough."""
        self.connection.shutdown(socket.SHUT_WR)
        message = next(self.answers, {})
        raise_error(message)
        return list(message.get("result", ()))


@dataclass
class DownReport:
    """What was removed: names of fabrics, each with whether it was alive or left by a crash."""

    removed: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)


def up(
    spec: FabricSpec,
    scale: Scale | None = None,
    name: str = DEFAULT_NAME,
    *,
    progress: Progress | None = None,
    timeout_s: float = 120.0,
    framework: str | None = None,
    openflow_port: int = DEFAULT_OPENFLOW_PORT,
    seed: int = 0,
    relay: str = "source",
    local_repair: bool = True,
    placement: Placement | None = None,
    controller: str | None = None,
    bfd: bool = False,
) -> RunningFabric:
    """Start a fabric in the background and return when it has passed its self-test.

    Leftovers of an earlier fabric of that name are removed first. Raises FabricExistsError if one is up, and an
    EmulatorError for whatever stops it from coming up; nothing is left behind then but its logs.
    """
    require_root()
    check_name(name)
    if not 1 <= openflow_port <= 65535:
        raise EmulatorError(f"{openflow_port} is no TCP port; use 1 to 65535")
    fabric = build(spec)
    check_addressable(fabric.spec.domains, fabric.spec.rails)
    scale = scale or default_scale(fabric)
    check_scale(fabric, scale)
    check_tools()
    choice = chosen_controller(controller)
    iperf3_version()
    run_dir = RunDir(name)
    with exclusive(run_dir.lock_path) as lock:
        with suppress(NoSuchFabricError):
            state = run_dir.read_state()
            if state.alive and state.ready:
                raise FabricExistsError(
                    f"a fabric called '{name}' is up already: take it down with 'railbed down {name}', "
                    "or choose another --name"
                )
            # Who brings a fabric up holds this lock until it is ready; so this one's was killed.
            _stop_alive(run_dir)
        _clear(run_dir)
        order = {
            "name": name,
            "spec": fabric.spec.to_dict(),
            "scale": {"rate": scale.rate, "time": scale.time},
            "framework": framework,
            "openflow_port": openflow_port,
            "seed": seed,
            "relay": relay,
            "local_repair": local_repair,
            "placement": placement.to_dict() if placement is not None else None,
            "controller": choice.text or choice.kind.value,
            "bfd": bfd,
            "lock_fd": lock,
        }
        try:
            run_dir.create()
            return _start(run_dir, order, progress, timeout_s)
        except OSError as error:
            _clear(run_dir)
            raise out_of_room(error, f"start the fabric '{name}'") from error


def _start(run_dir: RunDir, order: Mapping[str, Any], progress: Progress | None, timeout_s: float) -> RunningFabric:
    """Start the fabric's supervisor with the lock of its name, and wait until it reports the fabric ready."""
    root = Path(__file__).resolve().parent.parent
    process = subprocess.Popen(
        [sys.executable, "-m", "emulator.daemon"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(root)},
        start_new_session=True,
        pass_fds=[order["lock_fd"]],
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(BrokenPipeError):  # it could not even start; what it reports says why
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.close()
        for message in _messages_until(process.stdout, time.monotonic() + timeout_s):
            raise_error(message)
            if "result" in message:
                return RunningFabric(run_dir.read_state())
            if progress:
                progress(message["progress"])
        if process.poll() is not None:
            raise EmulatorError(
                f"the fabric '{run_dir.name}' ended while it came up, without a word; its log: {run_dir.log_path}"
            )
        raise EmulatorError(
            f"the fabric '{run_dir.name}' did not come up within {timeout_s:g} s; its log: {run_dir.log_path}"
        )
    except BaseException:
        _end_process(process)
        _clear(run_dir, keep_logs=True)
        raise
    finally:
        process.stdout.close()


def _messages_until(pipe: IO[bytes], deadline_s: float) -> Iterator[dict[str, Any]]:
    """Messages from a pipe, line by line, until it is closed or the monotonic clock passes ``deadline_s``."""
    rest = b""
    while select.select([pipe], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
        received = os.read(pipe.fileno(), 65_536)
        if not received:
            return
        *lines, rest = (rest + received).split(b"\n")
        yield from (json.loads(line) for line in lines)


def _end_process(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    if process.poll() is None:
        process.kill()
    process.wait()


def attach(name: str = DEFAULT_NAME) -> RunningFabric:
    """The running fabric called ``name``; raises NoSuchFabricError if there is none that is alive and ready."""
    require_root()
    state = RunDir(name).read_state()
    if not state.alive:
        raise NoSuchFabricError(
            f"the fabric '{name}' is no longer running (its processes ended); 'railbed down {name}' clears it away"
        )
    if not state.ready:
        raise NoSuchFabricError(f"the fabric '{name}' is still coming up; try again in a moment")
    return RunningFabric(state)


def running() -> list[FabricState]:
    """All fabrics that left a trace, alive or not, by name; one without a readable state file is not listed."""
    states = []
    for name in known_names():
        with suppress(NoSuchFabricError):
            states.append(RunDir(name).read_state())
    return states


def down(name: str | None = None) -> DownReport:
    """Take down one fabric, or all of ours, and remove what crashes left; nothing of anybody else's is touched.

    Raises NoSuchFabricError if ``name`` is given and nothing of that name is there.
    """
    require_root()
    names = known_names()
    if name is not None:
        check_name(name)
        if name not in names:
            raise NoSuchFabricError(f"no fabric called '{name}' is up; 'railbed status' lists those that are")
        names = [name]
    report = DownReport()
    for one in names:
        run_dir = RunDir(one)
        with exclusive(run_dir.lock_path):
            (report.removed if _stop_alive(run_dir) else report.stale).append(one)
            _clear(run_dir)
            run_dir.lock_path.unlink(missing_ok=True)
    machine_namespace = open_network_namespace()
    try:
        machine_settings.restore(machine_namespace)
    finally:
        os.close(machine_namespace)
    if not known_names():
        machine_settings.tidy()
        with suppress(OSError):  # somebody starts a fabric right now
            RUN_ROOT.rmdir()
    return report


def _stop_alive(run_dir: RunDir) -> bool:
    """End a fabric's supervisor (and with it everything of the fabric); whether it was alive."""
    try:
        state = run_dir.read_state()
    except NoSuchFabricError:
        return False
    if not state.alive:
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(state.supervisor_pid, number)
        if _ended(state, GRACE_S):
            return True
    raise EmulatorError(f"the fabric '{run_dir.name}' (process {state.supervisor_pid}) could not be ended")


def _ended(state: FabricState, timeout_s: float) -> bool:
    """Wait until the fabric's supervisor is gone; False if it is not in time."""
    deadline = time.monotonic() + timeout_s
    while state.alive:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _clear(run_dir: RunDir, keep_logs: bool = False) -> None:
    """Remove what a dead fabric of this name left: processes in its namespace, the namespace, the run directory."""
    if run_dir.namespace_path.exists():
        _kill_members(run_dir)
        with suppress(OSError):
            netns.remove(run_dir.namespace)
        run_dir.namespace_path.unlink(missing_ok=True)
    if not keep_logs:
        run_dir.remove()


def _kill_members(run_dir: RunDir) -> None:
    """Kill the processes that still live in the fabric's own network namespace.

    The namespace carries our prefix and was made by us, so whatever runs in it belongs to the fabric. With the
    processes gone the kernel removes interfaces and the hosts' namespaces by itself.
    """
    try:
        wanted = os.stat(run_dir.namespace_path).st_ino
    except OSError:
        return
    members: list[tuple[int, int | None]] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if os.stat(entry / "ns" / "net").st_ino == wanted:
                    members.append((int(entry.name), process_start_ticks(int(entry.name))))
    for pid, _ in members:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and any(
        ticks is not None and process_start_ticks(pid) == ticks for pid, ticks in members
    ):
        time.sleep(0.01)


def require_root() -> None:
    """Raise NotRootError unless this process is root."""
    if os.geteuid() != 0:
        raise NotRootError("a live fabric needs root: run the same command with sudo")
