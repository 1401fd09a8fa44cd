"""A private Open vSwitch: one ovsdb-server and one ovs-vswitchd with a run directory of their own.

It shares nothing with an Open vSwitch that the machine may run. Bridges are made in one transaction.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from emulator.errors import CapacityError, MissingToolError, OpenVSwitchError
from emulator.kernel import die_with_parent
from emulator.names import interface_name
from topologies.model import Fabric

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
TOOLS = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
MAX_BACKOFF_MS = 1000
INACTIVITY_PROBE_MS = 5000


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


class OpenVSwitch:
    """One private pair of ovsdb-server and ovs-vswitchd in the calling process's network namespace."""

    def __init__(self, directory: Path, kernel_datapath: bool) -> None:
        self.directory = directory
        self.kernel_datapath = kernel_datapath
        self.version = ""
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def datapath_type(self) -> str:
        """Open vSwitch's name of the datapath in use."""
        return "system" if self.kernel_datapath else "netdev"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make Open vSwitch's programs talk to this pair and to no other."""
        directory = str(self.directory)
        return {"OVS_RUNDIR": directory, "OVS_LOGDIR": directory, "OVS_DBDIR": directory, "OVS_SYSCONFDIR": directory}

    @property
    def database(self) -> str:
        """Address of the database."""
        return f"unix:{self.directory}/db.sock"

    def start(self) -> None:
        """Start both daemons and wait until they answer; raises OpenVSwitchError with the log's last line."""
        check_tools()
        database = self.directory / "conf.db"
        self._run(["ovsdb-tool", "create", str(database), str(SCHEMA)])
        self._spawn(["ovsdb-server", str(database), f"--remote=p{self.database}"], "ovsdb-server")
        self._wait_for_socket(self.directory / "db.sock", "ovsdb-server")
        settings = ["other_config:flow-restore-wait=false"]
        if not self.kernel_datapath:
            # Without it TCP between hosts hangs (ping works), and every packet is a trip of its own.
            settings.append("other_config:userspace-tso-enable=true")
        self.vsctl("--no-wait", "--", "init", "--", "set", "Open_vSwitch", ".", *settings)
        self._spawn(["ovs-vswitchd", self.database], "ovs-vswitchd", GLIBC_TUNABLES="glibc.malloc.tcache_count=127")
        self.version = self._run(["ovs-vswitchd", "--version"]).split()[3]

    def create_bridges(self, fabric: Fabric, controller: str) -> None:
        """Make all switches of ``fabric`` with their ports in one transaction, then check the port numbers.

        ``controller`` is an OpenFlow target such as ``tcp:127.0.0.1:6653``.
        """
        wanted: dict[str, int] = {}
        words: list[str] = []
        ports: dict[str, list[tuple[str, int]]] = {switch.id: [] for switch in fabric.switches}
        for switch_id, port in sorted(fabric.link_by_port):
            name = interface_name(switch_id, port)
            ports[switch_id].append((name, port))
            wanted[name] = port
        for switch in fabric.switches:
            bridge = switch.id
            words += ["--", "add-br", bridge, "--", "set", "Bridge", bridge, "fail_mode=secure",
                      f"datapath_type={self.datapath_type}", "protocols=OpenFlow13",
                      f"other_config:datapath-id={switch.dpid:016x}", "other_config:disable-in-band=true",
                      f"other_config:dp-desc={bridge}"]  # fmt: skip
            for name, port in ports[bridge]:
                words += ["--", "add-port", bridge, name, "--", "set", "Interface", name, f"ofport_request={port}"]
            words += ["--", "set-controller", bridge, controller]
        self.vsctl("--timeout=60", *words)
        words = []
        for switch in fabric.switches:
            words += ["--", "set", "Controller", switch.id, f"max_backoff={MAX_BACKOFF_MS}",
                      f"inactivity_probe={INACTIVITY_PROBE_MS}"]  # fmt: skip
        self.vsctl("--timeout=60", *words)
        self._check_ports(wanted)

    def _check_ports(self, wanted: dict[str, int]) -> None:
        """A port number is only a request to Open vSwitch, so compare with what it gave."""
        table = self.vsctl("--format=csv", "--columns=name,ofport,error", "list", "Interface")
        rows = {row[0]: (row[1], row[2]) for row in csv.reader(io.StringIO(table)) if len(row) == 3}
        for name, port in wanted.items():
            number, error = rows.get(name, ("none", ""))
            if number != str(port):
                reason = error if error not in ("", "[]") else f"it gave {number}"
                raise OpenVSwitchError(f"Open vSwitch did not give port {name} the number {port}: {reason}")

    def vsctl(self, *words: str) -> str:
        """Run ovs-vsctl on this database; its output. Raises OpenVSwitchError with its message."""
        return self._run(["ovs-vsctl", f"--db={self.database}", *words])

    def ofctl(self, *words: str) -> str:
        """Run ovs-ofctl (OpenFlow 1.3); its output. Raises OpenVSwitchError with its message."""
        return self._run(["ovs-ofctl", "-O", "OpenFlow13", *words])

    def appctl(self, *words: str) -> str:
        """Run ovs-appctl on the switch daemon; its output. Raises OpenVSwitchError with its message."""
        return self._run(["ovs-appctl", "-t", "ovs-vswitchd", *words])

    def alive(self) -> bool:
        """Whether both daemons still run."""
        return len(self._processes) == 2 and all(process.poll() is None for process in self._processes)

    def pids(self) -> list[int]:
        """Process ids of the daemons."""
        return [process.pid for process in self._processes]

    def stop(self) -> None:
        """End both daemons; safe to call twice.

        They are killed: an orderly end would take bridge after bridge apart, and nothing of them is kept anyway.
        """
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._processes.clear()

    def _run(self, command: list[str]) -> str:
        environment = {**os.environ, **self.environment}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode != 0:
            message = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise OpenVSwitchError(f"{command[0]} failed: {message[-1]}")
        return done.stdout

    def _spawn(self, command: list[str], name: str, **variables: str) -> None:
        with open(self.directory / f"{name}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [*command, "--no-chdir", f"--pidfile={self.directory}/{name}.pid", "-vconsole:warn"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **self.environment, **variables},
                    preexec_fn=die_with_parent,
                )
            )

    def _wait_for_socket(self, path: Path, name: str, timeout_s: float = 10.0) -> None:
        deadline = time.monotonic() + timeout_s
        process = self._processes[-1]
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
        if "No space left" in text:
            raise CapacityError(f"{name} did not start, the disk is full: free some space in {self.directory.parent}")
        return f"{text} (log: {log})"
