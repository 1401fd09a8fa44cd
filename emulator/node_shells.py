"""Shells inside a fabric, one for each node that a console uses, started for it and ended when it hangs up.

The shell lives in the fabric's process namespace, so that nothing that is typed outlives the fabric; its terminal is
the console's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from emulator.errors import EmulatorError

if TYPE_CHECKING:
    from emulator.emulation import Emulation

_TERMINALS = "/dev/pts/"


def serve_shell(
    emulation: Emulation, request: dict[str, Any], report: Callable[[Any], None], hung_up: threading.Event
) -> int:
    """Run ``command`` of ``request`` at its ``node`` on its ``terminal``, until it ends or the client hangs up.

    It starts in the folder ``cwd`` if there is such a one, with ``environment`` and the variables of the fabric's Open
    vSwitch. Its process id in the fabric is reported first; the answer is its exit code. When the client hangs up, the
    shell and its jobs get SIGHUP, as at the end of a terminal. Raises EmulatorError for another node or terminal.
    """
    node, terminal = request["node"], str(request["terminal"])
    namespaces = emulation.devices.namespaces
    if node not in namespaces and node not in emulation.fabric.switch_by_id:
        raise EmulatorError(f"the fabric has no node '{node}' that could have a shell")
    if not terminal.startswith(_TERMINALS):
        raise EmulatorError(f"'{terminal}' is no terminal that a shell can use")
    command = [str(word) for word in request["command"]]
    if node in namespaces:
        command = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{namespaces[node]}", *command]
    descriptor = os.open(terminal, os.O_RDWR | os.O_NOCTTY)
    try:
        process = subprocess.Popen(
            command,
            stdin=descriptor,
            stdout=descriptor,
            stderr=descriptor,
            cwd=request["cwd"] if os.path.isdir(request["cwd"]) else "/",
            env={**request["environment"], **emulation.ovs.environment},
        )
    finally:
        os.close(descriptor)
    threading.Thread(target=_hang_up_with, args=(process, hung_up), name=f"shell-{node}", daemon=True).start()
    report({"pid": process.pid})
    try:
        return process.wait()
    finally:
        hung_up.set()


def _hang_up_with(process: subprocess.Popen[bytes], hung_up: threading.Event) -> None:
    hung_up.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGHUP)
