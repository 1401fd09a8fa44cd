"""Rules as OpenFlow 1.3 messages, and installed flows read back as the same terms.

A rule's actions become *steps*: plain tuples that are built into the framework's action objects, and that installed
actions are turned back into, so that what a switch holds can be compared with what it should hold.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from controller.entries import (
    ALWAYS_GROUP_ID,
    ETH_TYPE_ARP,
    IN_PORT,
    IP_PROTO_TCP,
    MARK_DSCP,
    Action,
    DecTtl,
    Group,
    Mark,
    Match,
    Output,
    Rule,
    Stamp,
    ToGroup,
    Unmark,
    Unstamp,
)
from controller.selectors import Selector
from topologies.addresses import EXACT_MASK, MAC_PREFIX

ANY = 0xFFFFFFFF
NO_BUFFER = 0xFFFFFFFF
ALL_TABLES = 0xFF
ALL_GROUPS = 0xFFFFFFFC
SAME_PORT = 0xFFF8

Step = tuple[Any, ...]
MatchFields = dict[str, Any]

# Byte 4 of a MAC address, which is 0 in all of ours: bits 8 to 15.
SPARE_BITS = (8, 8)
VERSION_MASK = "00:00:00:00:ff:00"

ARP_REPLY_STEPS: tuple[Step, ...] = (
    ("move", "eth_src", "eth_dst", 48, 0, 0),
    # The MAC address asked for: the fixed prefix, then bytes 2 and 3 (the domain) and 4 (the rail) of the IPv4 address.
    ("set", "eth_src", MAC_PREFIX),
    ("move", "arp_tpa", "eth_src", 16, 8, 16),
    ("move", "arp_tpa", "eth_src", 8, 0, 0),
    ("set", "arp_op", 2),
    ("move", "arp_sha", "arp_tha", 48, 0, 0),
    ("move", "eth_src", "arp_sha", 48, 0, 0),
    ("move", "arp_tpa", "reg0", 32, 0, 0),
    ("move", "arp_spa", "arp_tpa", 32, 0, 0),
    ("move", "reg0", "arp_spa", 32, 0, 0),
    ("output", IN_PORT),
)


MARK_STEPS: tuple[Step, ...] = (("move", "ip_dscp", "eth_dst", 6, 0, 8), ("set", "ip_dscp", MARK_DSCP))
UNMARK_STEPS: tuple[Step, ...] = (("move", "eth_dst", "ip_dscp", 6, 8, 0), ("load", "eth_dst", *SPARE_BITS, 0))


def match_fields(match: Match) -> MatchFields:
    """The match in the framework's names and values."""
    fields: MatchFields = {}
    if match.in_port is not None:
        fields["in_port"] = match.in_port
    if match.eth_type is not None:
        fields["eth_type"] = match.eth_type
    if match.arp_op is not None:
        fields["arp_op"] = match.arp_op
    if match.version is not None:
        fields["eth_src"] = (f"00:00:00:00:{match.version:02x}:00", VERSION_MASK)
    if match.marked:
        fields["ip_dscp"] = MARK_DSCP
    if match.tcp_dst is not None:
        fields["ip_proto"] = IP_PROTO_TCP
        fields["tcp_dst"] = match.tcp_dst
    arp = match.eth_type == ETH_TYPE_ARP
    for selector, name in (
        (match.src, "arp_spa" if arp else "ipv4_src"),
        (match.dst, "arp_tpa" if arp else "ipv4_dst"),
    ):
        if selector is not None:
            fields[name] = _address(selector)
    return fields


def _address(selector: Selector) -> str | tuple[str, str]:
    mask = selector.address_mask
    return selector.address if mask == EXACT_MASK else (selector.address, mask)


@lru_cache(maxsize=1 << 16)
def steps(actions: tuple[Action, ...]) -> tuple[Step, ...]:
    """The actions of a rule, step by step."""
    return tuple(step for action in actions for step in _steps_of(action))


def _steps_of(action: Action) -> tuple[Step, ...]:
    if isinstance(action, Output):
        return (("output", action.port),)
    if isinstance(action, ToGroup):
        return (("group", action.group_id),)
    if isinstance(action, DecTtl):
        return (("dec_ttl",),)
    if isinstance(action, Stamp):
        return (("load", "eth_src", *SPARE_BITS, action.version), ("resubmit",))
    if isinstance(action, Unstamp):
        return (("load", "eth_src", *SPARE_BITS, 0),)
    if isinstance(action, Mark):
        return MARK_STEPS
    if isinstance(action, Unmark):
        return UNMARK_STEPS
    return ARP_REPLY_STEPS


def flow_add(datapath: Any, rule: Rule, cookie: int) -> Any:
    """The message that installs ``rule``; ``cookie`` names its generation."""
    parser, ofproto = datapath.ofproto_parser, datapath.ofproto
    actions = [_action(parser, step) for step in steps(rule.actions)]
    instructions = [parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)] if actions else []
    return parser.OFPFlowMod(
        datapath, command=ofproto.OFPFC_ADD, cookie=cookie, priority=rule.priority, buffer_id=NO_BUFFER,
        match=parser.OFPMatch(**match_fields(rule.match)), instructions=instructions,
    )  # fmt: skip


def flow_delete(datapath: Any, priority: int, match: Match) -> Any:
    """The message that removes the rule of exactly this priority and match."""
    return _strict_delete(datapath, 0, priority, datapath.ofproto_parser.OFPMatch(**match_fields(match)))


def flow_delete_stats(datapath: Any, stats: Any) -> Any:
    """The message that removes an installed flow as read back from the switch."""
    return _strict_delete(datapath, stats.table_id, stats.priority, stats.match)


def _strict_delete(datapath: Any, table_id: int, priority: int, match: Any) -> Any:
    return datapath.ofproto_parser.OFPFlowMod(
        datapath, command=datapath.ofproto.OFPFC_DELETE_STRICT, table_id=table_id, priority=priority,
        buffer_id=NO_BUFFER, out_port=ANY, out_group=ANY, match=match,
    )  # fmt: skip


def group_add(datapath: Any, group: Group) -> Any:
    """The message that makes ``group``; it must not exist yet."""
    return _group_mod(datapath, group, datapath.ofproto.OFPGC_ADD)


def group_modify(datapath: Any, group: Group) -> Any:
    """The message that gives an existing group these buckets; always all of them."""
    return _group_mod(datapath, group, datapath.ofproto.OFPGC_MODIFY)


def _group_mod(datapath: Any, group: Group, command: int) -> Any:
    parser, ofproto = datapath.ofproto_parser, datapath.ofproto
    always = group.group_id == ALWAYS_GROUP_ID
    buckets = [
        parser.OFPBucket(
            watch_port=ANY if bucket.watch_port is None else bucket.watch_port,
            watch_group=ALWAYS_GROUP_ID if bucket.watch_port is None and not always else ANY,
            actions=[_action(parser, step) for step in steps(bucket.actions)],
        )
        for bucket in group.buckets
    ]
    kind = ofproto.OFPGT_INDIRECT if always else ofproto.OFPGT_FF
    return parser.OFPGroupMod(datapath, command, kind, group.group_id, buckets)


def group_delete(datapath: Any, group_id: int) -> Any:
    """The message that removes a group, and every flow that uses it."""
    ofproto = datapath.ofproto
    return datapath.ofproto_parser.OFPGroupMod(datapath, ofproto.OFPGC_DELETE, ofproto.OFPGT_FF, group_id, [])


def group_desc_request(datapath: Any) -> Any:
    """The message that asks for every group."""
    return datapath.ofproto_parser.OFPGroupDescStatsRequest(datapath, 0)


BucketSteps = tuple[int, int, tuple[Step, ...]]


def installed_group(description: Any) -> tuple[int, tuple[BucketSteps, ...] | None]:
    """(id, buckets) of a group as read back, comparable with :func:`group_steps`; None for what is never ours."""
    buckets: list[BucketSteps] = []
    for bucket in description.buckets:
        found = [_step(action) for action in bucket.actions]
        done = tuple(step for step in found if step is not None)
        if len(done) < len(found):
            return description.group_id, None
        buckets.append((bucket.watch_port, bucket.watch_group, done))
    return description.group_id, tuple(buckets)


def group_steps(group: Group) -> tuple[BucketSteps, ...]:
    """The buckets of a group as (watched port, watched group, steps)."""
    always = group.group_id == ALWAYS_GROUP_ID
    return tuple(
        (
            ANY if bucket.watch_port is None else bucket.watch_port,
            ALWAYS_GROUP_ID if bucket.watch_port is None and not always else ANY,
            steps(bucket.actions),
        )
        for bucket in group.buckets
    )


def counter_requests(datapath: Any) -> list[Any]:
    """The messages that ask for the counters of all ports and of all groups."""
    parser = datapath.ofproto_parser
    return [parser.OFPPortStatsRequest(datapath, 0, ANY), parser.OFPGroupStatsRequest(datapath, 0, ALL_GROUPS)]


def port_desc_request(datapath: Any) -> Any:
    """The message that asks for the state of every port."""
    return datapath.ofproto_parser.OFPPortDescStatsRequest(datapath, 0)


def flow_stats_request(datapath: Any) -> Any:
    """The message that asks for every installed flow."""
    return datapath.ofproto_parser.OFPFlowStatsRequest(
        datapath, 0, ALL_TABLES, ANY, ANY, 0, 0, datapath.ofproto_parser.OFPMatch()
    )


def _action(parser: Any, step: Step) -> Any:
    if step[0] == "output":
        return parser.OFPActionOutput(step[1], 0)
    if step[0] == "dec_ttl":
        return parser.OFPActionDecNwTtl()
    if step[0] == "group":
        return parser.OFPActionGroup(step[1])
    if step[0] == "resubmit":
        return parser.NXActionResubmitTable(SAME_PORT, 0)
    if step[0] == "load":
        _, field, first_bit, n_bits, value = step
        return parser.NXActionRegLoad(ofs_nbits=first_bit << 6 | n_bits - 1, dst=field, value=value)
    if step[0] == "set":
        return parser.OFPActionSetField(**{step[1]: step[2]})
    _, src, dst, n_bits, src_ofs, dst_ofs = step
    return parser.NXActionRegMove(src_field=src, dst_field=dst, n_bits=n_bits, src_ofs=src_ofs, dst_ofs=dst_ofs)


def installed_steps(instructions: list[Any]) -> tuple[Step, ...] | None:
    """The steps of an installed flow; None if it does anything that no rule of ours does."""
    result: list[Step] = []
    for instruction in instructions:
        for action in getattr(instruction, "actions", [None]):
            step = _step(action)
            if step is None:
                return None
            result.append(step)
    return tuple(result)


def _step(action: Any) -> Step | None:
    kind = type(action).__name__
    if kind == "OFPActionOutput":
        return ("output", action.port)
    if kind == "OFPActionDecNwTtl":
        return ("dec_ttl",)
    if kind == "OFPActionSetField":
        return ("set", action.key, action.value)
    if kind == "OFPActionGroup":
        return ("group", action.group_id)
    if kind == "NXActionResubmitTable" and (action.in_port, action.table_id) == (SAME_PORT, 0):
        return ("resubmit",)
    if kind == "NXActionRegLoad":
        return (
            "load",
            action.dst.removesuffix("_nxm"),
            action.ofs_nbits >> 6,
            (action.ofs_nbits & 63) + 1,
            action.value,
        )
    if kind == "NXActionRegMove":
        fields = (action.src_field.removesuffix("_nxm"), action.dst_field.removesuffix("_nxm"))
        return ("move", *fields, action.n_bits, action.src_ofs, action.dst_ofs)
    return None


def installed_identity(stats: Any) -> tuple[int, int, frozenset[tuple[str, Any]]]:
    """(table, priority, match) of an installed flow, comparable with :func:`rule_identity`."""
    return stats.table_id, stats.priority, frozenset(stats.match.items())


def version_of(identity: tuple[int, int, frozenset[tuple[str, Any]]]) -> int | None:
    """The version of the routes that a flow of this identity belongs to; None for one that is of no version."""
    for name, value in identity[2]:
        if name == "eth_src" and isinstance(value, tuple) and value[1] == VERSION_MASK:
            return int(value[0].split(":")[4], 16) or None
    return None


@lru_cache(maxsize=1 << 18)
def rule_identity(rule: Rule) -> tuple[int, int, frozenset[tuple[str, Any]]]:
    """(table, priority, match) of a rule as a switch will report it."""
    return 0, rule.priority, frozenset(match_fields(rule.match).items())
