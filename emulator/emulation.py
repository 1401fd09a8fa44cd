"""One live fabric: brought up stage by stage, broken and mended, measured, taken down.

Runs inside the fabric's own namespaces (:mod:`emulator.daemon` makes them); everything it starts is its child.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from mininet.net import Mininet

from controller.placement import Placement
from controller.policy import RoutingPolicy, relay_named
from emulator import iperf3, machine_settings
from emulator.controller_process import ControllerProcess
from emulator.devices import (
    Devices,
    create_devices,
    shape_links,
)
from emulator.errors import ControllerError, PortTakenError
from emulator.feed import Feed
from emulator.foreign_controller import AbsentController, ControllerKind, Relay, chosen_controller
from emulator.kernel import raise_open_files_limit
from emulator.link_control import LinkControl
from emulator.load import LoadWatch
from emulator.mininet_net import mininet_view, run_line
from emulator.mystery_control import MysteryControl
from emulator.openvswitch import OpenVSwitch, instances_for, kernel_datapath_available
from emulator.rundir import RunDir
from emulator.selftest import all_pairs, check_reachability, run_self_test
from emulator.steady import run_steady_flows
from topologies.builders import build
from topologies.model import FabricSpec
from topologies.scale import Scale, check_scale

Progress = Callable[[str], None]

CONTROLLER_TIMEOUT_S = 30.0
SELF_TEST_TIMEOUT_S = 10.0
REPAIR_TIMEOUT_S = 30.0
FOREIGN_REPAIR_TIMEOUT_S = 5.0


class Emulation:
    """A fabric on this machine. ``machine_namespace`` is a descriptor of the machine's own network namespace."""

    def __init__(
        self,
        run_dir: RunDir,
        spec: FabricSpec,
        scale: Scale,
        machine_namespace: int,
        *,
        framework: str | None = None,
        openflow_port: int = 6653,
        seed: int = 0,
        relay: str = "source",
        local_repair: bool = True,
        placement: Placement | None = None,
        controller: str | None = None,
        bfd: bool = False,
    ) -> None:
        self.choice = chosen_controller(controller)
        self.bfd = bfd
        self.fabric = build(spec)
        check_scale(self.fabric, scale)
        self.scale = scale
        self.policy = RoutingPolicy(relay_named(relay), seed, local_repair, placement)
        self.self_test = ""
        self.stages_s: dict[str, float] = {}
        self.feed = Feed()
        self.run_dir = run_dir
        self._framework = framework
        self._port = openflow_port
        self._machine_namespace = machine_namespace
        self.links = LinkControl(self)
        self.mystery = MysteryControl(self)
        self._devices: Devices | None = None
        self._ovs: OpenVSwitch | None = None
        self._controller: ControllerProcess | AbsentController | None = None
        self._net: Mininet | None = None

    @property
    def net(self) -> Mininet:
        """The fabric as a Mininet network; only after :meth:`bring_up`."""
        assert self._net is not None
        return self._net

    @property
    def devices(self) -> Devices:
        """The fabric's devices; only after :meth:`bring_up`."""
        assert self._devices is not None
        return self._devices

    @property
    def ovs(self) -> OpenVSwitch:
        """The fabric's Open vSwitch; only after :meth:`bring_up`."""
        assert self._ovs is not None
        return self._ovs

    @property
    def controller(self) -> ControllerProcess | AbsentController:
        """The fabric's controller; only after :meth:`bring_up`."""
        assert self._controller is not None
        return self._controller

    def bring_up(self, progress: Progress) -> None:
        """Build, connect, route, shape and self-test the fabric; raises an EmulatorError for whatever fails."""
        raise_open_files_limit()
        self._check_port_free()
        with ExitStack() as stack:
            stack.enter_context(machine_settings.raised(self._machine_namespace))
            progress("starting the controller")
            self._controller = self._start_controller()
            kernel_datapath = kernel_datapath_available()
            self._ovs = OpenVSwitch(self.run_dir.ovs_path, kernel_datapath, instances_for(kernel_datapath))
            self._timed("devices", progress, "making namespaces and links", self._create_devices)
            self._timed("open vswitch", progress, "starting Open vSwitch", self._ovs.start)
            self._timed("controller", progress, "waiting for the controller to listen", self._await_listening)
            self._timed("bridges", progress, "making the switches", self._create_bridges)
            self._timed("shaping", progress, "shaping the links and reading it back", self._shape)
            self._timed("rules", progress, "waiting for every switch to have its rules", self._await_ready)
            self._timed("self-test", progress, "testing every pair", self._test)
        os.environ.update(self._ovs.environment)  # for what is typed into Mininet's shells
        self._net = mininet_view(self.fabric, self.devices)

    def _start_controller(self) -> ControllerProcess | AbsentController:
        choice = self.choice
        if choice.kind in (ControllerKind.NONE, ControllerKind.ADDRESS):
            relay = None
            if choice.kind is ControllerKind.ADDRESS:
                relay = Relay(self._port, choice.address, self._machine_namespace)
            return AbsentController(lambda: self.ovs.with_controller(), relay)
        return ControllerProcess(
            self.fabric.spec,
            self.run_dir.path,
            port=self._port,
            framework=self._framework,
            policy=self.policy,
            guest=choice.text if choice.kind is ControllerKind.FILE else None,
        )

    def start_controller_again(self) -> None:
        """Start a controller in the place of one that has ended, and wait until every switch is as it should be."""
        started = threading.Event()

        def keep() -> None:
            # The kernel ends the controller with the thread that started it, so this one stays.
            controller = self._controller = self._start_controller()
            started.set()
            if isinstance(controller, ControllerProcess):
                controller.wait()

        threading.Thread(target=keep, name="controller-keeper", daemon=True).start()
        if not started.wait(CONTROLLER_TIMEOUT_S):
            raise ControllerError(f"no controller could be started again within {CONTROLLER_TIMEOUT_S:g} s")
        self._await_listening()
        self._await_ready()
        self.links.drain_again()

    def _timed(self, stage: str, progress: Progress, message: str, action: Callable[[], None]) -> None:
        progress(message)
        started_s = time.monotonic()
        action()
        self.stages_s[stage] = time.monotonic() - started_s

    def _check_port_free(self) -> None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self._port))
            except OSError as error:
                raise PortTakenError(f"OpenFlow port {self._port} cannot be used in the fabric: {error}") from error

    def _create_devices(self) -> None:
        self._devices = create_devices(self.fabric, self.scale)

    def _await_listening(self) -> None:
        if isinstance(self.controller, AbsentController):
            return
        self.controller.wait_for(
            lambda event: event["event"] == "listening", CONTROLLER_TIMEOUT_S, "the controller does not listen"
        )

    def _create_bridges(self) -> None:
        none = self.choice.kind is ControllerKind.NONE
        self.ovs.create_bridges(self.fabric, None if none else f"tcp:127.0.0.1:{self._port}", self.bfd)

    def _shape(self) -> None:
        shape_links(self.devices, self.links.shapes)

    def _await_ready(self) -> None:
        if self.choice.foreign:
            self._await_connected()
            return
        try:
            self.controller.wait_for(
                lambda event: event["event"] == "ready", CONTROLLER_TIMEOUT_S, "not every switch has its rules"
            )
        except ControllerError as error:
            missing = {switch.id for switch in self.fabric.switches} - self.controller.switches_connected()
            if missing:
                raise ControllerError(f"{error}; not connected: {', '.join(sorted(missing)[:8])}") from error
            raise

    def _await_connected(self) -> None:
        """Wait until a foreign controller has every switch; what it does with them is its own business."""
        if self.choice.kind is ControllerKind.NONE:
            return
        deadline = time.monotonic() + CONTROLLER_TIMEOUT_S
        pause = threading.Event()
        everyone = {switch.id for switch in self.fabric.switches}
        while missing := everyone - self.ovs.with_controller():
            if isinstance(self.controller, ControllerProcess):
                self.controller.check_alive()
            if time.monotonic() > deadline:
                raise ControllerError(
                    f"the controller has not taken {len(missing)} of {len(everyone)} switches within "
                    f"{CONTROLLER_TIMEOUT_S:g} s: {', '.join(sorted(missing)[:8])}"
                )
            pause.wait(0.1)

    def _test(self) -> None:
        if self.choice.foreign:
            timeout_s = 0.5 if self.choice.kind is ControllerKind.NONE else SELF_TEST_TIMEOUT_S
            outcome = check_reachability(self.devices.namespaces, all_pairs(self.fabric), timeout_s)
            self.self_test = f"{outcome.reached} of {outcome.tested} ordered pairs reach each other"
            return
        self.self_test = run_self_test(self.fabric, self.devices.namespaces, SELF_TEST_TIMEOUT_S)

    def status(self) -> dict[str, Any]:
        """The fabric's state as read back just now; JSON-ready."""
        return {
            "gpus": len(self.fabric.gpus),
            "switches": len(self.fabric.switches),
            "switches_connected": len(self.controller.switches_connected()),
            "links": len(self.links.shapes) // 2,
            "links_down": self.links.links_down(),
            "links_drained": sorted(self.links.drained),
            "datapath": "kernel" if self.ovs.kernel_datapath else "userspace",
            "open_vswitch": self.ovs.version,
            "controller": "running" if self.controller.alive() else "ended",
            "controller_kind": self.choice.kind.value,
            "seed": self.policy.seed,
            "relay": self.policy.relay.value,
            "local_repair": self.policy.local_repair,
            "placement": self.policy.placement.to_dict() if self.policy.placement is not None else None,
            "bfd": self.bfd,
            "self_test": self.self_test,
            "stages_s": self.stages_s,
        }

    def provenance(self) -> dict[str, str]:
        """Versions of what the fabric runs on."""
        framework = next(
            (event.get("framework", "") for event in self.controller.events if event["event"] == "listening"), ""
        )
        return {
            "kernel": os.uname().release,
            "open_vswitch": self.ovs.version,
            "datapath": "kernel" if self.ovs.kernel_datapath else "userspace",
            "controller_framework": framework,
            "iperf3": iperf3.version(),
        }

    def reach_all(self, timeout_s: float = 5.0) -> dict[str, Any]:
        """Test every ordered pair with a datagram: how many were tested, and which did not get through."""
        outcome = check_reachability(self.devices.namespaces, all_pairs(self.fabric), timeout_s)
        return {
            "tested": outcome.tested,
            "reached": outcome.reached,
            "unreachable": [[src.id, dst.id] for src, dst in outcome.unreachable],
        }

    def watch_load(self, impaired: Collection[str] = ()) -> LoadWatch:
        """Start to watch whether the machine keeps up; ``impaired`` names interfaces without a rate of their own."""
        return LoadWatch(self.ovs.switch_sockets(), self.links.shapes, impaired)

    def steady(self, pairs: Sequence[tuple[str, str]], window_s: float, cancelled: threading.Event) -> dict[str, Any]:
        """Payload rate in Mbit/s of one long flow per pair of GPU ids, all at once, and the load meanwhile."""
        named = [(self.fabric.gpu(src), self.fabric.gpu(dst)) for src, dst in pairs]
        watch = self.watch_load()
        try:
            flows = run_steady_flows(self.devices.namespaces, named, window_s, self.run_dir.path, cancelled)
        finally:
            load = watch.stop()
        return {
            "rates_mbps": [flow.rate_mbps for flow in flows],
            "switch_cores": load.switch_cores,
            "switch_wait_share": load.switch_wait_share,
            "machine_share": load.machine_share,
            "loop_s": load.loop_s,
            "saturated_share": load.queues.saturated_share,
            "dropped_packets": load.queues.dropped_packets,
            "overload": load.overload,
        }

    def mininet_command(self, line: str) -> str:
        """What Mininet's command line prints for one line, such as ``d0r0 ping -c1 d1r1`` or ``nodes``."""
        return run_line(self.net, line)

    def shut_down(self) -> None:
        """End everything this object started; safe at any stage of coming up, and twice."""
        self.links.flaps.stop_all()
        if self._net is not None:
            for node in self._net.values():
                node.terminate()
            self._net = None
        for part in (self._controller, self._ovs, self._devices):
            with suppress(OSError):
                if isinstance(part, Devices):
                    part.close()
                elif part is not None:
                    part.stop()
        self._devices = None
