"""What this machine can emulate, and what to do about what it cannot.

Every check looks, judges and returns a :class:`Check`; none changes the machine. What needs a network device is tried
in a throw-away network namespace that ends with its only process.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from emulator.asking import Answer, Ask, ask, held_qdiscs
from emulator.capabilities import AVAILABLE_CONGESTION_CONTROLS, has_fast_failover
from emulator.environments import interpreter
from emulator.errors import NoSuchFabricError
from emulator.machine_settings import can_raise_buffers
from emulator.rundir import RunDir, known_names

SETUP_REMEDY = "run sudo ./railbed setup"
OPENFLOW_PORTS = (6653, 6633)
MEMORY_WANTED_MB = 1024
CORES_WANTED = 2

SHAPING_QDISCS = {"htb": "htb default 1", "bfifo": "bfifo limit 64000"}
"""What every link is shaped with; without them nothing can be emulated."""

IMPAIRMENT_QDISCS = {"netem": "netem delay 1ms", "red": "red limit 60000 min 5000 max 15000 avpkt 1000 burst 9"}
"""What delay, loss and explicit congestion marking need; without them the rest still works."""


class Verdict(str, Enum):
    """How a check came out: fine, works with a restriction, or nothing can be emulated."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One line of the doctor: what was looked at, the verdict, what was found, and what to do (empty if nothing)."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


def examine() -> list[Check]:
    """All checks on this machine, in the order in which they matter."""
    return [
        check_root(os.geteuid()),
        check_namespaces(os.geteuid(), ask),
        check_shaping(os.geteuid(), ask),
        check_impairments(os.geteuid(), ask),
        check_socket_buffers(os.geteuid(), can_raise_buffers()),
        check_congestion_control(AVAILABLE_CONGESTION_CONTROLS),
        check_open_vswitch(ask),
        check_fast_failover(os.geteuid(), ask),
        check_datapath(ask, Path("/sys/module/openvswitch")),
        check_iperf3(ask),
        check_mininet(ask),
        check_python(sys.version_info[:3]),
        check_os_ken(),
        check_ryu(Path(os.environ.get("RAILBED_RYU_PYTHON") or interpreter(".venv-ryu")), ask),
        check_ports(ask),
        check_memory(Path("/proc/meminfo")),
        check_cores(len(os.sched_getaffinity(0))),
        check_leftovers(),
    ]


def can_emulate(checks: Iterable[Check]) -> bool:
    """Whether a fabric can be emulated on a machine with these checks."""
    return all(check.verdict is not Verdict.FAIL for check in checks)


def check_root(user_id: int) -> Check:
    """Live fabrics need root."""
    if user_id == 0:
        return Check("root", Verdict.OK, "running as root")
    return Check("root", Verdict.FAIL, "running without root", "run sudo ./railbed doctor")


def check_namespaces(user_id: int, ask: Ask) -> Check:
    """Network namespaces can be made."""
    name = "network namespaces"
    if user_id != 0:
        return _not_checked(name)
    answer = ask(["unshare", "--net", "true"])
    if answer.code == 0:
        return Check(name, Verdict.OK, "can be made")
    return Check(
        name, Verdict.FAIL, f"cannot be made: {_last_line(answer)}",
        "in a container, start it with the capability SYS_ADMIN (docker run --privileged); else use a virtual machine",
    )  # fmt: skip


def check_shaping(user_id: int, ask: Ask) -> Check:
    """The kernel has the queueing disciplines that every link is shaped with."""
    name = "traffic shaping"
    if user_id != 0:
        return _not_checked(name)
    held = held_qdiscs(SHAPING_QDISCS, ask)
    if isinstance(held, Answer):
        return Check(
            name, Verdict.FAIL, f"could not be tried: {_last_line(held)}",
            "iproute2 and the capability NET_ADMIN are needed: " + SETUP_REMEDY,
        )  # fmt: skip
    missing = [qdisc for qdisc in SHAPING_QDISCS if qdisc not in held]
    if missing:
        return Check(
            name, Verdict.FAIL, f"this kernel lacks {' and '.join(missing)}",
            f"load the modules ({', '.join(f'modprobe sch_{qdisc}' for qdisc in missing)}), or use another kernel",
        )  # fmt: skip
    return Check(name, Verdict.OK, " and ".join(held))


def check_impairments(user_id: int, ask: Ask) -> Check:
    """The kernel can delay, lose and mark packets; without, such scenarios are marked "not emulated"."""
    name = "delay and loss"
    if user_id != 0:
        return _not_checked(name, Verdict.WARN)
    held = held_qdiscs(IMPAIRMENT_QDISCS, ask)
    held = [] if isinstance(held, Answer) else held
    missing = [qdisc for qdisc in IMPAIRMENT_QDISCS if qdisc not in held]
    if missing:
        return Check(
            name, Verdict.WARN, f"this kernel lacks {' and '.join(missing)}: what needs them is not emulated",
            "use a kernel with these queueing disciplines; all else works",
        )  # fmt: skip
    return Check(name, Verdict.OK, " and ".join(held))


def check_socket_buffers(user_id: int, can_raise: bool) -> Check:
    """The switches' sockets can get large buffers, or a port that is backlogged makes others drop."""
    name = "socket buffers"
    if user_id != 0:
        return _not_checked(name, Verdict.WARN)
    if can_raise:
        return Check(name, Verdict.OK, "can be raised while switches start")
    return Check(
        name, Verdict.WARN, "cannot be raised outside the machine's first network namespace: busy links drop more",
        "start a container with the host's network (docker run --network host); fabrics have their own all the same",
    )  # fmt: skip


def check_congestion_control(available: Path) -> Check:
    """TCP cubic, which the default scale was chosen with, is there."""
    name = "TCP congestion control"
    algorithms = available.read_text().split() if available.exists() else []
    if "cubic" in algorithms:
        return Check(name, Verdict.OK, f"cubic (of {', '.join(algorithms)})")
    found = ", ".join(algorithms) or "unknown"
    return Check(name, Verdict.WARN, f"no cubic, only {found}: flows share links less evenly", "modprobe tcp_cubic")


def check_open_vswitch(ask: Ask) -> Check:
    """Open vSwitch is installed. It need not run: every fabric starts one of its own."""
    return _check_program("Open vSwitch", ["ovs-vswitchd", "--version"], "openvswitch-switch", ask)


def check_fast_failover(user_id: int, ask: Ask) -> Check:
    """Switches can change over to another port by themselves; without, only the controller repairs."""
    name = "fast failover"
    if user_id != 0:
        return _not_checked(name, Verdict.WARN)
    if has_fast_failover(ask):
        return Check(name, Verdict.OK, "Open vSwitch keeps such groups")
    return Check(
        name, Verdict.WARN, "Open vSwitch refused such a group: switches do not repair failures by themselves",
        "use railbed up --no-local-repair, the controller repairs then; or install another Open vSwitch",
    )  # fmt: skip


def check_datapath(ask: Ask, module: Path) -> Check:
    """Which datapath the switches will use."""
    name = "datapath"
    if module.is_dir():
        return Check(name, Verdict.OK, "kernel (the module openvswitch is loaded)")
    if ask(["modprobe", "--dry-run", "--quiet", "openvswitch"]).code == 0:
        return Check(name, Verdict.OK, "kernel (the module openvswitch can be loaded)")
    return Check(
        name, Verdict.WARN, "userspace: this kernel has no module openvswitch, so less traffic can be forwarded",
        "nothing, the default scale holds on it; a virtual machine with a distribution's kernel is faster",
    )  # fmt: skip


def check_iperf3(ask: Ask) -> Check:
    """The program iperf3 is installed."""
    return _check_program("iperf3", ["iperf3", "--version"], "iperf3", ask)


def check_mininet(ask: Ask) -> Check:
    """The distribution's Mininet is installed and visible to this interpreter."""
    if ask(["mnexec", "-v"]).code == 127:  # what a Mininet from elsewhere lacks
        return Check("Mininet", Verdict.FAIL, "its mnexec is not installed", f"{SETUP_REMEDY} (package mininet)")
    check = _check_program("Mininet", ["mn", "--version"], "mininet", ask)
    if check.verdict is Verdict.OK and importlib.util.find_spec("mininet") is None:
        return Check("Mininet", Verdict.FAIL, f"{check.found}, but {sys.executable} does not see it", SETUP_REMEDY)
    return check


def check_python(version: tuple[int, ...]) -> Check:
    """The interpreter is new enough."""
    text = ".".join(str(part) for part in version)
    if version >= (3, 10):
        return Check("Python", Verdict.OK, f"{text} ({sys.executable})")
    return Check("Python", Verdict.FAIL, text, "Python 3.10 or newer is needed")


def check_os_ken() -> Check:
    """The controller's first framework, the maintained continuation of Ryu, is installed."""
    try:
        return Check("os-ken", Verdict.OK, importlib.metadata.version("os-ken"))
    except importlib.metadata.PackageNotFoundError:
        return Check("os-ken", Verdict.FAIL, "not installed", SETUP_REMEDY)


def check_ryu(python: Path, ask: Ask) -> Check:
    """The controller's second framework: optional."""
    name = "Ryu"
    if python.exists():
        script = "import importlib.metadata as m; print(m.version('ryu'), 'with eventlet', m.version('eventlet'))"
        answer = ask([str(python), "-c", script])
        if answer.code == 0:
            return Check(name, Verdict.OK, f"{answer.text} ({python})")
        return Check(name, Verdict.WARN, f"{python} has no Ryu", "run ./railbed setup --ryu; os-ken works without it")
    if sys.version_info >= (3, 12):
        remedy = "nothing: Ryu 4.34 needs Python 3.10 or 3.11, and os-ken does the same"
    else:
        # The advice that is found everywhere, eventlet 0.30.2, fails on every Python that Railbed runs on.
        remedy = "nothing, os-ken does the same; ./railbed setup --ryu installs the working pair (requirements/ryu.txt)"
    return Check(name, Verdict.OK, "not installed (optional)", remedy)


def check_ports(ask: Ask) -> Check:
    """Who listens on the OpenFlow ports outside the fabrics' namespaces; a fabric has ports of its own."""
    name = "OpenFlow ports"
    answer = ask(["ss", "--no-header", "--listening", "--tcp", "--numeric", "--processes"])
    if answer.code != 0:
        return Check(name, Verdict.WARN, f"not checked: {_last_line(answer)}", SETUP_REMEDY)
    taken = []
    for line in answer.text.splitlines():
        fields = line.split()
        port = fields[3].rsplit(":", 1)[-1] if len(fields) > 3 else ""
        if port.isdigit() and int(port) in OPENFLOW_PORTS:
            holder = re.search(r'\("([^"]+)",pid=(\d+)', line)
            taken.append(f"{port} by {holder.group(1)} (pid {holder.group(2)})" if holder else port)
    if not taken:
        return Check(name, Verdict.OK, f"{' and '.join(map(str, OPENFLOW_PORTS))} are free")
    return Check(
        name, Verdict.OK, f"taken outside our namespaces: {', '.join(sorted(set(taken)))}",
        "nothing for Railbed's fabrics; stock mn needs another port or that program ended",
    )  # fmt: skip


def check_memory(meminfo: Path) -> Check:
    """Free memory in MB against what the fabrics of 16 GPUs need."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text() if meminfo.exists() else "", re.MULTILINE)
    if not found:
        return Check("memory", Verdict.WARN, "unknown", f"make sure that {MEMORY_WANTED_MB} MB are free")
    free_mb = int(found.group(1)) // 1024
    if free_mb >= MEMORY_WANTED_MB:
        return Check("memory", Verdict.OK, f"{free_mb} MB free")
    return Check(
        "memory", Verdict.WARN, f"only {free_mb} MB free; 16 GPUs need up to {MEMORY_WANTED_MB} MB",
        "end other programs, or build a smaller fabric",
    )  # fmt: skip


def check_cores(cores: int) -> Check:
    """Cores that this process may use."""
    if cores >= CORES_WANTED:
        return Check("cores", Verdict.OK, str(cores))
    return Check(
        "cores", Verdict.WARN, f"{cores}; the default scale was chosen for {CORES_WANTED}",
        "give the machine more, or a larger --rate-factor; results say when the machine was overloaded",
    )  # fmt: skip


def check_leftovers() -> Check:
    """Fabrics of ours that are up, and what crashed ones left behind."""
    name = "fabrics"
    up: list[str] = []
    stale: list[str] = []
    for fabric in known_names():
        try:
            alive = RunDir(fabric).read_state().alive
        except NoSuchFabricError:
            alive = False
        (up if alive else stale).append(fabric)
    if stale:
        return Check(name, Verdict.WARN, f"left behind by a crash: {', '.join(stale)}", "run sudo ./railbed down")
    return Check(name, Verdict.OK, f"up: {', '.join(up)}" if up else "none up, nothing left behind")


def _not_checked(name: str, verdict: Verdict = Verdict.FAIL) -> Check:
    return Check(name, verdict, "not checked: needs root", "run sudo ./railbed doctor")


def _last_line(answer: Answer) -> str:
    return answer.text.splitlines()[-1] if answer.text else f"exit code {answer.code}"


def _check_program(name: str, command: Sequence[str], package: str, ask: Ask) -> Check:
    """A program is there and says its version."""
    answer = ask(command)
    version = re.search(r"\d+(\.\d+)+", answer.text)
    if answer.code == 0 and version:
        return Check(name, Verdict.OK, f"{version.group()} ({shutil.which(command[0]) or command[0]})")
    found = "not installed" if answer.code == 127 else f"does not work: {_last_line(answer)}"
    return Check(name, Verdict.FAIL, found, f"{SETUP_REMEDY} (package {package})")
