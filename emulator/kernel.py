"""The few kernel calls that Python 3.10 lacks: namespaces, mounts, and dying with the parent."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_BIND = 0x1000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MS_SHARED = 1 << 20
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
TFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
TFD_TIMER_ABSTIME = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Give the calling thread (for CLONE_NEWPID: its future children) namespaces of its own."""
    _check(_libc.unshare(flags), "unshare")


def setns(namespace_fd: int) -> None:
    """Move the calling thread into the namespace behind ``namespace_fd``."""
    _check(_libc.setns(namespace_fd, 0), "setns")


def mount(source: str, target: str, kind: str | None, flags: int = 0) -> None:
    """mount(2) without data."""
    encoded = kind.encode() if kind else None
    _check(_libc.mount(source.encode(), target.encode(), encoded, flags, None), f"mount {target}")


def unmount_lazily(target: str) -> None:
    """umount2(2) with MNT_DETACH."""
    _check(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def die_with_parent(signal_number: int = signal.SIGKILL) -> None:
    """Ask the kernel to signal this process when the thread that created it ends."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0), "prctl")


class Timer:
    """A timerfd: a descriptor that becomes readable at a monotonic time; finer than epoll's milliseconds."""

    def __init__(self) -> None:
        self.fd = _libc.timerfd_create(time.CLOCK_MONOTONIC, TFD_NONBLOCK_CLOEXEC)
        _check(min(self.fd, 0), "timerfd_create")
        self._set_s: float | None = None

    def set(self, due_s: float | None) -> None:
        """Ring at ``due_s``, at once if that is past; None: never. Only a change costs a kernel call."""
        if due_s == self._set_s:
            return
        self._set_s = due_s
        # All zeros would mean never, so what is due at 0 is due at 1 ns.
        due_ns = 0 if due_s is None else max(1, round(due_s * 1e9))
        value = (ctypes.c_longlong * 4)(0, 0, *divmod(due_ns, 1_000_000_000))
        _check(_libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, value, None), "timerfd_settime")

    def rang(self) -> None:
        """Make the descriptor unreadable again."""
        self._set_s = None
        with suppress(BlockingIOError):
            os.read(self.fd, 8)


def open_network_namespace() -> int:
    """A file descriptor of the calling thread's network namespace."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def new_network_namespace() -> int:
    """Create a network namespace, leave the caller where it is, and return a descriptor that keeps it alive."""
    home = open_network_namespace()
    try:
        unshare(CLONE_NEWNET)
        try:
            return open_network_namespace()
        finally:
            setns(home)
    finally:
        os.close(home)


def name_new_network_namespace(path: Path) -> int:
    """Create a network namespace that iproute2 finds at ``path``, and return a descriptor of it.

    All in this process: a helper process would go on if this one were killed. Raises FileExistsError.
    """
    directory = str(path.parent)
    path.parent.mkdir(exist_ok=True)
    try:
        mount("", directory, "none", MS_SHARED | MS_REC)
    except OSError:  # not yet a mount of its own
        mount(directory, directory, "none", MS_BIND | MS_REC)
        mount("", directory, "none", MS_SHARED | MS_REC)
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0))
    namespace = new_network_namespace()
    mount(f"/proc/thread-self/fd/{namespace}", str(path), "none", MS_BIND)
    return namespace


@contextmanager
def inside_network_namespace(namespace_fd: int) -> Iterator[None]:
    """Run the body with the calling thread in another network namespace.

    Sockets opened inside stay in that namespace for good.
    """
    home = open_network_namespace()
    try:
        setns(namespace_fd)
        try:
            yield
        finally:
            setns(home)
    finally:
        os.close(home)


def private_mounts() -> None:
    """Give the calling process mounts of its own, so that what it mounts is seen by nobody else."""
    unshare(CLONE_NEWNS)
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def mount_own_proc_and_sys() -> None:
    """Mount /proc of this process-id namespace and /sys of this network namespace over the old ones."""
    mount("proc", "/proc", "proc")
    mount_own_sys()


def mount_own_sys() -> None:
    """Mount /sys of the calling process's network namespace over the old one."""
    unmount_lazily("/sys")
    mount("sysfs", "/sys", "sysfs")


def be_prompt(thread_id: int = 0) -> None:
    """Let a thread (0 is the calling one) run before all ordinary ones; what it starts does not inherit that.

    For threads that wait for a moment and then do little. Nothing happens where the kernel does not allow it.
    """
    with suppress(OSError):
        os.sched_setscheduler(thread_id, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))


@contextmanager
def prompt_threads() -> Iterator[None]:
    """Make all threads of this process prompt while the body runs: one of them may hold the interpreter's lock."""
    threads = [int(entry.name) for entry in Path("/proc/self/task").iterdir()]
    for thread_id in threads:
        be_prompt(thread_id)
    try:
        yield
    finally:
        for thread_id in threads:
            with suppress(OSError):
                os.sched_setscheduler(thread_id, os.SCHED_OTHER, os.sched_param(0))


def raise_open_files_limit(wanted: int = 16_384) -> None:
    """Raise this process's limit on open files to ``wanted``, or as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, wanted)), hard))


def process_start_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot (with the pid it names one process), None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rsplit(")", 1)[1].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def boot_id() -> str:
    """The kernel's identifier of the present boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def peak_memory_mb() -> float:
    """The most memory that this process has had resident so far, in MB."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024 / 1e6
