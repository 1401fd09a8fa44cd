"""The machine-wide kernel parameters that a fabric needs while it comes and goes, and how they are put back.

They are raised while a fabric comes up (its sockets and namespaces keep what they were born with) or goes down, and
restored when the last such moment is over.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from emulator.host_settings import CONGESTION_CONTROL
from emulator.kernel import inside_network_namespace
from emulator.locks import exclusive, remove_if_free
from emulator.rundir import RUN_ROOT

# One packet socket of ovs-vswitchd sends for all ports: with the kernel's small default buffer a single backlogged
# port makes all others drop. Only the machine's first network namespace has these two; in others, such as a
# container's, they are missing or can't be written, by the kernel's version.
_SEND_BUFFER = "/proc/sys/net/core/wmem_default"
_RECEIVE_BUFFER = "/proc/sys/net/core/rmem_default"
_BUFFER_BYTES = {_SEND_BUFFER: 64 << 20, _RECEIVE_BUFFER: 32 << 20}

# Only an allowed congestion control can be made the default of a new network namespace.
_ALLOWED = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"

# Closing a packet socket waits for the kernel's readers, 20 ms each in the patient way: 4 s for 64 GPUs.
_EXPEDITED = "/sys/kernel/rcu_expedited"

_SAVED = RUN_ROOT / "machine.saved"
_USERS = RUN_ROOT / "machine.users"
_MUTEX = RUN_ROOT / "machine.mutex"


@contextmanager
def raised(machine_namespace: int) -> Iterator[None]:
    """Keep the machine's settings raised while the body runs.

    ``machine_namespace`` is a descriptor of the machine's first network namespace. Several fabrics may do so at once:
    the first to come notes the old values, the last to leave restores them. Every user holds a shared lock that dies
    with it, so a crash leaves nothing that :func:`restore` cannot undo.
    """
    with ExitStack() as stack:
        with exclusive(_MUTEX), inside_network_namespace(machine_namespace):
            users = stack.enter_context(open(_USERS, "a"))
            if not _SAVED.exists():
                _save(_read())
            fcntl.flock(users, fcntl.LOCK_SH)
            _write(_raised_values(_read()))
        try:
            yield
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            restore(machine_namespace)


def restore(machine_namespace: int) -> None:
    """Put the machine's settings back to what they were, unless a fabric comes or goes right now."""
    if not (_SAVED.exists() or _USERS.exists()):
        return
    with exclusive(_MUTEX), open(_USERS, "a") as users:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if _SAVED.exists():
            with inside_network_namespace(machine_namespace):
                _write(json.loads(_SAVED.read_text()))
            _SAVED.unlink()
        _USERS.unlink(missing_ok=True)


def tidy() -> None:
    """Remove the lock that nobody needs when no fabric is there; the last step of going down."""
    if not (_SAVED.exists() or _USERS.exists()):
        remove_if_free(_MUTEX)


def can_raise_buffers() -> bool:
    """Whether the buffers of switches' sockets can be raised: only in the machine's first network namespace."""
    return all(os.access(name, os.W_OK) for name in _BUFFER_BYTES)


def _raised_values(present: dict[str, str]) -> dict[str, str]:
    """The settings to make, from those that can be made here."""
    wanted = {name: str(size_bytes) for name, size_bytes in _BUFFER_BYTES.items()}
    allowed = present.get(_ALLOWED, "").split()
    wanted[_ALLOWED] = " ".join(allowed if CONGESTION_CONTROL in allowed else [*allowed, CONGESTION_CONTROL])
    wanted[_EXPEDITED] = "1"
    return {name: value for name, value in wanted.items() if name in present}


def _save(values: dict[str, str]) -> None:
    """Note the old values in one step: half a note would be worse than none."""
    temporary = _SAVED.with_suffix(".tmp")
    temporary.write_text(json.dumps(values))
    temporary.replace(_SAVED)


def _read() -> dict[str, str]:
    paths = [Path(name) for name in (*_BUFFER_BYTES, _ALLOWED, _EXPEDITED)]
    return {str(path): path.read_text().strip() for path in paths if os.access(path, os.W_OK)}


def _write(values: dict[str, str]) -> None:
    for name, value in values.items():
        Path(name).write_text(value)
