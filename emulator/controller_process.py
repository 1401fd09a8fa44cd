"""The controller as a child process: started, listened to, ended. Its standard output is a stream of JSON events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from controller.policy import RoutingPolicy
from emulator.environments import PROJECT_ROOT, interpreter
from emulator.errors import ControllerError, MissingToolError, PortTakenError
from emulator.kernel import die_with_parent
from topologies.model import FabricSpec

ControllerEvent = dict[str, Any]
PRIORITY = -10
NORTHBOUND_PORT = 8081
"""Inside the fabric's namespace, so it is free."""


def controller_python(framework: str | None) -> str:
    """The interpreter that runs the controller on that framework; raises MissingToolError if there is none.

    os-ken lives in our own environment; Ryu 4.34, which needs old packages, in one of its own (or where
    RAILBED_RYU_PYTHON points).
    """
    if framework in (None, "os-ken"):
        return sys.executable
    if framework != "ryu":
        raise MissingToolError(f"unknown controller framework '{framework}'; there are os-ken and ryu")
    python = Path(os.environ.get("RAILBED_RYU_PYTHON") or interpreter(".venv-ryu"))
    if not python.exists():
        raise MissingToolError("Ryu is not installed: run './railbed setup --ryu', or use os-ken, its continuation")
    return str(python)


def _prepare() -> None:
    """Between fork and exec: end with the parent, and be served before the traffic when a repair is due."""
    die_with_parent()
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)


class ControllerProcess:
    """One running controller. Events are kept in order; callers wait for the one they need, with a deadline."""

    def __init__(
        self,
        spec: FabricSpec,
        directory: Path,
        *,
        port: int,
        framework: str | None = None,
        python: str | None = None,
        policy: RoutingPolicy | None = None,
        guest: str | None = None,
        on_event: Callable[[ControllerEvent], None] | None = None,
    ) -> None:
        self.events: list[ControllerEvent] = []
        self._changed = threading.Condition()
        self._on_event = on_event
        self._log = directory / "controller.log"
        self.port = port
        spec_path = directory / "fabric.json"
        spec_path.write_text(json.dumps(spec.to_dict()))
        program = ["-m", "controller"] if guest is None else ["-m", "controller.guest", guest]
        command = [python or controller_python(framework), *program, "--fabric", str(spec_path)]
        command += ["--listen", f"127.0.0.1:{port}"]
        if guest is None:
            policy = policy or RoutingPolicy()
            command += ["--seed", str(policy.seed), "--relay", policy.relay.value]
            command += ["--northbound", f"127.0.0.1:{NORTHBOUND_PORT}"]
            if not policy.local_repair:
                command.append("--no-local-repair")
            if policy.placement is not None:
                placement_path = directory / "placement.json"
                placement_path.write_text(json.dumps(policy.placement.to_dict()))
                command += ["--placement", str(placement_path)]
        environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
        if framework:
            environment["RAILBED_FRAMEWORK"] = framework
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                preexec_fn=_prepare,
            )
        self._reader = threading.Thread(target=self._read, name="controller-events", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Process id of the controller."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether the controller still runs."""
        return self._process.poll() is None

    def wait(self) -> None:
        """Wait until it has ended."""
        self._process.wait()

    def check_alive(self) -> None:
        """Raise ControllerError with its last words if it has ended."""
        if not self.alive():
            raise self._ended()

    def switches_connected(self) -> set[str]:
        """Ids of the switches that are connected at this moment."""
        connected: set[str] = set()
        for event in tuple(self.events):
            if event["event"] == "switch-connected":
                connected.add(event["switch"])
            elif event["event"] == "switch-lost":
                connected.discard(event["switch"])
        return connected

    def wait_for(
        self, wanted: Callable[[ControllerEvent], bool], timeout_s: float, what: str, since: int = 0
    ) -> ControllerEvent:
        """The first event from number ``since`` on that is ``wanted``.

        Raises ControllerError saying ``what`` did not happen, with the controller's last words if it ended.
        """
        deadline = time.monotonic() + timeout_s
        position = since
        with self._changed:
            while True:
                while position < len(self.events):
                    event = self.events[position]
                    position += 1
                    if wanted(event):
                        return event
                if not self._reader.is_alive():
                    raise self._ended()
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    raise ControllerError(f"{what} within {timeout_s:g} s (log: {self._log})")
                self._changed.wait(min(remaining_s, 0.2))

    def stop(self) -> None:
        """End the controller; safe to call twice."""
        if self.alive():
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(2)
        if self.alive():
            self._process.kill()
        self._process.wait()
        self._reader.join(2)

    def _ended(self) -> ControllerError:
        self._process.wait()
        lines = self._log.read_text(errors="replace").strip().splitlines()
        last_words = lines[-1] if lines else "it left no message"
        if "port" in last_words and str(self.port) in last_words:
            return PortTakenError(last_words)  # type: ignore[return-value]
        return ControllerError(
            f"the controller ended with code {self._process.returncode}: {last_words} (log: {self._log})"
        )

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            with self._changed:
                self.events.append(event)
                self._changed.notify_all()
            if self._on_event:
                self._on_event(event)
        with self._changed:
            self._changed.notify_all()
