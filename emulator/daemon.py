"""The processes behind a fabric that stays up.

The supervisor stays in the machine's own namespaces: it makes the fabric's network namespace, waits, and cleans up. Its
child enters that namespace and starts process 1 of a process namespace, so that the end of any of the three ends
everything in the fabric at once, kill -9 included. Process 1 buries orphans; its child runs the emulation and answers
requests. Started by :mod:`emulator.manager` as ``python -m emulator.daemon``.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pyroute2 import netns

from controller.placement import Placement
from emulator.emulation import Emulation
from emulator.errors import EmulatorError
from emulator.kernel import (
    CLONE_NEWPID,
    boot_id,
    die_with_parent,
    mount_own_proc_and_sys,
    name_new_network_namespace,
    open_network_namespace,
    private_mounts,
    process_start_ticks,
    setns,
    unshare,
)
from emulator.machine_settings import raised, restore
from emulator.rundir import FabricState, RunDir
from emulator.server import ControlServer
from emulator.wire import error_message
from topologies.model import FabricSpec
from topologies.scale import Scale


def main() -> None:
    """Entry point; the order to build comes as JSON on standard input, reports go to standard output."""
    order = json.loads(sys.stdin.readline())
    run_dir = RunDir(order["name"])
    log = os.open(run_dir.log_path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.close(log)
    reports = _Reports()
    try:
        exit_code = _supervise(run_dir, order, reports)
    except Exception as error:
        _note_traceback()
        reports.send(error_message(error))
        exit_code = 1
    sys.exit(exit_code)


class _Reports:
    """Messages to whoever ordered the fabric."""

    def send(self, message: dict[str, Any]) -> None:
        """Tell it, if it is still there."""
        with suppress(OSError):
            os.write(1, json.dumps(message).encode() + b"\n")

    def tell(self, message: dict[str, Any]) -> None:
        """Tell it; raises EmulatorError if it is gone, for then nobody wants this fabric any more."""
        try:
            os.write(1, json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            raise EmulatorError("whoever ordered this fabric has ended; it is given up") from None

    def close(self) -> None:
        """Let the other end see that no more will come."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)


def _supervise(run_dir: RunDir, order: dict[str, Any], reports: _Reports) -> int:
    """Make the namespace, start the fabric inside, wait for its end, remove the namespace and the run directory.

    The lock of the fabric's name is held (it came from whoever ordered the fabric) until the state file names this
    process: so nobody takes a fabric for gone whose processes are just about to start.
    """
    machine_namespace = open_network_namespace()
    state = FabricState(
        name=run_dir.name,
        spec=order["spec"],
        scale=order["scale"],
        supervisor_pid=os.getpid(),
        supervisor_start_ticks=process_start_ticks(os.getpid()) or 0,
        boot_id=boot_id(),
        created_s=time.time(),
        seed=order["seed"],
    )
    run_dir.write_state(state)
    os.close(order["lock_fd"])  # from now on whoever wants to end this fabric finds this process
    try:
        fabric_namespace = name_new_network_namespace(run_dir.namespace_path)
        parent = os.getpid()
        inside = os.fork()
        if inside == 0:
            _run_inside(run_dir, order, state, machine_namespace, fabric_namespace, parent, reports)
        os.close(fabric_namespace)
        reports.close()
        ending = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: ending.set())
        status = _await_end(inside, ending, machine_namespace)
        return os.waitstatus_to_exitcode(status) & 0xFF
    finally:
        with suppress(OSError):
            netns.remove(run_dir.namespace)
        restore(machine_namespace)
        if _should_clean(run_dir):
            run_dir.remove()


def _await_end(inside: int, ending: threading.Event, machine_namespace: int) -> int:
    """Wait for the fabric's processes; when asked to end, end them with the machine set for a quick end."""
    inside_fd = os.pidfd_open(inside)
    try:
        while not select.select([inside_fd], [], [], 0 if ending.is_set() else 0.1)[0]:
            if ending.is_set():
                with raised(machine_namespace):
                    os.kill(inside, signal.SIGTERM)
                    return os.waitpid(inside, 0)[1]
        return os.waitpid(inside, 0)[1]
    finally:
        os.close(inside_fd)


def _should_clean(run_dir: RunDir) -> bool:
    """A run directory is kept when bringing up failed, for the error message names logs in it."""
    return not (run_dir.path / "failed").exists()


def _run_inside(
    run_dir: RunDir,
    order: dict[str, Any],
    state: FabricState,
    machine_namespace: int,
    fabric_namespace: int,
    parent: int,
    reports: _Reports,
) -> None:
    """Enter the fabric's namespaces, fork process 1, and pass on its exit code. Never returns."""
    try:
        die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        setns(fabric_namespace)
        unshare(CLONE_NEWPID)
        private_mounts()
        child = os.fork()
        if child == 0:
            die_with_parent()
            mount_own_proc_and_sys()
            emulation = os.fork()
            if emulation == 0:
                die_with_parent()
                os._exit(_emulate(run_dir, order, state, machine_namespace, reports))
            reports.close()
            os._exit(_reap(emulation))
        reports.close()
        signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    except BaseException as error:
        if isinstance(error, Exception):
            reports.send(error_message(error))
        _note_traceback()
        os._exit(1)


def _note_traceback() -> None:
    """Put the trace of the present exception into the fabric's log, unless the disk is full."""
    with suppress(OSError):
        traceback.print_exc()
        sys.stderr.flush()


def _reap(emulation: int) -> int:
    """What process 1 does: bury orphans, pass on SIGTERM, end with the emulation (and so end everything else)."""
    signal.signal(signal.SIGTERM, lambda *_: os.kill(emulation, signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        pid, status = os.wait()
        if pid == emulation:
            return os.waitstatus_to_exitcode(status) & 0xFF


def _emulate(
    run_dir: RunDir, order: dict[str, Any], state: FabricState, machine_namespace: int, reports: _Reports
) -> int:
    """Bring the fabric up, answer requests until told to stop, take it down."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    emulation = None
    try:
        emulation = Emulation(
            run_dir,
            FabricSpec.from_dict(order["spec"]),
            Scale(**order["scale"]),
            machine_namespace,
            framework=order["framework"],
            openflow_port=order["openflow_port"],
            seed=order["seed"],
            relay=order["relay"],
            local_repair=order["local_repair"],
            placement=Placement.from_dict(order["placement"]) if order["placement"] is not None else None,
            controller=order["controller"],
            bfd=order["bfd"],
        )
        emulation.bring_up(lambda text: reports.tell({"progress": text}))
        server = ControlServer(run_dir, emulation)
        status = emulation.status()
        run_dir.write_state(replace(state, ready=True, datapath=status["datapath"]))
        reports.tell({"result": status})
        reports.close()
        serving = threading.Thread(target=server.serve, daemon=True)
        serving.start()
        while not stop.is_set() and serving.is_alive():
            stop.wait(0.2)
        server.stopping.set()
        return 0
    except Exception as error:
        reports.send(error_message(error))
        _note_traceback()
        with suppress(OSError):
            (run_dir.path / "failed").touch()
        return 1
    finally:
        sys.stderr.flush()
        if emulation is not None:
            emulation.shut_down()


if __name__ == "__main__":
    main()
