"""Rules as OpenFlow 1.3 messages, and installed flows read back as the same terms.

A rule's actions become *steps*: plain tuples that are built into the framework's action objects, and that installed
actions are turned back into, so that what a switch holds can be compared with what it should hold.
"""

from __future__ import annotations

from typing import Any

from controller.rules import ETH_TYPE_ARP, Action, DecTtl, Match, Output, Rule
from controller.selectors import Selector
from topologies.addresses import EXACT_MASK, MAC_PREFIX

IN_PORT = 0xFFFFFFF8
ANY = 0xFFFFFFFF
NO_BUFFER = 0xFFFFFFFF
ALL_TABLES = 0xFF

Step = tuple[Any, ...]
MatchFields = dict[str, Any]

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


def match_fields(match: Match) -> MatchFields:
    """The match in the framework's names and values."""
    fields: MatchFields = {}
    if match.in_port is not None:
        fields["in_port"] = match.in_port
    if match.eth_type is not None:
        fields["eth_type"] = match.eth_type
    if match.arp_op is not None:
        fields["arp_op"] = match.arp_op
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


def steps(actions: tuple[Action, ...]) -> tuple[Step, ...]:
    """The actions of a rule, step by step."""
    result: list[Step] = []
    for action in actions:
        if isinstance(action, Output):
            result.append(("output", action.port))
        elif isinstance(action, DecTtl):
            result.append(("dec_ttl",))
        else:
            result.extend(ARP_REPLY_STEPS)
    return tuple(result)


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
    if kind == "NXActionRegMove":
        fields = (action.src_field.removesuffix("_nxm"), action.dst_field.removesuffix("_nxm"))
        return ("move", *fields, action.n_bits, action.src_ofs, action.dst_ofs)
    return None


def installed_identity(stats: Any) -> tuple[int, int, frozenset[tuple[str, Any]]]:
    """(table, priority, match) of an installed flow, comparable with :func:`rule_identity`."""
    return stats.table_id, stats.priority, frozenset(stats.match.items())


def rule_identity(rule: Rule) -> tuple[int, int, frozenset[tuple[str, Any]]]:
    """(table, priority, match) of a rule as a switch will report it."""
    return 0, rule.priority, frozenset(match_fields(rule.match).items())
