"""A fabric of OpenFlow switches in memory: takes the very messages that the controller sends, and walks packets.

No root, no Open vSwitch: the messages are parsed from their bytes, refused where a switch would refuse them, and held
in tables with priorities and masks and in groups with watched ports. Links go up and down at will. Tests use it to ask
of thousands of states: does every packet get there, by which way, and does none go round?
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any

from controller import openflow
from controller.entries import ARP_REQUEST, ETH_TYPE_ARP, ETH_TYPE_IPV4, IN_PORT, IP_PROTO_TCP, Group, Rule
from controller.errors import AmbiguousRulesError, BadMessageError
from controller.framework import PROTOCOL
from controller.openflow import ANY, Step
from controller.routing import Hop
from topologies.addresses import ipv4, mac
from topologies.model import HOST_PORT, Fabric, Gpu, LinkKind

FIELDS = (
    "in_port", "eth_type", "eth_src", "eth_dst", "ipv4_src", "ipv4_dst", "ip_dscp", "ip_proto", "tcp_dst", "arp_op",
    "arp_spa", "arp_tpa", "arp_sha", "arp_tha", "reg0", "ttl",
)  # fmt: skip
"""The header fields of a packet, in order; a packet is a list of their values."""

AT = {name: index for index, name in enumerate(FIELDS)}
WIDTH_BITS = {
    "in_port": 32, "eth_type": 16, "eth_src": 48, "eth_dst": 48, "ipv4_src": 32, "ipv4_dst": 32, "ip_dscp": 6,
    "ip_proto": 8, "tcp_dst": 16, "arp_op": 16, "arp_spa": 32, "arp_tpa": 32, "arp_sha": 48, "arp_tha": 48, "reg0": 32,
}  # fmt: skip
FIRST_TTL = 64
MAX_LOOKUPS = 64
MAX_PRIORITY = 0xFFFF

_NEEDS_ETH_TYPE = {
    **dict.fromkeys(("ipv4_src", "ipv4_dst", "ip_dscp", "ip_proto", "tcp_dst"), ETH_TYPE_IPV4),
    **dict.fromkeys(("arp_op", "arp_spa", "arp_tpa", "arp_sha", "arp_tha"), ETH_TYPE_ARP),
}
_MASKABLE = frozenset({"eth_src", "eth_dst", "ipv4_src", "ipv4_dst", "arp_spa", "arp_tpa", "arp_sha", "arp_tha"})

_Shape = tuple[tuple[int, int], ...]
_Values = tuple[int, ...]


class Outcome(str, Enum):
    """How the walk of a packet ended."""

    DELIVERED = "delivered"
    DROPPED = "dropped"
    LOOP = "loop"
    DEAD_LINK = "dead-link"


@dataclass(frozen=True)
class Walk:
    """The way of one packet. ``switch_id`` and ``reason`` say where and why it ended.

    ``turned_back`` tells whether a switch has sent it another way because of a dead port; ``intact`` whether what
    arrived is what was sent.
    """

    outcome: Outcome
    hops: tuple[Hop, ...]
    switch_id: str
    reason: str
    turned_back: bool = False
    intact: bool = True


@dataclass(frozen=True)
class Flow:
    """One flow of a table."""

    priority: int
    shape: _Shape
    values: _Values
    steps: tuple[Step, ...]
    cookie: int


@dataclass(frozen=True)
class _FlowMod:
    delete: bool
    flow: Flow
    fields: tuple[str, ...]


@dataclass(frozen=True)
class _GroupMod:
    command: int
    kind: int
    group_id: int
    buckets: tuple[openflow.BucketSteps, ...]


@dataclass
class _GroupState:
    kind: int
    buckets: tuple[openflow.BucketSteps, ...]
    packets: list[int]


def _number(name: str, value: Any) -> int:
    if isinstance(value, int):
        return value
    if ":" in value:
        return int(value.replace(":", ""), 16)
    if "." in value:
        return int.from_bytes(bytes(int(part) for part in value.split(".")), "big")
    raise BadMessageError(f"field {name} has the value {value!r}, which is no number and no address")


def _match(match: Any) -> tuple[_Shape, _Values, tuple[str, ...]]:
    """(fields with masks, values, names) of a parsed match; raises BadMessageError for one that a switch refuses."""
    terms = []
    eth_type = match.get("eth_type")
    for name, value in match.items():
        if name not in AT or name == "ttl":
            raise BadMessageError(f"match on {name}, which no switch of ours looks at")
        if _NEEDS_ETH_TYPE.get(name, eth_type) != eth_type:
            raise BadMessageError(f"match on {name} without its eth_type {_NEEDS_ETH_TYPE[name]:#06x}")
        if name == "tcp_dst" and match.get("ip_proto") != IP_PROTO_TCP:
            raise BadMessageError("match on tcp_dst without the ip_proto of TCP")
        every = (1 << WIDTH_BITS[name]) - 1
        wanted, mask = value if isinstance(value, tuple) else (value, every)
        wanted, mask = _number(name, wanted), _number(name, mask)
        if mask != every and name not in _MASKABLE:
            raise BadMessageError(f"match on {name} with a mask, which it cannot have")
        if wanted & ~mask:
            raise BadMessageError(f"match on {name} wants bits ({wanted:#x}) that its mask ({mask:#x}) leaves out")
        terms.append((AT[name], mask, wanted, name))
    terms.sort()
    return (
        tuple((index, mask) for index, mask, _, _ in terms),
        tuple(wanted for _, _, wanted, _ in terms),
        tuple(name for _, _, _, name in terms),
    )


def _checked_steps(steps: tuple[Step, ...] | None) -> tuple[Step, ...]:
    if steps is None:
        raise BadMessageError("an action that the controller never uses")
    for step in steps:
        for name in step[1:3] if step[0] == "move" else step[1:2] if step[0] in ("set", "load") else ():
            if name not in WIDTH_BITS:
                raise BadMessageError(f"an action on {name}, which cannot be written")
        if step[0] == "load" and (step[2] + step[3] > WIDTH_BITS[step[1]] or step[4] >> step[3]):
            raise BadMessageError(f"{step[4]:#x} does not fit into {step[3]} bits from bit {step[2]} of {step[1]}")
    return steps


@lru_cache(maxsize=1 << 16)
def _flow_mod(data: bytes) -> _FlowMod:
    ofproto, parser = PROTOCOL.ofproto, PROTOCOL.ofproto_parser
    message = parser.OFPFlowMod.parser(PROTOCOL, 4, ofproto.OFPT_FLOW_MOD, len(data), 0, data)
    shape, values, names = _match(message.match)
    deletes = message.command == ofproto.OFPFC_DELETE_STRICT
    if not deletes and message.command != ofproto.OFPFC_ADD:
        raise BadMessageError(f"flow command {message.command}, where only additions and strict deletions are sent")
    if message.table_id != 0:
        raise BadMessageError(f"table {message.table_id}, where only table 0 is used")
    if message.buffer_id != openflow.NO_BUFFER:
        raise BadMessageError(f"buffer {message.buffer_id}, which does not exist")
    if not 0 <= message.priority <= MAX_PRIORITY:
        raise BadMessageError(f"priority {message.priority}, which is above {MAX_PRIORITY}")
    steps = _checked_steps(openflow.installed_steps(message.instructions))
    return _FlowMod(deletes, Flow(message.priority, shape, values, steps, message.cookie), names)


@lru_cache(maxsize=1 << 16)
def _group_mod(data: bytes) -> _GroupMod:
    command, kind, group_id = struct.unpack_from("!HBxI", data, 8)
    offset = 16
    buckets: list[openflow.BucketSteps] = []
    while offset < len(data):
        bucket = PROTOCOL.ofproto_parser.OFPBucket.parser(data, offset)
        offset += bucket.len
        _, steps = openflow.installed_group(PROTOCOL.ofproto_parser.OFPGroupDescStats(kind, group_id, [bucket]))
        if steps is None:
            raise BadMessageError(f"group {group_id} has an action that the controller never uses")
        _checked_steps(steps[0][2])
        buckets += steps
    return _GroupMod(command, kind, group_id, tuple(buckets))


class FakeSwitch:
    """One switch: a table, groups, and ports that are alive or not. Flows of one priority and shape share a dict."""

    def __init__(self, switch_id: str, ports: Iterable[int]) -> None:
        """A switch with nothing installed."""
        self.switch_id = switch_id
        self.ports = frozenset(ports)
        self.dead_ports: set[int] = set()
        self.groups: dict[int, _GroupState] = {}
        self._tables: dict[int, dict[_Shape, dict[_Values, Flow]]] = {}
        self._priorities: list[int] = []
        self._looked_at: _Shape = ()
        self._known: dict[tuple[int, ...], Flow | None] = {}

    def copy(self) -> FakeSwitch:
        """Another switch that holds the same."""
        other = FakeSwitch(self.switch_id, self.ports)
        other.dead_ports = set(self.dead_ports)
        other.groups = {
            group_id: _GroupState(group.kind, group.buckets, list(group.packets))
            for group_id, group in self.groups.items()
        }
        other._tables = {
            priority: {shape: dict(space) for shape, space in shapes.items()}
            for priority, shapes in self._tables.items()
        }
        other._arrange()
        return other

    def _arrange(self) -> None:
        """Work out in which order to look things up, and which bits of a packet can matter here at all."""
        self._known.clear()
        self._priorities = sorted((priority for priority, shapes in self._tables.items() if shapes), reverse=True)
        masks: dict[int, int] = {}
        for shapes in self._tables.values():
            for shape in shapes:
                for index, mask in shape:
                    masks[index] = masks.get(index, 0) | mask
        self._looked_at = tuple(sorted(masks.items()))

    def apply(self, data: bytes) -> list[int]:
        """Obey all messages in ``data``; returns the transaction ids of its barrier requests.

        Raises BadMessageError for a message that a switch would refuse, or that the controller must never send.
        """
        ofproto = PROTOCOL.ofproto
        barriers = []
        while data:
            version, kind, length, xid = struct.unpack_from("!BBHI", data)
            if version != ofproto.OFP_VERSION or not 8 <= length <= len(data):
                raise BadMessageError(f"no OpenFlow 1.3 message: version {version}, length {length} of {len(data)}")
            message, data = data[:4] + bytes(4) + data[8:length], data[length:]
            if kind == ofproto.OFPT_FLOW_MOD:
                self._obey_flow_mod(_flow_mod(message))
            elif kind == ofproto.OFPT_GROUP_MOD:
                self._obey_group_mod(_group_mod(message))
            elif kind == ofproto.OFPT_BARRIER_REQUEST:
                barriers.append(xid)
            else:
                raise BadMessageError(f"a message of type {kind}, which changes nothing that is modelled")
        return barriers

    def _obey_flow_mod(self, mod: _FlowMod) -> None:
        flow = mod.flow
        for step in flow.steps:
            if step[0] == "group" and step[1] not in self.groups:
                raise BadMessageError(f"switch {self.switch_id} has no group {step[1]}, to which a flow sends")
            if step[0] == "output" and step[1] != IN_PORT and step[1] not in self.ports:
                raise BadMessageError(f"switch {self.switch_id} has no port {step[1]}, to which a flow sends")
        self._known.clear()
        shapes = self._tables.setdefault(flow.priority, {})
        arranged = flow.shape in shapes
        space = shapes.setdefault(flow.shape, {})
        if mod.delete:
            space.pop(flow.values, None)
        else:
            space[flow.values] = flow
        if not space:
            del shapes[flow.shape]
        if not arranged or not space:
            self._arrange()

    def _obey_group_mod(self, mod: _GroupMod) -> None:
        ofproto = PROTOCOL.ofproto
        self._known.clear()
        if mod.command == ofproto.OFPGC_DELETE:
            self.groups.pop(mod.group_id, None)
            self._delete_flows_to(mod.group_id)
            return
        if (mod.command == ofproto.OFPGC_ADD) == (mod.group_id in self.groups):
            there = "exists already" if mod.group_id in self.groups else "does not exist"
            raise BadMessageError(f"switch {self.switch_id}: group {mod.group_id} {there}")
        for watch_port, watch_group, steps in mod.buckets:
            if mod.kind == ofproto.OFPGT_FF and (watch_port == ANY) == (watch_group == ANY):
                raise BadMessageError(f"a bucket of fast-failover group {mod.group_id} must watch one port or group")
            if watch_port not in (ANY, *self.ports):
                raise BadMessageError(f"group {mod.group_id} watches port {watch_port}, which {self.switch_id} lacks")
            if watch_group not in (ANY, *self.groups):
                raise BadMessageError(f"group {mod.group_id} watches group {watch_group}, which does not exist")
            for step in steps:
                if step[0] == "output" and step[1] != IN_PORT and step[1] not in self.ports:
                    raise BadMessageError(f"group {mod.group_id} sends to port {step[1]}, which does not exist")
                if step[0] in ("group", "resubmit"):
                    raise BadMessageError(f"group {mod.group_id} sends on to a group or table")
        if mod.kind == ofproto.OFPGT_INDIRECT and len(mod.buckets) != 1:
            raise BadMessageError(f"indirect group {mod.group_id} has {len(mod.buckets)} buckets, not 1")
        if mod.kind not in (ofproto.OFPGT_FF, ofproto.OFPGT_INDIRECT):
            raise BadMessageError(f"group {mod.group_id} is of type {mod.kind}, which the controller never uses")
        self.groups[mod.group_id] = _GroupState(mod.kind, mod.buckets, [0] * len(mod.buckets))

    def _delete_flows_to(self, group_id: int) -> None:
        for flow in list(self.flows()):
            if ("group", group_id) in flow.steps:
                self._tables[flow.priority][flow.shape].pop(flow.values)

    def flows(self) -> Iterator[Flow]:
        """All flows, highest priority first."""
        for priority in self._priorities:
            for space in self._tables[priority].values():
                yield from space.values()

    def lookup(self, packet: list[int]) -> Flow | None:
        """The flow that decides about ``packet``; raises AmbiguousRulesError if several of one priority match."""
        key = tuple([packet[index] & mask for index, mask in self._looked_at])
        if key in self._known:
            return self._known[key]
        flow = self._known[key] = self._search(packet)
        return flow

    def _search(self, packet: list[int]) -> Flow | None:
        for priority in self._priorities:
            found = [
                flow
                for shape, space in self._tables[priority].items()
                if (flow := space.get(tuple([packet[index] & mask for index, mask in shape]))) is not None
            ]
            if len(found) > 1:
                raise AmbiguousRulesError(
                    f"switch {self.switch_id} has {len(found)} flows of priority {priority} for one packet "
                    f"({described(packet)}); give them different priorities"
                )
            if found:
                return found[0]
        return None

    def forward(self, packet: list[int]) -> tuple[int | None, Flow | None, bool]:
        """(port by which ``packet`` leaves, flow that decided, counted drop); the packet is changed in place.

        The port is None for a packet that is dropped. As in Open vSwitch, what would leave by the port that it came by
        is dropped unless the action says IN_PORT.
        """
        flow = None
        for _ in range(MAX_LOOKUPS):
            flow = self.lookup(packet)
            if flow is None:
                return None, None, False
            steps = flow.steps
            if steps and steps[-1] == ("resubmit",):
                self._write(packet, steps[:-1])
                continue
            port, counted = self._leave(packet, steps)
            return port, flow, counted
        raise AmbiguousRulesError(f"switch {self.switch_id} looks a packet up for ever ({described(packet)})")

    def _leave(self, packet: list[int], steps: tuple[Step, ...]) -> tuple[int | None, bool]:
        for number, step in enumerate(steps):
            if step[0] == "output":
                back = step[1] == IN_PORT
                return (packet[0] if back else step[1] if step[1] != packet[0] else None), False
            if step[0] == "group":
                bucket = self._bucket(step[1])
                return (None, bucket is not None) if not bucket else self._leave(packet, bucket)
            if step[0] == "dec_ttl":
                packet[-1] -= 1
                if packet[-1] <= 0:
                    return None, False
            else:
                self._write(packet, steps[number : number + 1])
        return None, False

    def _bucket(self, group_id: int) -> tuple[Step, ...] | None:
        group = self.groups[group_id]
        for number, (watch_port, watch_group, steps) in enumerate(group.buckets):
            alive = watch_port not in self.dead_ports if watch_port != ANY else watch_group in self.groups
            if alive:
                group.packets[number] += 1
                return steps
        return None

    @staticmethod
    def _write(packet: list[int], steps: tuple[Step, ...]) -> None:
        for step in steps:
            if step[0] == "set":
                packet[AT[step[1]]] = _number(step[1], step[2])
                continue
            if step[0] == "load":
                _, name, first_bit, n_bits, value = step
            else:
                _, source, name, n_bits, source_bit, first_bit = step
                value = packet[AT[source]] >> source_bit & (1 << n_bits) - 1
            mask = (1 << n_bits) - 1 << first_bit
            packet[AT[name]] = packet[AT[name]] & ~mask | value << first_bit


def described(packet: list[int]) -> str:
    """A packet in words."""
    return ", ".join(f"{name}={value:#x}" for name, value in zip(FIELDS, packet, strict=True) if value)


@dataclass
class FakeFabric:
    """All switches of a fabric, joined by links that can fail."""

    fabric: Fabric
    links_down: set[str] = field(default_factory=set)
    switches: dict[str, FakeSwitch] = field(init=False)
    reasons: dict[tuple[str, int, _Shape, _Values], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.switches = {
            switch.id: FakeSwitch(switch.id, (link.port(switch.id) for link in self.fabric.links_of(switch.id)))
            for switch in self.fabric.switches
        }
        for link_id in list(self.links_down):
            self.set_link(link_id, up=False)

    def load(self, rules: Mapping[str, Iterable[Rule]], groups: Mapping[str, Iterable[Group]]) -> None:
        """Install groups and rules by their messages."""
        for switch_id, of_switch in groups.items():
            for group in of_switch:
                self.switches[switch_id].apply(encoded_group(group))
        for switch_id, table in rules.items():
            for rule in table:
                self.install(switch_id, rule)

    def install(self, switch_id: str, rule: Rule) -> None:
        """Install one rule by its message."""
        data = encoded_rule(rule)
        self.switches[switch_id].apply(data)
        flow = self.parsed(data)
        self.reasons[switch_id, flow.priority, flow.shape, flow.values] = rule.reason

    def copy(self) -> FakeFabric:
        """Another fabric in the same state."""
        other = FakeFabric(self.fabric, set(self.links_down))
        other.switches = {switch_id: switch.copy() for switch_id, switch in self.switches.items()}
        other.reasons = dict(self.reasons)
        return other

    @staticmethod
    def parsed(data: bytes) -> Flow:
        """The flow that one message (as of :func:`encoded_rule`) installs."""
        return _flow_mod(data[:4] + bytes(4) + data[8:]).flow

    def set_link(self, link_id: str, up: bool) -> None:
        """Take a link down or up; both of its ports are dead or alive from now on."""
        link = self.fabric.link(link_id)
        (self.links_down.discard if up else self.links_down.add)(link_id)
        for end in (link.a, link.b):
            if end in self.switches:
                dead = self.switches[end].dead_ports
                (dead.discard if up else dead.add)(link.port(end))

    def send(self, src: Gpu, dst: Gpu, dscp: int = 0, tcp_dst: int | None = None) -> Walk:
        """Follow an IPv4 packet from ``src`` to ``dst``, of TCP if a port is given."""
        packet = ip_packet(src, dst, dscp)
        if tcp_dst is not None:
            packet[AT["ip_proto"]], packet[AT["tcp_dst"]] = IP_PROTO_TCP, tcp_dst
        if self.fabric.link_by_port[src.switch_id, HOST_PORT].id in self.links_down:
            return Walk(Outcome.DEAD_LINK, (), src.switch_id, f"{src.id} is down")
        return self.follow(src.switch_id, packet, dst)

    def follow(self, switch_id: str, packet: list[int], dst: Gpu) -> Walk:
        """Follow ``packet``, which enters ``switch_id`` now, until it is delivered, lost or has come round."""
        sent = packet[AT["eth_src"] : AT["ip_dscp"] + 1]
        hops: list[Hop] = []
        seen: set[tuple[object, ...]] = set()
        turned_back = False

        def ended(outcome: Outcome, reason: str) -> Walk:
            intact = packet[AT["eth_src"] : AT["ip_dscp"] + 1] == sent
            return Walk(outcome, tuple(hops), switch_id, reason, turned_back, intact)

        while True:
            # All that a switch can look at; the TTL only falls.
            state = (switch_id, *packet[:-1])
            if state in seen:
                return ended(Outcome.LOOP, f"enters {switch_id} by port {packet[0]} for the second time")
            seen.add(state)
            in_port, before = packet[0], packet[AT["ip_dscp"]]
            port, flow, counted = self.switches[switch_id].forward(packet)
            if before != packet[AT["ip_dscp"]]:
                turned_back = True
            if flow is None:
                return ended(Outcome.DROPPED, "no rule")
            reason = self.reasons.get((switch_id, flow.priority, flow.shape, flow.values), f"priority {flow.priority}")
            if port is None:
                return ended(Outcome.DROPPED, "second dead port" if counted else reason)
            hops.append(Hop(switch_id, in_port, port))
            link = self.fabric.link_by_port[switch_id, port]
            if link.id in self.links_down:
                return ended(Outcome.DEAD_LINK, f"{link.id} is down")
            if link.kind is LinkKind.HOST:
                if link.a == dst.id:
                    return ended(Outcome.DELIVERED, reason)
                return ended(Outcome.DROPPED, f"handed to {link.a}, which it is not for")
            switch_id = link.other(switch_id)
            packet[0] = link.port(switch_id)

    def arp_answer(self, asking: Gpu, wanted: Gpu) -> str | None:
        """The MAC address that ``asking`` is told for the address of ``wanted``, or None if nobody answers."""
        packet = [0] * len(FIELDS)
        own = _number("eth_src", mac(asking.domain, asking.rail))
        for name, value in (
            ("in_port", HOST_PORT), ("eth_type", ETH_TYPE_ARP), ("eth_src", own), ("eth_dst", (1 << 48) - 1),
            ("arp_op", ARP_REQUEST), ("arp_spa", _address(asking)), ("arp_tpa", _address(wanted)), ("arp_sha", own),
        ):  # fmt: skip
            packet[AT[name]] = value
        port, _, _ = self.switches[asking.switch_id].forward(packet)
        told = packet[AT["arp_op"]] == 2 and packet[AT["arp_spa"]] == _address(wanted)
        if port != HOST_PORT or not told or packet[AT["arp_tpa"]] != _address(asking):
            return None
        digits = f"{packet[AT['arp_sha']]:012x}"
        return ":".join(digits[at : at + 2] for at in range(0, 12, 2))

    def counted_drops(self) -> int:
        """Packets that were dropped, and counted, because they met a second dead port."""
        return sum(
            packets
            for switch in self.switches.values()
            for group in switch.groups.values()
            for packets, (_, _, steps) in zip(group.packets, group.buckets, strict=True)
            if not steps
        )


def _address(gpu: Gpu) -> int:
    return _number("ipv4_src", ipv4(gpu.domain, gpu.rail))


def ip_packet(src: Gpu, dst: Gpu, dscp: int = 0, in_port: int = HOST_PORT) -> list[int]:
    """An IPv4 packet as ``src`` sends it to ``dst``."""
    packet = [0] * len(FIELDS)
    for name, value in (
        ("in_port", in_port), ("eth_type", ETH_TYPE_IPV4), ("eth_src", _number("eth_src", mac(src.domain, src.rail))),
        ("eth_dst", _number("eth_dst", mac(dst.domain, dst.rail))), ("ipv4_src", _address(src)),
        ("ipv4_dst", _address(dst)), ("ip_dscp", dscp), ("ttl", FIRST_TTL),
    ):  # fmt: skip
        packet[AT[name]] = value
    return packet


def _bytes_of(message: Any) -> bytes:
    message.set_xid(0)
    message.serialize()
    return bytes(message.buf)


@lru_cache(maxsize=1 << 17)
def encoded_rule(rule: Rule, cookie: int = 0) -> bytes:
    """The message that installs ``rule``, as bytes."""
    return _bytes_of(openflow.flow_add(PROTOCOL, rule, cookie))


@lru_cache(maxsize=1 << 16)
def encoded_group(group: Group) -> bytes:
    """The message that makes ``group``, as bytes."""
    return _bytes_of(openflow.group_add(PROTOCOL, group))
