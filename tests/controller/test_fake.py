"""The fabric in memory obeys and refuses messages as a switch does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from controller import openflow
from controller.entries import ALWAYS_GROUP_ID, IN_PORT, Bucket, Group, Match, Output, Rule, Stamp, ToGroup
from controller.errors import AmbiguousRulesError, BadMessageError
from controller.fake import FakeFabric, FakeSwitch, Outcome, encoded_group, encoded_rule, ip_packet
from controller.framework import PROTOCOL
from controller.policy import RoutingPolicy
from controller.selectors import EVERY_GPU, Selector, domain_of, exact, rail_of
from tests.controller.driver import healthy_fabric
from tests.controller.fabrics import built
from topologies.model import FabricKind, FabricSpec, Gpu

PARSER, OFPROTO = PROTOCOL.ofproto_parser, PROTOCOL.ofproto
FABRIC = FabricSpec(FabricKind.RAIL_ONLY, 2, 2)


def bytes_of(message: Any, xid: int = 7) -> bytes:
    message.set_xid(xid)
    message.serialize()
    return bytes(message.buf)


def rule(priority: int, dst: Selector, port: int) -> Rule:
    return Rule(priority, Match(0x0800, None, dst), (Output(port),), "test")


def flow(match: dict[str, Any], actions: list[Any], **fields: Any) -> bytes:
    instructions = [PARSER.OFPInstructionActions(OFPROTO.OFPIT_APPLY_ACTIONS, actions)]
    settings = {"priority": 5, "buffer_id": openflow.NO_BUFFER, **fields}
    return bytes_of(PARSER.OFPFlowMod(PROTOCOL, match=PARSER.OFPMatch(**match), instructions=instructions, **settings))


def group(buckets: list[Any], command: int = 0, kind: int = OFPROTO.OFPGT_FF, group_id: int = 5) -> bytes:
    return bytes_of(PARSER.OFPGroupMod(PROTOCOL, command, kind, group_id, buckets))


OUT_2 = [PARSER.OFPActionOutput(2)]
IP = {"eth_type": 0x0800}
# The framework would tidy this up, so the value is changed in the bytes: 10.0.1.1 with the mask 255.255.255.0.
BEYOND_ITS_MASK = flow({**IP, "ipv4_dst": ("10.0.1.0", "255.255.255.0")}, OUT_2).replace(
    bytes([10, 0, 1, 0, 255, 255, 255, 0]), bytes([10, 0, 1, 1, 255, 255, 255, 0])
)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (lambda: flow({"ipv4_dst": "10.0.1.0"}, OUT_2), "match on ipv4_dst without its eth_type 0x0800"),
        (lambda: flow({**IP, "arp_op": 1}, OUT_2), "match on arp_op without"),
        (lambda: flow({**IP, "udp_dst": 80, "ip_proto": 17}, OUT_2), "no switch of ours looks at"),
        (lambda: flow({**IP, "tcp_dst": 80}, OUT_2), "without the ip_proto of TCP"),
        (lambda: flow({"in_port": 1}, [PARSER.OFPActionOutput(9)]), "no port 9"),
        (lambda: flow({"in_port": 1}, [PARSER.OFPActionGroup(77)]), "no group 77"),
        (lambda: flow({"in_port": 1}, OUT_2, table_id=3), "table 3"),
        (lambda: flow({"in_port": 1}, OUT_2, buffer_id=1), "buffer 1"),
        (lambda: flow({"in_port": 1}, OUT_2, command=OFPROTO.OFPFC_DELETE), "strict deletions"),
        (lambda: flow({"in_port": 1}, [PARSER.OFPActionPushVlan()]), "never uses"),
        (lambda: BEYOND_ITS_MASK, "leaves out"),
        (lambda: group([PARSER.OFPBucket(actions=OUT_2)]), "must watch"),
        (lambda: group([PARSER.OFPBucket(watch_port=9, actions=OUT_2)]), "watches port 9"),
        (lambda: group([PARSER.OFPBucket(watch_group=9, actions=OUT_2)]), "watches group 9"),
        (lambda: group([PARSER.OFPBucket(watch_port=2, actions=[PARSER.OFPActionOutput(9)])]), "sends to port 9"),
        (lambda: group([], command=OFPROTO.OFPGC_MODIFY), "does not exist"),
        (lambda: group([], kind=OFPROTO.OFPGT_SELECT), "never uses"),
        (lambda: group([], kind=OFPROTO.OFPGT_INDIRECT), "0 buckets, not 1"),
        (lambda: bytes_of(PARSER.OFPPacketOut(PROTOCOL, openflow.NO_BUFFER, 1, OUT_2, b"x")), "message of type 13"),
        (lambda: b"\x01\x0e\x00\x08\x00\x00\x00\x00", "no OpenFlow 1.3"),
        (lambda: b"\x04\x0e\x00\xff\x00\x00\x00\x00", "length 255 of 8"),
    ],
)
def test_bad_messages_are_refused(message: Callable[[], bytes], words: str) -> None:
    switch = FakeSwitch("x", [1, 2, 3])
    with pytest.raises(BadMessageError, match=words):
        switch.apply(message())
    assert list(switch.flows()) == []


def test_a_second_group_of_the_same_number_is_refused_and_deleting_one_takes_its_flows() -> None:
    switch = FakeSwitch("x", [1, 2])
    switch.apply(encoded_group(Group(ALWAYS_GROUP_ID, (Bucket(None, ()),))))
    two = encoded_group(Group(2, (Bucket(2, (Output(2),)), Bucket(None, ()))))
    switch.apply(two)
    with pytest.raises(BadMessageError, match="exists already"):
        switch.apply(two)
    switch.apply(encoded_rule(Rule(5, Match(0x0800), (ToGroup(2),), "test")))
    switch.apply(bytes_of(openflow.group_delete(PROTOCOL, 2)))
    assert list(switch.flows()) == []


def test_barriers_are_answered_in_order_and_messages_may_come_together() -> None:
    switch = FakeSwitch("x", [1, 2])
    barriers = [bytes_of(PARSER.OFPBarrierRequest(PROTOCOL), xid) for xid in (4, 9)]
    assert switch.apply(barriers[0] + encoded_rule(rule(5, EVERY_GPU, 2)) + barriers[1]) == [4, 9]
    assert len(list(switch.flows())) == 1


def test_lookup_by_priority_and_mask_and_ambiguity() -> None:
    gpu = Gpu(1, 2)
    switch = FakeSwitch("x", range(1, 8))

    def decided() -> int | None:
        return switch.forward(ip_packet(Gpu(0, 0), gpu))[0]

    switch.apply(encoded_rule(rule(1, EVERY_GPU, 2)))
    switch.apply(encoded_rule(rule(5, domain_of(gpu), 3)))
    assert decided() == 3
    # Same match and priority: overwritten, whatever the cookie.
    switch.apply(encoded_rule(rule(5, domain_of(gpu), 7), cookie=9))
    assert len(list(switch.flows())) == 2
    assert decided() == 7
    switch.apply(encoded_rule(rule(5, rail_of(gpu), 4)))
    with pytest.raises(AmbiguousRulesError, match="2 flows of priority 5"):
        decided()
    for selector in (rail_of(gpu), domain_of(gpu)):
        switch.apply(bytes_of(openflow.flow_delete(PROTOCOL, 5, Match(0x0800, None, selector))))
    assert decided() == 2
    switch.apply(bytes_of(openflow.flow_delete(PROTOCOL, 1, Match(0x0800, None, EVERY_GPU))))
    assert decided() is None


def test_fast_failover_and_in_port() -> None:
    switch = FakeSwitch("x", [1, 2, 3])
    switch.apply(encoded_group(Group(ALWAYS_GROUP_ID, (Bucket(None, ()),))))
    buckets = (Bucket(2, (Output(2),)), Bucket(3, (Output(3),)), Bucket(None, (Output(IN_PORT),)))
    switch.apply(encoded_group(Group(2, buckets)))
    switch.apply(encoded_rule(Rule(5, Match(0x0800), (ToGroup(2),), "test")))
    packet = ip_packet(Gpu(0, 0), Gpu(1, 1))
    assert switch.forward(list(packet))[0] == 2
    switch.dead_ports = {2}
    assert switch.forward(list(packet))[0] == 3
    switch.dead_ports = {2, 3}
    assert switch.forward(list(packet))[0] == 1
    # A group, unlike OpenFlow's IN_PORT, cannot send a packet back by naming the port that it came by.
    switch.dead_ports = {2}
    packet[0] = 3
    assert switch.forward(packet)[0] is None
    assert switch.groups[2].packets == [1, 2, 1]


def test_a_stamp_that_stamps_for_ever_is_found() -> None:
    switch = FakeSwitch("x", [1, 2])
    switch.apply(encoded_rule(Rule(9, Match(0x0800), (Stamp(3),), "stamps its own work again")))
    with pytest.raises(AmbiguousRulesError, match="for ever"):
        switch.forward(ip_packet(Gpu(0, 0), Gpu(1, 1)))


def test_walks_find_loops_dead_links_and_turned_packets() -> None:
    fabric = built(FABRIC)
    src, dst = Gpu(0, 0), Gpu(1, 0)
    policy = RoutingPolicy(local_repair=False)

    def misled(*hops: tuple[str, int]) -> FakeFabric:
        fake = healthy_fabric(fabric, policy)
        for switch_id, port in hops:
            fake.install(switch_id, Rule(999, Match(0x0800, None, exact(dst)), (Output(port),), "wrong"))
        return fake

    fake = misled()
    assert fake.send(src, dst).outcome is Outcome.DELIVERED
    fake.set_link("d1r0-rail0", up=False)
    dead = fake.send(src, dst)
    assert (dead.outcome, dead.switch_id) == (Outcome.DEAD_LINK, "rail0")
    turned = misled(("rail0", 1)).send(src, dst)
    assert (turned.outcome, turned.switch_id) == (Outcome.DROPPED, "rail0")
    handed = misled(("s0r1", 1), ("s0r0", 3), ("nv0", 2)).send(src, dst)
    assert (handed.outcome, handed.reason) == (Outcome.DROPPED, "handed to d0r1, which it is not for")
    # Each switch of this ring hands the packet to the next.
    ring = (("s0r0", 3), ("nv0", 2), ("s0r1", 2), ("rail1", 2), ("s1r1", 3), ("nv1", 1), ("s1r0", 2), ("rail0", 1))
    assert misled(*ring).send(src, dst).outcome is Outcome.LOOP
    empty = FakeFabric(fabric).send(src, dst)
    assert (empty.outcome, empty.reason) == (Outcome.DROPPED, "no rule")


def test_a_copy_is_a_fabric_of_its_own() -> None:
    fabric = built(FABRIC)
    first = healthy_fabric(fabric, RoutingPolicy())
    second = first.copy()
    second.set_link("d0r0-rail0", up=False)
    second.install("s0r1", Rule(999, Match(), (), "drop everything"))
    for src, dst in permutations(fabric.gpus, 2):
        assert first.send(src, dst).turned_back is False
    assert second.send(Gpu(0, 1), Gpu(0, 0)).outcome is Outcome.DROPPED
    assert second.send(Gpu(0, 0), Gpu(1, 0)).outcome is Outcome.DROPPED
