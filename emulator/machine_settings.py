"""The machine-wide kernel parameters that a fabric needs while it starts, and how they are put back.

Only the machine's first network namespace has them. They are raised while a fabric starts (its sockets and namespaces
keep what they were born with) and restored when the last start is over.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emulator.host_settings import CONGESTION_CONTROL
from emulator.kernel import inside_network_namespace
from emulator.rundir import RUN_ROOT

# One packet socket of ovs-vswitchd sends for all ports: with the kernel's small default buffer a single backlogged
# port makes all others drop.
_BUFFERS = {"net/core/wmem_default": 64 << 20, "net/core/rmem_default": 32 << 20}

# Only an allowed congestion control can be made the default of a new network namespace.
_ALLOWED = "net/ipv4/tcp_allowed_congestion_control"

_SAVED = RUN_ROOT / "machine.saved"
_USERS = RUN_ROOT / "machine.users"
_MUTEX = RUN_ROOT / "machine.lock"
_SYSCTLS = Path("/proc/sys")


@contextmanager
def raised(machine_namespace: int) -> Iterator[None]:
    """Keep the machine's settings raised while the body runs.

    ``machine_namespace`` is a descriptor of the machine's first network namespace. Several fabrics may do so at once:
    the first to come notes the old values, the last to leave restores them. Every user holds a shared lock that dies
    with it, so a crash leaves nothing that :func:`restore` cannot undo.
    """
    RUN_ROOT.mkdir(parents=True, exist_ok=True)
    with open(_USERS, "a") as users:
        with _mutex(), inside_network_namespace(machine_namespace):
            if not _SAVED.exists():
                _SAVED.write_text(json.dumps(_read()))
            allowed = (_SYSCTLS / _ALLOWED).read_text().split()
            if CONGESTION_CONTROL not in allowed:
                allowed.append(CONGESTION_CONTROL)
            _write({**{name: str(value) for name, value in _BUFFERS.items()}, _ALLOWED: " ".join(allowed)})
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            restore(machine_namespace)


def restore(machine_namespace: int) -> None:
    """Put the machine's settings back to what they were, unless a fabric is starting right now."""
    if not _SAVED.exists():
        return
    with _mutex(), open(_USERS, "a") as users:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if _SAVED.exists():
            with inside_network_namespace(machine_namespace):
                _write(json.loads(_SAVED.read_text()))
            _SAVED.unlink()
        _USERS.unlink(missing_ok=True)


@contextmanager
def _mutex() -> Iterator[None]:
    with open(_MUTEX, "a") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        yield


def _read() -> dict[str, str]:
    return {name: (_SYSCTLS / name).read_text().strip() for name in (*_BUFFERS, _ALLOWED)}


def _write(values: dict[str, str]) -> None:
    for name, value in values.items():
        (_SYSCTLS / name).write_text(value)
