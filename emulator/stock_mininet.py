"""Switch, link and controller classes for stock Mininet's ``mn`` command (see :mod:`topologies.mn`).

Runs under Mininet's own interpreter, so nothing here needs a package that Mininet does not bring. The first of these
classes to be used moves ``mn`` into a network namespace of its own: names, ports and Open vSwitch are private, and all
ends with the process. Building is Mininet's own; :mod:`emulator.manager` is the fast way.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mininet.link import Intf, Link
from mininet.net import Mininet
from mininet.node import Controller, Node, OVSSwitch

from emulator import machine_settings
from emulator.controller_process import ControllerProcess
from emulator.environments import PROJECT_ROOT, interpreter
from emulator.errors import MissingToolError, ShapingError
from emulator.host_settings import HOST_SYSCTLS
from emulator.kernel import CLONE_NEWNET, open_network_namespace, raise_open_files_limit, unshare
from emulator.openvswitch import OpenVSwitch, kernel_datapath_available
from emulator.shape import Shape, shape, tc_batch
from emulator.tc import run_batch
from topologies.errors import FabricError
from topologies.model import Fabric

OPENFLOW_PORT = 6653
READY_TIMEOUT_S = 60.0


class _World:
    """What the classes of one ``mn`` process share: its namespace, its Open vSwitch, its controller and fabric."""

    def __init__(self) -> None:
        self.fabric: Fabric | None = None
        self.controller: ControllerProcess | None = None
        self._ovs: OpenVSwitch | None = None
        self._directory = Path()
        self._raised = ExitStack()

    @property
    def kernel_datapath(self) -> bool:
        """Whether the switches use the kernel's datapath."""
        return self._ovs is not None and self._ovs.kernel_datapath

    def enter(self) -> None:
        """Move this process into a namespace of its own and start Open vSwitch there, once."""
        if self._ovs is not None:
            return
        machine_namespace = open_network_namespace()
        self._raised.enter_context(machine_settings.raised(machine_namespace))
        unshare(CLONE_NEWNET)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self._directory = Path(tempfile.mkdtemp(prefix="railbed-mn-"))
        atexit.register(self.leave)
        self._ovs = OpenVSwitch(self._directory, kernel_datapath_available(), instances=1)
        self._ovs.start()
        os.environ.update(self._ovs.environment)

    def start_controller(self) -> None:
        """Start Railbed's controller for the declared fabric and wait until it listens."""
        if self.fabric is None:
            raise FabricError(
                "the controller 'railbed' needs one of Railbed's topologies, for example --topo rail_only"
            )
        python = interpreter(".venv")
        if not python.exists():
            raise MissingToolError(f"Railbed's environment is missing: run {PROJECT_ROOT}/railbed setup once")
        self.controller = ControllerProcess(self.fabric.spec, self._directory, port=OPENFLOW_PORT, python=str(python))
        self.controller.wait_for(
            lambda event: event["event"] == "listening", READY_TIMEOUT_S, "the controller does not listen"
        )

    def await_rules(self) -> None:
        """Wait until every switch has its rules, and let the machine have its settings back."""
        if self.controller is not None:
            self.controller.wait_for(
                lambda event: event["event"] == "ready", READY_TIMEOUT_S, "not every switch has its rules"
            )
        self._raised.close()

    def leave(self) -> None:
        """End Open vSwitch and the controller; the namespace ends with this process."""
        if self.controller is not None:
            self.controller.stop()
        if self._ovs is not None:
            self._ovs.stop()
        self._raised.close()
        shutil.rmtree(self._directory, ignore_errors=True)


_world = _World()

# Mininet's own initialisation would raise limits of the whole machine for good; here only this process's are raised.
Mininet.inited = True
raise_open_files_limit()


def declare(fabric: Fabric) -> None:
    """Say which fabric this ``mn`` process is about to build."""
    _world.fabric = fabric


class RailbedIntf(Intf):  # type: ignore[misc]
    """One end of a link; ``rate_mbps`` None leaves it unshaped."""

    def config(self, rate_mbps: float | None = None, **params: Any) -> dict[str, Any]:
        """Remember the shape; it can only be set once the interface is in its bridge."""
        self.shape: Shape | None = None if rate_mbps is None else shape(rate_mbps)
        result: dict[str, Any] = super().config(**params)
        return result


class RailbedLink(Link):  # type: ignore[misc]
    """A veth pair whose ends are shaped to ``rate_mbps`` by the switches; hosts get Railbed's TCP settings."""

    def __init__(self, node1: Node, node2: Node, **params: Any) -> None:
        params["intf"] = RailbedIntf
        super().__init__(node1, node2, **params)
        for node in (node1, node2):
            if not isinstance(node, OVSSwitch):
                # One command per host: a host has one link.
                node.cmd("; ".join(f"echo {value} > /proc/sys/{name}" for name, value in HOST_SYSCTLS.items()))

    def stop(self) -> None:
        """Nothing to delete: the pair ends with the namespace."""


class RailbedSwitch(OVSSwitch):  # type: ignore[misc]
    """An Open vSwitch bridge of the private instance, speaking OpenFlow 1.3."""

    def __init__(self, name: str, **params: Any) -> None:
        params.update(
            datapath="kernel" if _world.kernel_datapath else "user", protocols="OpenFlow13", failMode="secure"
        )
        super().__init__(name, **params)

    @classmethod
    def setup(cls) -> None:
        """Enter the private namespace and start Open vSwitch there."""
        _world.enter()
        super().setup()

    @classmethod
    def batchStartup(cls, switches: Sequence[RailbedSwitch], **params: Any) -> Sequence[RailbedSwitch]:  # noqa: N802
        """Make all bridges, shape their ports, wait for the rules."""
        started: Sequence[RailbedSwitch] = super().batchStartup(switches, **params)
        shapes = {
            intf.name: intf.shape
            for switch in switches
            for intf in switch.intfList()
            if isinstance(intf, RailbedIntf) and intf.shape is not None
        }
        if shapes:
            complaint = run_batch(tc_batch(shapes))
            if complaint:
                raise ShapingError(f"the links cannot be shaped: {complaint}")
        _world.await_rules()
        return started


class RailbedController(Controller):  # type: ignore[misc]
    """Railbed's controller, in Railbed's environment."""

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name, command="", port=OPENFLOW_PORT, ip="127.0.0.1", **params)

    @classmethod
    def setup(cls) -> None:
        """Enter the private namespace: the controller must be where the switches are."""
        _world.enter()

    def checkListening(self) -> None:  # noqa: N802 - Mininet's name
        """The port is private to the namespace, so nobody can hold it."""

    def start(self) -> None:
        """Start the controller process."""
        _world.start_controller()

    def stop(self, *_args: Any, **_params: Any) -> None:
        """End the controller process."""
        if _world.controller is not None:
            _world.controller.stop()
        super(Controller, self).stop()
