"""The fabric's control server: takes requests on a Unix socket and answers them from the running emulation."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from emulator.calibrate import measure
from emulator.emulation import Emulation
from emulator.errors import EmulatorError
from emulator.hops import trace_probes
from emulator.live_run import run_live
from emulator.node_shells import serve_shell
from emulator.observing import observe
from emulator.repair_probe import change_watched, measure_absence, measure_repair
from emulator.rule_walk import installed, three_paths
from emulator.run_order import RunOrder
from emulator.rundir import RunDir
from emulator.wire import error_message, messages, record_to_dict, send

Report = Callable[[Any], None]
Answer = Callable[[dict[str, Any], Report, threading.Event], Any]


class ControlServer:
    """Serves one emulation. Requests run in threads; runs of a schedule exclude each other."""

    def __init__(self, run_dir: RunDir, emulation: Emulation) -> None:
        self._emulation = emulation
        self._run_lock = threading.Lock()
        self._run_cancelled: threading.Event | None = None
        self.stopping = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(run_dir.socket_path))
        run_dir.socket_path.chmod(0o600)
        self._listener.listen(16)
        self._verbs: dict[str, Answer] = {
            "status": lambda _request, _progress, _cancelled: emulation.status(),
            "provenance": lambda _request, _progress, _cancelled: emulation.provenance(),
            "fail": lambda request, _progress, _cancelled: emulation.links.set_target(request["link"], up=False),
            "restore": lambda request, _progress, _cancelled: emulation.links.restore_target(request["link"]),
            "drain": lambda request, _progress, _cancelled: emulation.links.drain(request["target"], request["on"]),
            "drained": lambda _request, _progress, _cancelled: sorted(emulation.links.drained),
            "impair": lambda request, _progress, _cancelled: emulation.mystery.shown(
                emulation.links.impair(request["link"], request["what"])
            ),
            "impairment": lambda request, _progress, _cancelled: emulation.mystery.shown(
                emulation.links.impairment(request["link"])
            ),
            "flapping": lambda request, _progress, _cancelled: emulation.links.flapping(request["link"]),
            "stop-flap": lambda request, _progress, _cancelled: emulation.links.stop_flap(request["link"]),
            "impairments": lambda _request, _progress, _cancelled: emulation.mystery.shown_impairments(),
            "reset": self._reset,
            "hide-fault": lambda request, _progress, _cancelled: emulation.mystery.hide(
                request["seed"], request["kinds"]
            ),
            "mystery": lambda _request, _progress, _cancelled: emulation.mystery.state(),
            "solve": lambda request, _progress, _cancelled: emulation.mystery.solve(request["component"]),
            "give-up": lambda _request, _progress, _cancelled: emulation.mystery.give_up(),
            "flap": lambda request, _progress, _cancelled: emulation.links.flap(
                request["link"], request["down_s"], request["up_s"], request["count"]
            ),
            "reach": lambda request, _progress, _cancelled: emulation.reach_all(request.get("timeout_s", 5.0)),
            "trace": self._trace,
            "path": lambda request, _progress, _cancelled: three_paths(
                emulation, request["src"], request["dst"], request["count"]
            ),
            "rules": lambda request, _progress, _cancelled: installed(emulation, request["switch"]),
            "steady": self._steady,
            "calibrate": self._calibrate,
            "mininet": lambda request, _progress, _cancelled: emulation.mininet_command(request["line"]),
            "shell": lambda request, report, hung_up: serve_shell(emulation, request, report, hung_up),
            "events": lambda _request, _progress, _cancelled: list(emulation.controller.events),
            "observe": lambda request, _progress, _cancelled: observe(
                emulation, request["since"], request["impairments"]
            ),
            "change-watched": lambda request, _progress, _cancelled: change_watched(
                emulation, request["link"], request["up"]
            ),
            "measure-absence": lambda request, _progress, _cancelled: measure_absence(
                emulation, request["link"], request["src"], request["dst"], request["away_s"], request["rate_per_s"]
            ),
            "measure-repair": lambda request, _progress, _cancelled: measure_repair(
                emulation, request["link"], request["src"], request["dst"], request["rate_per_s"]
            ),
            "run": self._run,
            "stop-run": self._stop_run,
            "lease": self._lease,
            "follow": self._follow,
            "stop": self._stop,
        }

    def serve(self) -> None:
        """Answer requests until asked to stop."""
        self._listener.settimeout(0.2)
        while not self.stopping.is_set():
            with suppress(TimeoutError):
                connection, _ = self._listener.accept()
                connection.settimeout(None)
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()
        self._listener.close()

    def _answer(self, connection: socket.socket) -> None:
        cancelled = threading.Event()
        with connection, suppress(OSError):
            try:
                request = next(messages(connection), None)
            except ValueError:
                send(connection, error_message(EmulatorError("the request is not a line of JSON")))
                return
            if request is None:
                return
            answer = self._verbs.get(str(request.get("verb")))
            if answer is None:
                send(connection, error_message(EmulatorError(f"the fabric knows no verb '{request.get('verb')}'")))
                return
            watcher = threading.Thread(target=_cancel_on_hangup, args=(connection, cancelled), daemon=True)
            watcher.start()
            try:
                result = answer(request, lambda share: send(connection, {"progress": share}), cancelled)
            except Exception as error:
                send(connection, error_message(error))
            else:
                send(connection, {"result": result})
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _run(self, request: dict[str, Any], progress: Report, cancelled: threading.Event) -> Any:
        with self._alone():
            order = RunOrder.from_dict(request["order"])
            self._run_cancelled = cancelled
            try:
                return record_to_dict(run_live(self._emulation, order, _until_hangup(progress, cancelled), cancelled))
            finally:
                self._run_cancelled = None

    def _stop_run(self, _request: dict[str, Any], _progress: Any, _cancelled: Any) -> Any:
        """End the run of a schedule that goes on now, whoever started it; they get what was measured so far."""
        running = self._run_cancelled
        if running is not None:
            running.set()
        return {"stopped": running is not None}

    def _follow(self, _request: dict[str, Any], progress: Report, cancelled: threading.Event) -> Any:
        """Everything that is published from now on, until the reader hangs up."""
        for message in self._emulation.feed.follow(cancelled):
            progress(message)

    def _steady(self, request: dict[str, Any], _progress: Any, cancelled: threading.Event) -> Any:
        with self._alone():
            pairs = [(src, dst) for src, dst in request["pairs"]]
            return self._emulation.steady(pairs, request["window_s"], cancelled)

    def _calibrate(self, _request: dict[str, Any], _progress: Any, _cancelled: Any) -> Any:
        with self._alone():
            return measure(self._emulation)

    def _lease(self, _request: dict[str, Any], progress: Report, cancelled: threading.Event) -> Any:
        """Leave the traffic to a client until it hangs up: it is told the descriptors of the GPUs' namespaces."""
        with self._alone():
            watch = self._emulation.watch_load()
            progress(self._emulation.devices.namespaces)
            cancelled.wait()
            overload = watch.stop().overload
            return [f"overloaded: {overload}"] if overload else []

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the fabric's traffic for one run; raises EmulatorError if another has it."""
        if not self._run_lock.acquire(blocking=False):
            raise EmulatorError("another run is using this fabric; wait for it, or bring up a second one with --name")
        try:
            yield
        finally:
            self._run_lock.release()

    def _reset(self, _request: dict[str, Any], _progress: Any, _cancelled: Any) -> Any:
        """Restore everything; a hidden fault is among it, and so no longer one."""
        restored = self._emulation.links.reset_impairments()
        self._emulation.mystery.forget()
        return restored

    def _trace(self, request: dict[str, Any], _progress: Any, _cancelled: Any) -> Any:
        return trace_probes(self._emulation, request["src"], request["dst"], request.get("count", 5))

    def _stop(self, _request: dict[str, Any], _progress: Any, _cancelled: Any) -> Any:
        self.stopping.set()
        return {}


def _until_hangup(progress: Report, cancelled: threading.Event) -> Report:
    """``progress`` that turns a vanished client into a cancelled run instead of an error."""

    def report(share: float) -> None:
        try:
            progress(share)
        except OSError:
            cancelled.set()

    return report


def _cancel_on_hangup(connection: socket.socket, cancelled: threading.Event) -> None:
    """A client says all in its first line, so anything read after it is its end."""
    with suppress(OSError):
        connection.recv(1)
    cancelled.set()
