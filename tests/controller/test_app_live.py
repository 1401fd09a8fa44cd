"""The controller process against real Open vSwitch bridges, under every framework that is installed.

A private ovsdb-server and ovs-vswitchd run in a network namespace of their own, so nothing here can touch the
machine's network or another Open vSwitch.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.entries import MARK_DSCP, DecTtl, Output, Rule, Stamp, ToGroup, Unmark, Unstamp
from controller.entries import Match as RuleMatch
from controller.repairs import rules_for
from controller.routing import Routes
from tests.controller.fabrics import built
from tests.controller.interpreters import ROOT, interpreter
from topologies.model import Fabric, FabricKind, FabricSpec, Failures, LinkKind

pytestmark = pytest.mark.live

PORT = 6653
DEADLINE_S = 20.0
SPEC = FabricSpec(FabricKind.RAIL_ONLY, 2, 2)


def wait_until(condition: Any, what: str) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"not within {DEADLINE_S:g} s: {what}")


class Switches:
    """The bridges of a fabric in a private Open vSwitch; links between them are veth pairs."""

    def __init__(self, folder: Path, fabric: Fabric) -> None:
        self.folder = folder
        self.fabric = fabric
        self.environment = {**os.environ, **{f"OVS_{name}DIR": str(folder) for name in ("RUN", "LOG", "DB", "SYSCONF")}}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.namespace = self.start("unshare", "--net", "cat", stdin=subprocess.PIPE)
        own = os.stat("/proc/self/ns/net").st_ino
        wait_until(lambda: os.stat(f"/proc/{self.namespace.pid}/ns/net").st_ino != own, "a network namespace")
        self.run("ip", "link", "set", "lo", "up")
        schema = next(path for path in ("/usr/share/openvswitch/vswitch.ovsschema",) if Path(path).exists())
        self.run("ovsdb-tool", "create", str(folder / "conf.db"), schema)
        self.start_inside("ovsdb-server", str(folder / "conf.db"), f"--remote=punix:{folder}/db.sock", "--no-chdir")
        wait_until((folder / "db.sock").exists, "ovsdb-server")
        self.vsctl("--no-wait", "init")
        self.start_inside("ovs-vswitchd", f"unix:{folder}/db.sock", "--no-chdir", "--pidfile")
        arguments: list[str] = []
        for switch in fabric.switches:
            arguments += [
                "--", "add-br", switch.id,
                "--", "set", "bridge", switch.id, "datapath_type=netdev", "fail_mode=secure", "protocols=OpenFlow13",
                f"other-config:datapath-id={switch.dpid:016x}",
                "--", "set-controller", switch.id, f"tcp:127.0.0.1:{PORT}",
                "--", "set", "controller", switch.id, "max_backoff=1000",
            ]  # fmt: skip
        for link in fabric.links:
            if link.kind is LinkKind.HOST:
                name = f"{link.b}-host"
                arguments += ["--", "add-port", link.b, name, "--", "set", "interface", name, "type=internal"]
                arguments += [f"ofport_request={link.b_port}"]
                continue
            ends = (f"{link.a}--{link.b}", f"{link.b}--{link.a}")
            self.run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
            for end in ends:
                self.run("ip", "link", "set", end, "up")
            for here, there in ((link.a, link.b), (link.b, link.a)):
                name = f"{here}--{there}"
                arguments += ["--", "add-port", here, name, "--", "set", "interface", name]
                arguments += [f"ofport_request={link.port(here)}"]
        self.vsctl(*arguments[1:])
        for gpu in fabric.gpus:
            self.run("ip", "link", "set", f"{gpu.switch_id}-host", "up")

    def start(self, *command: str, stdin: int | None = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        log = (self.folder / "processes.log").open("ab")
        process = subprocess.Popen(command, env=self.environment, stdin=stdin, stdout=log, stderr=log)
        log.close()
        self.processes.append(process)
        return process

    def inside(self, *command: str) -> list[str]:
        return ["nsenter", "-t", str(self.namespace.pid), "-n", "--", *command]

    def start_inside(self, *command: str) -> None:
        self.start(*self.inside(*command))

    def run(self, *command: str) -> str:
        result = subprocess.run(
            self.inside(*command), env=self.environment, capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert result.returncode == 0, (command[:4], result.stderr)
        return result.stdout

    def vsctl(self, *arguments: str) -> str:
        return self.run("ovs-vsctl", f"--db=unix:{self.folder}/db.sock", "--timeout=15", *arguments)

    def ofctl(self, command: str, switch_id: str, *arguments: str) -> str:
        bridge = f"unix:{self.folder}/{switch_id}.mgmt"
        return self.run("ovs-ofctl", "-O", "OpenFlow13", command, bridge, *arguments)

    def flows(self) -> set[tuple[str, str]]:
        """(switch, flow as text) of every flow."""
        return {(switch_id, f"{text} actions={actions}") for switch_id, text, actions, _ in self.dump()}

    def dump(self) -> list[tuple[str, str, str, float]]:
        """(switch, priority and match, actions, age in seconds) of every flow."""
        found = []
        for switch in self.fabric.switches:
            for line in self.ofctl("dump-flows", switch.id).splitlines():
                if match := re.search(r"duration=([\d.]+)s.*?(priority=\S+) actions=(\S+)", line):
                    found.append((switch.id, match[2], match[3], float(match[1])))
        return found

    def port(self, link_id: str, state: str) -> None:
        link = self.fabric.link(link_id)
        self.ofctl("mod-port", link.a, str(link.a_port), state)

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
            process.wait(DEADLINE_S)


class Controller:
    """A controller process and the events it has written."""

    def __init__(self, switches: Switches, framework: str, spec_file: Path, *more: str) -> None:
        command = [
            interpreter(framework),
            "-m",
            "controller",
            "--fabric",
            str(spec_file),
            "--listen",
            f"127.0.0.1:{PORT}",
            *more,
        ]
        self.log = switches.folder / "controller.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                switches.inside(*command), cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True,
                env={**os.environ, "RAILBED_FRAMEWORK": framework},
            )  # fmt: skip
        self.events: list[dict[str, Any]] = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def wait_for(self, event: str, after: int = 0, **fields: Any) -> dict[str, Any]:
        def seen() -> dict[str, Any] | None:
            return next(
                (
                    each
                    for each in self.events[after:]
                    if each["event"] == event and all(each[name] == value for name, value in fields.items())
                ),
                None,
            )

        try:
            return wait_until(seen, f"event {event} {fields}")
        except AssertionError as error:
            raise AssertionError(f"{error}; events: {self.events[-10:]}; log: {self.log.read_text()[-3000:]}") from None

    def end(self, kill: bool = False) -> int:
        (self.process.kill if kill else self.process.terminate)()
        code = self.process.wait(DEADLINE_S)
        self.reader.join(DEADLINE_S)
        return code


def settled(controller: Controller, switches: Switches, mark: int, *links_down: str) -> None:
    """Wait until the rules for these links are in force and all others gone, then compare."""
    done = controller.wait_for("settled", mark, links_down=sorted(links_down))
    assert switches.flows() == expected(switches.fabric, *links_down, version=done["version"])


def as_text(rule: Rule) -> str:
    """The rule as ovs-ofctl prints it, written out independently of the code that encodes it."""
    fields = match_as_text(rule)
    if rule.match.arp_op is not None:
        return (
            f"priority={rule.priority},arp,in_port=1,arp_tpa=10.0.0.0/8,arp_op=1 actions="
            "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:02:72:00:00:00:00->eth_src,"
            "move:NXM_OF_ARP_TPA[8..23]->NXM_OF_ETH_SRC[16..31],move:NXM_OF_ARP_TPA[0..7]->NXM_OF_ETH_SRC[0..7],"
            "set_field:2->arp_op,move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],move:NXM_OF_ETH_SRC[]->NXM_NX_ARP_SHA[],"
            "move:NXM_OF_ARP_TPA[]->NXM_NX_REG0[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],"
            "move:NXM_NX_REG0[]->NXM_OF_ARP_SPA[],IN_PORT"
        )
    return f"{fields} actions={','.join(action_as_text(action) for action in rule.actions) or 'drop'}"


def match_as_text(rule: Rule) -> str:
    match: RuleMatch = rule.match
    fields = [f"priority={rule.priority}"]
    if match.eth_type is not None:
        fields.append("ip")
    if match.in_port is not None:
        fields.append(f"in_port={match.in_port}")
    if match.version is not None:
        fields.append(f"dl_src=00:00:00:00:{match.version:02x}:00/00:00:00:00:ff:00")
    for selector, name in ((match.src, "nw_src"), (match.dst, "nw_dst")):
        if selector is not None:
            prefix = {"255.255.255.255": "", "255.255.255.0": "/24", "255.0.0.0": "/8"}
            mask = prefix.get(selector.address_mask, f"/{selector.address_mask}")
            fields.append(f"{name}={selector.address}{mask}")
    if match.marked:
        fields.append(f"nw_tos={MARK_DSCP << 2}")
    return ",".join(fields)


def action_as_text(action: object) -> str:
    if isinstance(action, DecTtl):
        return "dec_ttl"
    if isinstance(action, Output):
        return f"output:{action.port}"
    if isinstance(action, ToGroup):
        return f"group:{action.group_id}"
    if isinstance(action, Stamp):
        return f"load:{action.version:#x}->NXM_OF_ETH_SRC[8..15],resubmit(,0)"
    if isinstance(action, Unstamp):
        return "load:0->NXM_OF_ETH_SRC[8..15]"
    assert isinstance(action, Unmark), action
    return "move:NXM_OF_ETH_DST[8..13]->OXM_OF_IP_DSCP[],load:0->NXM_OF_ETH_DST[8..15]"


def expected(fabric: Fabric, *links_down: str, version: int | None = None) -> set[tuple[str, str]]:
    routes = Routes(fabric, Failures(links=frozenset(links_down)))
    tables = rules_for(routes, version)
    return {(switch_id, as_text(rule)) for switch_id, rules in tables.items() for rule in rules}


@pytest.fixture(params=["os-ken", "ryu"])
def framework(request: pytest.FixtureRequest) -> str:
    interpreter(request.param)
    return str(request.param)


@pytest.fixture(scope="module")
def switches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Switches]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ovs-vswitchd") is None:
        pytest.skip("Open vSwitch is not installed")
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        pytest.skip("the kernel forbids network namespaces")
    started = Switches(tmp_path_factory.mktemp("ovs"), built(SPEC))
    yield started
    started.stop()


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    path = tmp_path / "fabric.json"
    path.write_text(json.dumps(SPEC.to_dict()), encoding="utf-8")
    return path


def test_life_of_a_fabric(switches: Switches, framework: str, spec_file: Path) -> None:
    fabric = switches.fabric
    for switch in fabric.switches:
        switches.ofctl("del-flows", switch.id)
    controller = Controller(switches, framework, spec_file)
    try:
        listening = controller.wait_for("listening")
        assert listening["framework"].startswith(framework)
        assert controller.wait_for("ready")["switches"] == len(fabric.switches)
        assert switches.flows() == expected(fabric)

        mark = len(controller.events)
        switches.port("d0r1-rail1", "down")
        repaired = controller.wait_for("repaired", mark, links_down=["d0r1-rail1"])
        assert 0 <= repaired["elapsed_s"] < DEADLINE_S
        assert controller.wait_for("link-down", mark)["link"] == "d0r1-rail1"
        settled(controller, switches, mark, "d0r1-rail1")

        switches.port("d0r1-nv0", "down")
        controller.wait_for("repaired", mark, links_down=["d0r1-nv0", "d0r1-rail1"])
        assert controller.wait_for("partitioned", mark)["count"] == 6
        settled(controller, switches, mark, "d0r1-nv0", "d0r1-rail1")

        switches.port("d0r1-nv0", "up")
        controller.wait_for("partitioned", mark, count=0)
        switches.port("d0r1-rail1", "up")
        settled(controller, switches, mark)
        # Several messages a change, at one end or both, are one repair each.
        assert [event["event"] for event in controller.events[mark:]].count("repair") == 4

        # A restarted controller adopts what is there, mends what is not, and sees what failed while it was away.
        controller.end(kill=True)
        assert switches.flows() == expected(fabric)
        ages = {flow[:3]: flow[3] for flow in switches.dump()}
        switches.ofctl("add-flow", "s0r0", "priority=7,ip,nw_dst=10.9.9.9,actions=output:2")
        switches.ofctl("del-flows", "nv1", "--strict", "priority=200,ip,nw_dst=10.0.0.1/255.0.0.255")
        switches.port("d1r0-rail0", "down")
        controller = Controller(switches, framework, spec_file)
        controller.wait_for("ready")
        settled(controller, switches, 0, "d1r0-rail0")
        # The next one adopts the version that is in force.
        controller.end(kill=True)
        version = expected(fabric, "d1r0-rail0", version=1)
        assert switches.flows() == version
        controller = Controller(switches, framework, spec_file)
        controller.wait_for("ready")
        settled(controller, switches, 0, "d1r0-rail0")
        assert "repair" not in [event["event"] for event in controller.events]
        mark = len(controller.events)
        switches.port("d1r0-rail0", "up")
        settled(controller, switches, mark)
        for flow in switches.dump():
            if flow[:2] != ("nv1", "priority=200,ip,nw_dst=10.0.0.1/255.0.0.255"):
                assert flow[3] >= ages[flow[:3]], flow

        assert controller.end() == 0
    finally:
        controller.end(kill=True)


def test_a_storm_of_changes_ends_in_the_right_rules(switches: Switches, framework: str, spec_file: Path) -> None:
    """Changes that overtake each other's repairs, without waiting in between."""
    fabric = switches.fabric
    random_source = random.Random(7)
    pool = sorted(link.id for link in fabric.failure_targets())
    down: set[str] = set()
    controller = Controller(switches, framework, spec_file)
    try:
        controller.wait_for("ready")
        for _ in range(25):
            link_id = random_source.choice(pool)
            switches.port(link_id, "up" if link_id in down else "down")
            down ^= {link_id}
        assert down
        settled(controller, switches, 0, *down)
        mark = len(controller.events)
        for link_id in sorted(down):
            switches.port(link_id, "up")
        settled(controller, switches, mark)
        assert controller.end() == 0
    finally:
        controller.end(kill=True)


def test_arp_answer_in_the_switch(switches: Switches, spec_file: Path) -> None:
    controller = Controller(switches, "os-ken", spec_file)
    try:
        controller.wait_for("ready")
        asked = (
            "in_port=1,dl_src=02:72:00:01:00:00,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_spa=10.0.1.0,"
            "arp_tpa=10.0.2.1,arp_sha=02:72:00:01:00:00,arp_tha=00:00:00:00:00:00"
        )
        pid = (switches.folder / "ovs-vswitchd.pid").read_text().strip()
        target = str(switches.folder / f"ovs-vswitchd.{pid}.ctl")
        trace = switches.run("ovs-appctl", "-t", target, "ofproto/trace", "s0r0", asked)
        final = re.search(r"Final flow: (.*)", trace)
        assert final is not None, trace
        for term in ("dl_src=02:72:00:02:00:01", "dl_dst=02:72:00:01:00:00", "arp_op=2", "arp_spa=10.0.2.1",
                     "arp_tpa=10.0.1.0", "arp_sha=02:72:00:02:00:01", "arp_tha=02:72:00:01:00:00"):  # fmt: skip
            assert term in final[1]
        assert "IN_PORT" in trace
    finally:
        controller.end(kill=True)


def test_counters_are_asked_from_the_switch(switches: Switches, framework: str, spec_file: Path) -> None:
    controller = Controller(switches, framework, spec_file, "--northbound", "127.0.0.1:8081")
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8081/counters?switch=s0r0').read().decode())"
    try:
        controller.wait_for("ready")
        found = json.loads(switches.run(sys.executable, "-c", ask))
        assert [port["link"] for port in found["ports"]] == ["d0r0-s0r0", "d0r0-rail0", "d0r0-nv0"]
        assert all(port["tx_packets"] >= 0 for port in found["ports"])
        assert found["dropped_at_second_dead_port_packets"] == 0
    finally:
        controller.end(kill=True)


def test_undeclared_switch_is_reported_and_left_alone(switches: Switches, spec_file: Path) -> None:
    switches.vsctl(
        "add-br", "stranger", "--", "set", "bridge", "stranger", "datapath_type=netdev", "fail_mode=secure",
        "protocols=OpenFlow13", "other-config:datapath-id=00000000000000ff",
        "--", "set-controller", "stranger", f"tcp:127.0.0.1:{PORT}",
        "--", "set", "controller", "stranger", "max_backoff=1000",
    )  # fmt: skip
    controller = Controller(switches, "os-ken", spec_file)
    try:
        controller.wait_for("unknown-switch", dpid=255)
        controller.wait_for("ready")
        assert "priority" not in switches.ofctl("dump-flows", "stranger")
    finally:
        controller.end(kill=True)
        switches.vsctl("del-br", "stranger")


def test_a_switch_that_reconnects_gets_its_rules_again(switches: Switches, framework: str, spec_file: Path) -> None:
    controller = Controller(switches, framework, spec_file)
    try:
        controller.wait_for("ready")
        mark = len(controller.events)
        switches.vsctl("del-controller", "rail0")
        controller.wait_for("switch-lost", mark, switch="rail0")
        switches.ofctl("del-flows", "rail0")
        switches.vsctl("set-controller", "rail0", f"tcp:127.0.0.1:{PORT}")
        controller.wait_for("ready", mark)
        assert switches.flows() == expected(switches.fabric)
    finally:
        controller.end(kill=True)


def test_a_refused_message_ends_the_controller(switches: Switches, spec_file: Path) -> None:
    switches.vsctl("--id=@t", "create", "flow_table", "flow_limit=1", "overflow_policy=refuse",
                   "--", "set", "bridge", "rail1", "flow_tables:0=@t")  # fmt: skip
    switches.ofctl("del-flows", "rail1")
    controller = Controller(switches, "os-ken", spec_file)
    try:
        assert controller.process.wait(DEADLINE_S) == 1
        controller.reader.join(DEADLINE_S)
        assert "rail1 refused" in controller.events[-1]["message"]
    finally:
        controller.end(kill=True)
        switches.vsctl("clear", "bridge", "rail1", "flow_tables")


def test_a_taken_port_is_named(switches: Switches, framework: str, spec_file: Path) -> None:
    first = Controller(switches, framework, spec_file)
    try:
        first.wait_for("listening")
        second = Controller(switches, framework, spec_file)
        assert second.process.wait(DEADLINE_S) == 1
        assert f"port {PORT} is taken by process {first.process.pid}" in second.log.read_text()
        assert second.events == []
    finally:
        first.end(kill=True)
