"""OpenFlow tables in memory, at the level of rules: would this packet get there, and by which way?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from controller.errors import AmbiguousRulesError
from controller.routing import Hop
from controller.rules import ARP_REQUEST, ETH_TYPE_ARP, ETH_TYPE_IPV4, ArpReply, Match, Output, Rule
from controller.selectors import Selector
from topologies.addresses import mac
from topologies.model import HOST_PORT, Fabric, Gpu, LinkKind


@dataclass(frozen=True)
class Packet:
    """What a rule can look at: the port, the kind of packet, and the GPUs named by its addresses."""

    in_port: int
    src: Gpu
    dst: Gpu
    eth_type: int = ETH_TYPE_IPV4
    arp_op: int | None = None


class Outcome(str, Enum):
    """How the walk of a packet ended."""

    DELIVERED = "delivered"
    DROPPED = "dropped"
    LOOP = "loop"
    DEAD_LINK = "dead-link"


@dataclass(frozen=True)
class Walk:
    """The way of one packet. ``switch_id`` and ``reason`` say where and why it ended."""

    outcome: Outcome
    hops: tuple[Hop, ...]
    switch_id: str
    reason: str


_Shape = tuple[int | None, tuple[int, int] | None, tuple[int, int] | None, bool, bool]


def _masked(gpu: Gpu, masks: tuple[int, int] | None) -> tuple[int, int] | None:
    return None if masks is None else ((gpu.domain + 1) & masks[0], gpu.rail & masks[1])


def _masks(selector: Selector | None) -> tuple[int, int] | None:
    return None if selector is None else (selector.domain_mask, selector.rail_mask)


def _bits(selector: Selector | None) -> tuple[int, int] | None:
    return None if selector is None else (selector.domain_bits, selector.rail_bits)


class RuleTable:
    """The flow table of one switch. Rules of equal priority and mask share a dictionary (tuple space search)."""

    def __init__(self, switch_id: str, rules: Iterable[Rule] = ()) -> None:
        """Start with ``rules`` installed."""
        self.switch_id = switch_id
        self._spaces: dict[int, dict[_Shape, dict[object, Rule]]] = {}
        for rule in rules:
            self.install(rule)

    @staticmethod
    def _place(match: Match) -> tuple[_Shape, object]:
        shape = (
            match.eth_type, _masks(match.src), _masks(match.dst), match.in_port is not None, match.arp_op is not None,
        )  # fmt: skip
        return shape, (_bits(match.src), _bits(match.dst), match.in_port, match.arp_op)

    def install(self, rule: Rule) -> None:
        """Add ``rule``; one of the same priority and match is overwritten."""
        shape, key = self._place(rule.match)
        self._spaces.setdefault(rule.priority, {}).setdefault(shape, {})[key] = rule

    def delete(self, rule: Rule) -> None:
        """Remove the rule of the same priority and match, if there is one."""
        shape, key = self._place(rule.match)
        self._spaces.get(rule.priority, {}).get(shape, {}).pop(key, None)

    def rules(self) -> list[Rule]:
        """All rules, highest priority first."""
        return [
            rule
            for priority in sorted(self._spaces, reverse=True)
            for space in self._spaces[priority].values()
            for rule in space.values()
        ]

    def lookup(self, packet: Packet) -> Rule | None:
        """The rule that decides about ``packet``; raises AmbiguousRulesError if several of one priority match."""
        for priority in sorted(self._spaces, reverse=True):
            found = [
                rule
                for shape, space in self._spaces[priority].items()
                if (rule := space.get(self._key(shape, packet))) is not None and shape[0] in (None, packet.eth_type)
            ]
            if len(found) > 1:
                raise AmbiguousRulesError(
                    f"switch {self.switch_id} has {len(found)} rules of priority {priority} for {packet.src.id} to "
                    f"{packet.dst.id}: {found[0].match} and {found[1].match}; give them different priorities"
                )
            if found:
                return found[0]
        return None

    @staticmethod
    def _key(shape: _Shape, packet: Packet) -> object:
        return (
            _masked(packet.src, shape[1]),
            _masked(packet.dst, shape[2]),
            packet.in_port if shape[3] else None,
            packet.arp_op if shape[4] else None,
        )


Tables = Mapping[str, RuleTable]


def tables_of(rules: Mapping[str, Iterable[Rule]]) -> dict[str, RuleTable]:
    """Tables holding ``rules`` (by switch id)."""
    return {switch_id: RuleTable(switch_id, of_switch) for switch_id, of_switch in rules.items()}


def walk(tables: Tables, fabric: Fabric, src: Gpu, dst: Gpu, links_down: Collection[str] = frozenset()) -> Walk:
    """Follow an IPv4 packet from ``src`` to ``dst`` through ``tables`` while ``links_down`` carry nothing."""
    switch_id, in_port = src.switch_id, HOST_PORT
    hops: list[Hop] = []
    seen: set[tuple[str, int]] = set()

    def ended(outcome: Outcome, reason: str) -> Walk:
        return Walk(outcome, tuple(hops), switch_id, reason)

    if fabric.link_by_port[switch_id, HOST_PORT].id in links_down:
        return ended(Outcome.DEAD_LINK, f"{src.id} is down")
    while (switch_id, in_port) not in seen:
        seen.add((switch_id, in_port))
        rule = tables[switch_id].lookup(Packet(in_port, src, dst))
        port = next((action.port for action in rule.actions if isinstance(action, Output)), None) if rule else None
        if rule is None or port is None:
            return ended(Outcome.DROPPED, rule.reason if rule else "no rule")
        if port == in_port:
            return ended(Outcome.DROPPED, f"would leave by port {port}, by which it came")
        link = fabric.link_by_port.get((switch_id, port))
        if link is None:
            return ended(Outcome.DROPPED, f"port {port} does not exist")
        if link.id in links_down:
            return ended(Outcome.DEAD_LINK, f"{link.id} is down")
        hops.append(Hop(switch_id, in_port, port))
        if link.kind is LinkKind.HOST:
            if link.a == dst.id:
                return ended(Outcome.DELIVERED, rule.reason)
            return ended(Outcome.DROPPED, f"handed to {link.a}, which it is not for")
        switch_id = link.other(switch_id)
        in_port = link.port(switch_id)
    return ended(Outcome.LOOP, f"enters port {in_port} for the second time")


def arp_answer(tables: Tables, asking: Gpu, wanted: Gpu) -> str | None:
    """The MAC address that ``asking`` is told for the address of ``wanted``, or None if nobody answers."""
    packet = Packet(HOST_PORT, asking, wanted, ETH_TYPE_ARP, ARP_REQUEST)
    rule = tables[asking.switch_id].lookup(packet)
    if rule is None or not any(isinstance(action, ArpReply) for action in rule.actions):
        return None
    return mac(wanted.domain, wanted.rail)
