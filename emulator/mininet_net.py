"""The running fabric through Mininet's API: hosts, switches and links as Mininet objects, shells started on demand.

Stock Mininet starts a shell per node and several processes per link. Here the devices exist already
(:mod:`emulator.devices`); the objects only describe them, and a node gets its shell when somebody first asks for it.
"""

from __future__ import annotations

import io
import logging
import os
import subprocess
import threading
from collections.abc import Callable
from typing import Any

from mininet.cli import CLI
from mininet.link import Intf, Link
from mininet.log import OUTPUT, lg
from mininet.net import Mininet
from mininet.node import Host, OVSSwitch

from emulator.devices import Devices
from emulator.names import HOST_INTERFACE, interface_name
from topologies.addresses import NETWORK_PREFIX_BITS, ipv4, mac
from topologies.model import Fabric, LinkKind

_LINE_LOCK = threading.Lock()


class ShellOnDemand:
    """Mixin for Mininet nodes: the shell (and with it a process id) appears when it is first used."""

    _shell: Any = None
    _pid: int | None = None
    _closing = False
    _starting = False

    @property
    def shell(self) -> Any:
        """The shell; started when it is first asked for."""
        if self._shell is None and not self._closing and not self._starting:
            self._start_shell()
        return self._shell

    @shell.setter
    def shell(self, value: Any) -> None:
        self._shell = value

    @property
    def pid(self) -> int | None:
        """Process id of the shell."""
        return self.shell.pid if self.shell else self._pid

    @pid.setter
    def pid(self, value: int | None) -> None:
        self._pid = value

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802 - Mininet's name
        """Called by Mininet when the node is made: too early for a shell."""

    def _start_shell(self) -> None:
        self._starting = True
        try:
            super().startShell(mnopts="-cd")  # type: ignore[misc]
        finally:
            self._starting = False

    def terminate(self) -> None:
        """End the shell, if there is one."""
        self._closing = True
        super().terminate()  # type: ignore[misc]


class GpuHost(ShellOnDemand, Host):  # type: ignore[misc]
    """A GPU's host in a network namespace that exists already."""

    def __init__(self, name: str, namespace_fd: int, **params: Any) -> None:
        self.namespace_fd = namespace_fd
        self._starting = True
        super().__init__(name, **params)
        self._starting = False

    def _start_shell(self) -> None:
        # Mininet would ask mnexec for a new namespace; ours is entered by _popen.
        self.inNamespace = False
        try:
            super()._start_shell()
        finally:
            self.inNamespace = True

    def _popen(self, cmd: list[str], **params: Any) -> subprocess.Popen[bytes]:
        if cmd[:1] == ["mnexec"] and self._starting:
            cmd = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self.namespace_fd}", *cmd]
        popen: subprocess.Popen[bytes] = super()._popen(cmd, **params)
        return popen


class FabricSwitch(ShellOnDemand, OVSSwitch):  # type: ignore[misc]
    """A switch whose bridge exists already in the fabric's private Open vSwitch."""

    OVSVersion = "3"

    def __init__(self, name: str, **params: Any) -> None:
        self._starting = True
        super().__init__(name, **params)
        self._starting = False

    @classmethod
    def setup(cls) -> None:
        """The fabric has its own Open vSwitch running; there is nothing to look for."""

    def start(self, controllers: list[Any]) -> None:
        """The bridge was made with all others in one transaction."""

    def dpctl(self, *args: str) -> str:
        """Run ovs-ofctl on this switch, speaking its OpenFlow version."""
        result: str = self.cmd("ovs-ofctl", "-O", "OpenFlow13", args[0], self, *args[1:])
        return result


class _ExistingIntf(Intf):  # type: ignore[misc]
    """An interface that is up and configured already."""

    def config(self, **_params: Any) -> dict[str, Any]:
        """Nothing to set."""
        return {}


class _ExistingLink(Link):  # type: ignore[misc]
    """A veth pair that exists already."""

    @classmethod
    def makeIntfPair(cls, *args: Any, **kwargs: Any) -> None:  # noqa: N802 - Mininet's name
        """The pair exists."""


class _OneLine(CLI):  # type: ignore[misc]
    """Mininet's command line, fed with one line instead of a terminal."""

    def run(self) -> None:
        """Called by Mininet at the end of construction; there is no terminal to read from."""


def run_line(net: Mininet, line: str) -> str:
    """What Mininet's command line prints for ``line``: its commands, and ``NODE COMMAND`` for every node.

    Names of hosts in the command are replaced by their addresses, as Mininet does.
    """
    printed = io.StringIO()
    handler = logging.StreamHandler(printed)
    handler.terminator = ""
    handler.setFormatter(logging.Formatter("%(message)s"))
    with _LINE_LOCK, open(os.devnull) as nothing:
        kept = lg.handlers, lg.level
        lg.handlers, lg.level = [handler], OUTPUT
        try:
            command_line = _OneLine(net, stdin=nothing, stdout=printed)
            words = line.split(None, 1)
            if len(words) == 2 and words[0] in net:
                node = net[words[0]]
                printed.write(node.cmd(addressed(net, words[1])) or "")
            else:
                command_line.onecmd(line)
        finally:
            lg.handlers, lg.level = kept
    return printed.getvalue()


def addressed(net: Mininet, command: str) -> str:
    """``command`` with the names of hosts replaced by their addresses, as Mininet does."""
    return " ".join(net[word].IP() if word in net and net[word] in net.hosts else word for word in command.split(" "))


def mininet_view(fabric: Fabric, devices: Devices) -> Mininet:
    """A Mininet object for the running ``fabric`` in its own process."""
    return mininet_of(
        fabric, lambda gpu_id: {"cls": GpuHost, "namespace_fd": devices.namespaces[gpu_id]}, {"cls": FabricSwitch}
    )


def mininet_of(fabric: Fabric, host: Callable[[str], dict[str, Any]], switch: dict[str, Any]) -> Mininet:
    """A Mininet object for a running ``fabric``: its nodes, commands and CLI work; building is left to Railbed.

    ``host`` gives what the host of a GPU is made with, by its id; ``switch`` is what every switch is made with.
    """
    Mininet.inited = True  # its initialisation would raise limits of the whole machine for good
    net = Mininet(build=False, controller=None)
    for gpu in fabric.gpus:
        address = f"{ipv4(gpu.domain, gpu.rail)}/{NETWORK_PREFIX_BITS}"
        net.addHost(gpu.id, ip=address, **host(gpu.id))
    for one in fabric.switches:
        net.addSwitch(one.id, dpid=f"{one.dpid:016x}", protocols="OpenFlow13", **switch)
    for link in fabric.links:
        at_host = link.kind is LinkKind.HOST
        added = net.addLink(
            net[link.a], net[link.b], port1=link.a_port, port2=link.b_port, cls=_ExistingLink, intf=_ExistingIntf,
            intfName1=HOST_INTERFACE if at_host else interface_name(link.a, link.a_port),
            intfName2=interface_name(link.b, link.b_port),
        )  # fmt: skip
        if at_host:
            gpu = fabric.gpu_by_id[link.a]
            added.intf1.ip, added.intf1.prefixLen = ipv4(gpu.domain, gpu.rail), str(NETWORK_PREFIX_BITS)
            added.intf1.mac = mac(gpu.domain, gpu.rail)
    net.built = True
    return net
