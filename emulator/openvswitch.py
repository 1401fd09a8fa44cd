"""A private Open vSwitch: one ovsdb-server and one ovs-vswitchd with a run directory of their own.

It shares nothing with an Open vSwitch that the machine may run. Bridges are made in one transaction.
"""

from __future__ import annotations

import csv
import errno
import io
import os
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from emulator.errors import MissingToolError, OpenVSwitchError, out_of_room
from emulator.kernel import die_with_parent
from emulator.names import interface_name
from emulator.processes import end
from topologies.model import Fabric, LinkKind, Switch, SwitchKind

TOOLS = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
MAX_BACKOFF_MS = 1000
DEATH_CHECK_S = 0.25
INACTIVITY_PROBE_MS = 5000
ALLOCATOR = {
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(16 << 20),
    "MALLOC_ARENA_MAX": "1",
}
"""What the C library is told for ovs-vswitchd: keep what was freed.

For every look at a port it takes 32 packet buffers and gives most of them back; left alone, the C library hands that
memory to the kernel and asks for it again, cleared, thousands of times a second (docs/fidelity.md).
"""

BFD_INTERVAL_MS = 100
BFD_INTERVALS = 8
"""A link is given up after so many intervals without a probe: many short ones, because on a busy machine single probes
come late, and one in time is enough."""

BFD_NICENESS = -15
"""Whoever probes links must not wait for programs that take all cores, or it calls links dead."""


def check_tools() -> None:
    """Raise MissingToolError unless Open vSwitch's programs are installed."""
    for tool in TOOLS:
        if shutil.which(tool) is None:
            raise MissingToolError(f"Open vSwitch's {tool} is not installed: run './railbed setup'")


def kernel_datapath_available() -> bool:
    """Whether this kernel has the Open vSwitch datapath (or a module that can be loaded).

    The list of datapath types that Open vSwitch gives names it even where it is missing, so it is no test.
    """
    if Path("/sys/module/openvswitch").is_dir():
        return True
    if shutil.which("modprobe") is None:
        return False
    done = subprocess.run(["modprobe", "openvswitch"], capture_output=True, check=False)
    return done.returncode == 0 and Path("/sys/module/openvswitch").is_dir()


def deal_out(switches: Sequence[Switch], instances: int) -> list[list[Switch]]:
    """Share switches among ovs-vswitchd processes: those of each kind in turn.

    Neighbours in different processes cost nothing more, for every link is a veth pair anyway. A process may get none.
    """
    parts: list[list[Switch]] = [[] for _ in range(instances)]
    dealt: Counter[SwitchKind] = Counter()
    for switch in switches:
        parts[dealt[switch.kind] % instances].append(switch)
        dealt[switch.kind] += 1
    return parts


MOST_INSTANCES = 4


def instances_for(kernel_datapath: bool) -> int:
    """How many ovs-vswitchd processes to run: one on the kernel's datapath, else one per core up to four."""
    return 1 if kernel_datapath else min(MOST_INSTANCES, os.cpu_count() or 1)


class OpenVSwitch:
    """A private Open vSwitch in the calling process's network namespace: one or several pairs of its two daemons.

    The userspace datapath does all its work in one thread, so one ovs-vswitchd runs per core, each with a database and
    a part of the switches. They share a run directory; ``ovs-ofctl`` finds every switch there.
    """

    def __init__(self, directory: Path, kernel_datapath: bool, instances: int) -> None:
        self.directory = directory
        self.kernel_datapath = kernel_datapath
        self.version = ""
        self._instances = instances
        self._instance_of: dict[str, int] = {}
        self._probed: set[str] = set()
        self._servers: list[subprocess.Popen[bytes]] = []
        self._switches: list[subprocess.Popen[bytes]] = []

    @property
    def datapath_type(self) -> str:
        """Open vSwitch's name of the datapath in use.

        "dummy" is the userspace datapath ("netdev") but for one thing: a switch's own local port is no tap device.
        Nobody uses those ports; as devices they would be polled all the time and could not exist in two processes.
        """
        return "system" if self.kernel_datapath else "dummy"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make Open vSwitch's programs talk to this instance and to no other."""
        directory = str(self.directory)
        return {"OVS_RUNDIR": directory, "OVS_LOGDIR": directory, "OVS_DBDIR": directory, "OVS_SYSCONFDIR": directory}

    def start(self) -> None:
        """Start all daemons and wait until they answer; raises OpenVSwitchError with the log's last line."""
        check_tools()
        self.version = self._run(["ovs-vswitchd", "--version"]).split()[3]
        for number in range(self._instances):
            database = self.directory / f"conf{number}.db"
            # With the schema that this tool was built for, wherever its Open vSwitch is installed.
            self._run(["ovsdb-tool", "create", str(database)])
            name = f"ovsdb-server{number}"
            self._servers.append(
                self._spawn(name, ["ovsdb-server", str(database), f"--remote=p{self._database(number)}"])
            )
        for number, server in enumerate(self._servers):
            self._wait_for_socket(self.directory / _socket_name(number), server, f"ovsdb-server{number}")
            settings = ["other_config:flow-restore-wait=false"]
            if not self.kernel_datapath:
                # Without it TCP between hosts hangs (ping works), and every packet is a trip of its own.
                settings.append("other_config:userspace-tso-enable=true")
            self._vsctl(number, "--no-wait", "--", "init", "--", "set", "Open_vSwitch", ".", *settings)
            command = ["ovs-vswitchd", self._database(number)]
            if not self.kernel_datapath:
                command.append("--enable-dummy")
            switch = self._spawn(f"ovs-vswitchd{number}", command, ALLOCATOR)
            self._switches.append(switch)
            # It does not take the core from whoever is sending to it, so it finds more packets at each turn.
            os.sched_setscheduler(switch.pid, os.SCHED_BATCH, os.sched_param(0))

    def create_bridges(self, fabric: Fabric, controller: str | None, bfd: bool = False) -> None:
        """Make all switches of ``fabric`` with their ports, one transaction per process, and check the port numbers.

        ``controller`` is an OpenFlow target such as ``tcp:127.0.0.1:6653``; None for none.
        With ``bfd`` both ends of every link between switches probe it, so that a link that swallows packets is noticed.
        """
        ports: dict[str, list[tuple[str, int]]] = {switch.id: [] for switch in fabric.switches}
        self._probed = {
            interface_name(switch_id, port)
            for (switch_id, port), link in fabric.link_by_port.items()
            if bfd and link.kind is not LinkKind.HOST
        }
        if bfd:
            for switch in self._switches:
                # Before the first probed port: the thread that probes is made then, and inherits this.
                os.sched_setscheduler(switch.pid, os.SCHED_OTHER, os.sched_param(0))
                os.setpriority(os.PRIO_PROCESS, switch.pid, BFD_NICENESS)
        for switch_id, port in sorted(fabric.link_by_port):
            ports[switch_id].append((interface_name(switch_id, port), port))
        parts = deal_out(fabric.switches, self._instances)
        self._instance_of = {switch.id: number for number, part in enumerate(parts) for switch in part}
        with ThreadPoolExecutor(self._instances) as pool:
            made = [
                pool.submit(self._create_part, number, part, ports, controller)
                for number, part in enumerate(parts)
                if part
            ]
            for one in made:
                one.result()

    def _create_part(
        self,
        number: int,
        switches: Sequence[Switch],
        ports: Mapping[str, Sequence[tuple[str, int]]],
        controller: str | None,
    ) -> None:
        words: list[str] = []
        for switch in switches:
            bridge = switch.id
            words += ["--", "add-br", bridge, "--", "set", "Bridge", bridge, "fail_mode=secure",
                      f"datapath_type={self.datapath_type}", "protocols=OpenFlow13",
                      f"other_config:datapath-id={switch.dpid:016x}", "other_config:disable-in-band=true",
                      f"other_config:dp-desc={bridge}"]  # fmt: skip
            if controller is not None:
                words += ["--", f"--id=@{bridge}", "create", "Controller", f"target=\"{controller}\"",
                          f"max_backoff={MAX_BACKOFF_MS}", f"inactivity_probe={INACTIVITY_PROBE_MS}",
                          "--", "set", "Bridge", bridge, f"controller=@{bridge}"]  # fmt: skip
            for name, port in ports[bridge]:
                words += ["--", "add-port", bridge, name, "--", "set", "Interface", name, f"ofport_request={port}"]
                if name in self._probed:
                    words += [
                        "bfd:enable=true",
                        f"bfd:min_tx={BFD_INTERVAL_MS}",
                        f"bfd:min_rx={BFD_INTERVAL_MS}",
                        f"bfd:mult={BFD_INTERVALS}",
                    ]
        self._vsctl(number, "--timeout=60", *words)
        self._check_ports(number, {name: port for switch in switches for name, port in ports[switch.id]})

    def _check_ports(self, number: int, wanted: Mapping[str, int]) -> None:
        """A port number is only a request to Open vSwitch, so compare with what it gave."""
        table = self._vsctl(number, "--format=csv", "--columns=name,ofport,error", "list", "Interface")
        rows = {row[0]: (row[1], row[2]) for row in csv.reader(io.StringIO(table)) if len(row) == 3}
        for name, port in wanted.items():
            given, error = rows.get(name, ("none", ""))
            if given != str(port):
                reason = error if error not in ("", "[]") else f"it gave {given}"
                raise OpenVSwitchError(f"Open vSwitch did not give port {name} the number {port}: {reason}")

    def with_controller(self) -> set[str]:
        """Ids of the switches that are connected to a controller."""
        found: set[str] = set()
        bare = ("--format=csv", "--no-headings")
        for number in range(self._instances):
            bridges = self._vsctl(number, *bare, "--columns=name,controller", "list", "Bridge")
            states = self._vsctl(number, *bare, "--columns=_uuid,is_connected", "list", "Controller")
            connected = {row[0] for row in csv.reader(io.StringIO(states)) if row and row[-1] == "true"}
            found.update(row[0] for row in csv.reader(io.StringIO(bridges)) if row and row[-1].strip("[]") in connected)
        return found

    def ofctl(self, *words: str) -> str:
        """Run ovs-ofctl (OpenFlow 1.3); its output. Raises OpenVSwitchError with its message."""
        return self._run(["ovs-ofctl", "-O", "OpenFlow13", *words])

    def trace(self, switch_id: str, flow: str) -> str:
        """What the switch would do with a packet, as ``ofproto/trace`` tells; raises OpenVSwitchError."""
        target = list(self.switch_sockets().values())[self._instance_of[switch_id]]
        return self._run(["ovs-appctl", "-t", str(target), "ofproto/trace", switch_id, flow])

    def alive(self) -> bool:
        """Whether all daemons still run."""
        running = [*self._servers, *self._switches]
        return len(running) == 2 * self._instances and all(process.poll() is None for process in running)

    def switch_sockets(self) -> dict[int, Path]:
        """Control sockets of the switch daemons, by process id."""
        return {process.pid: self.directory / f"ovs-vswitchd.{process.pid}.ctl" for process in self._switches}

    def stop(self) -> None:
        """End all daemons; safe to call twice.

        They are killed: an orderly end would take bridge after bridge apart, and nothing of them is kept anyway.
        """
        end([*self._switches, *self._servers])
        self._switches.clear()
        self._servers.clear()

    def _database(self, number: int) -> str:
        return f"unix:{self.directory}/{_socket_name(number)}"

    def _vsctl(self, number: int, *words: str) -> str:
        return self._run(["ovs-vsctl", f"--db={self._database(number)}", *words])

    def _run(self, command: list[str]) -> str:
        """Output of a command; raises OpenVSwitchError if it fails, or as soon as a daemon it may wait for has died."""
        environment = {**os.environ, **self.environment}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            while True:
                try:
                    output, errors = process.communicate(timeout=DEATH_CHECK_S)
                    break
                except subprocess.TimeoutExpired:
                    for number, switch in enumerate(self._switches):
                        if switch.poll() is not None:
                            process.kill()
                            name = f"ovs-vswitchd{number}"
                            raise OpenVSwitchError(f"{name} did not start: {self._last_words(name)}") from None
        if process.returncode != 0:
            message = (errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
            _check_room(message, f"run {command[0]}")
            raise OpenVSwitchError(f"{command[0]} failed: {message}")
        return output

    def _spawn(
        self, name: str, command: list[str], settings: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with open(self.directory / f"{name}.log", "wb") as log:
            return subprocess.Popen(
                [*command, "--no-chdir", f"--pidfile={self.directory}/{name}.pid", "-vconsole:warn"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment, **(settings or {})},
                preexec_fn=die_with_parent,
            )

    def _wait_for_socket(
        self, path: Path, process: subprocess.Popen[bytes], name: str, timeout_s: float = 10.0
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while process.poll() is None and time.monotonic() < deadline:
            with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
                probe.connect(str(path))
                return
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.005)
        raise OpenVSwitchError(f"{name} did not start: {self._last_words(name)}")

    def _last_words(self, name: str) -> str:
        log = self.directory / f"{name}.log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        text = lines[-1] if lines else "it left no message"
        _check_room(text, f"start {name}")
        return f"{text} (log: {log})"


def _socket_name(number: int) -> str:
    """The first database has the name that Open vSwitch's programs look for by themselves."""
    return "db.sock" if number == 0 else f"db{number}.sock"


def _check_room(message: str, what: str) -> None:
    """Raise CapacityError if a program's message says that it ran out of something while it should ``what``."""
    for number in (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN):
        if os.strerror(number) in message:
            raise out_of_room(OSError(number, message), what)
