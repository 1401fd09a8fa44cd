"""Rules: routes turned into flow table entries.

The healthy tables are masked matches in closed form. After a failure the healthy rules stay, and rules of higher
priority are laid over them only where a next hop differs; so a repair is few rules, and taking them away restores.

A healthy rule has a *level* (its priority). The rules that repair its destinations sit between its level and the
next one: ``+10`` for all of them at once, ``+20`` for those of one rail, ``+30`` for those of one domain, ``+40`` for
one destination, ``+50`` for one pair of source class and destination.

NVSwitches, rail switches, leaves and spines decrement the TTL. GPU switches are joined only to those, so every loop
would pass one, and even a packet caught between two generations of rules dies out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from controller.policy import Relay, RoutingPolicy
from controller.routing import LEAF_KINDS, Forwarding, HashKey, Routes, forwarding
from controller.selectors import ALL_BITS, EVERY_GPU, Selector, domain_of, exact, rail_of, with_plane_bit
from topologies.model import HOST_PORT, NVLINK_PORT, Fabric, FabricKind, Gpu, Switch, SwitchKind

ETH_TYPE_IPV4 = 0x0800
ETH_TYPE_ARP = 0x0806
ARP_REQUEST = 1

PRIORITY_ARP = 900
LEVEL_OWN_GPU = 700
LEVEL_HASHED = 600
LEVEL_HASHED_ANY_SOURCE = 500
LEVEL_EXACT = 400
LEVEL_DOMAIN = 300
LEVEL_RAIL = 200
LEVEL_DEFAULT = 100
PRIORITY_TABLE_MISS = 0

ABOVE_WHOLE = 10
ABOVE_RAIL = 20
ABOVE_DOMAIN = 30
ABOVE_EXACT = 40
ABOVE_PAIR = 50


@dataclass(frozen=True)
class Output:
    """Send the packet out of ``port``."""

    port: int


@dataclass(frozen=True)
class DecTtl:
    """Decrement the IPv4 TTL; the packet dies when it reaches 0."""


@dataclass(frozen=True)
class ArpReply:
    """Turn an ARP request into its answer and send it back.

    The MAC address of a GPU is a copy of bits of its IPv4 address, so one rule answers for every GPU.
    """


Action = Output | DecTtl | ArpReply


@dataclass(frozen=True)
class Match:
    """What a rule matches; a field that is None matches everything."""

    eth_type: int | None = None
    src: Selector | None = None
    dst: Selector | None = None
    in_port: int | None = None
    arp_op: int | None = None

    def __str__(self) -> str:
        parts = []
        if self.in_port is not None:
            parts.append(f"in_port={self.in_port}")
        if self.eth_type is not None:
            parts.append({ETH_TYPE_IPV4: "ip", ETH_TYPE_ARP: "arp"}[self.eth_type])
        if self.src is not None:
            parts.append(f"src={self.src.address}/{self.src.address_mask}")
        if self.dst is not None:
            parts.append(f"dst={self.dst.address}/{self.dst.address_mask}")
        return ",".join(parts) or "any"


@dataclass(frozen=True)
class Rule:
    """One flow table entry. Without actions it drops. ``reason`` is for people and is not sent to the switch."""

    switch_id: str
    priority: int
    match: Match
    actions: tuple[Action, ...]
    reason: str

    @property
    def identity(self) -> tuple[int, Match]:
        """What makes it this rule on its switch: a new rule of the same identity replaces it."""
        return self.priority, self.match


RuleTables = dict[str, tuple[Rule, ...]]


@dataclass(frozen=True)
class _Slot:
    """The healthy rule that serves a destination at a switch: its level and match."""

    level: int
    match: Selector


def rules_for(routes: Routes) -> RuleTables:
    """All rules of all switches, by switch id. Switches that no failure concerns keep their healthy tuple itself."""
    tables = dict(healthy_rules(routes.fabric, routes.policy))
    for switch_id, repairs in repair_rules(routes).items():
        tables[switch_id] = tables[switch_id] + repairs
    return tables


def rules_diff(old: Iterable[Rule], new: Iterable[Rule]) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """(adds, deletes) that turn the rules ``old`` of one switch into ``new``.

    A rule whose identity stays and whose actions change is only added: the switch overwrites it.
    """
    before = {rule.identity: rule for rule in old}
    after = {rule.identity: rule for rule in new}
    adds = tuple(
        rule for identity, rule in after.items() if identity not in before or before[identity].actions != rule.actions
    )
    deletes = tuple(rule for identity, rule in before.items() if identity not in after)
    return adds, deletes


@lru_cache(maxsize=4)
def healthy_rules(fabric: Fabric, policy: RoutingPolicy) -> Mapping[str, tuple[Rule, ...]]:
    """The rules of every switch when nothing is broken, in closed form."""
    plan = forwarding(fabric, policy)
    return {switch.id: _healthy_table(plan, switch) for switch in fabric.switches}


def _healthy_table(plan: Forwarding, switch: Switch) -> tuple[Rule, ...]:
    rules = [Rule(switch.id, PRIORITY_TABLE_MISS, Match(), (), "table-miss")]
    if switch.kind is SwitchKind.GPU:
        rules += _gpu_switch_rules(plan, switch)
    elif switch.kind is SwitchKind.NVSWITCH:
        for rail in range(plan.fabric.spec.rails):
            rules.append(_one_for(plan, switch, Gpu(switch.domain, rail), "GPU on the destination's rail"))
    elif switch.kind is SwitchKind.RAIL:
        for domain in plan.domains_below(switch.id):
            rules.append(_one_for(plan, switch, Gpu(domain, switch.rail), "GPU of the destination's domain"))
    elif switch.kind in LEAF_KINDS:
        rules += _leaf_rules(plan, switch)
    else:
        rules += _spine_rules(plan, switch)
    return tuple(rules)


def _one_for(plan: Forwarding, switch: Switch, dst: Gpu, reason: str) -> Rule:
    """The healthy rule that serves ``dst`` by its single port."""
    (port,) = plan.healthy_ports(switch, dst)
    slot = _slot(plan, switch, dst)
    return _ip_rule(switch, slot.level, None, slot.match, port, reason)


def _ip_rule(switch: Switch, priority: int, src: Selector | None, dst: Selector, port: int | None, reason: str) -> Rule:
    actions: tuple[Action, ...] = ()
    if port is not None:
        actions = (Output(port),) if switch.kind is SwitchKind.GPU else (DecTtl(), Output(port))
    return Rule(switch.id, priority, Match(ETH_TYPE_IPV4, src, dst), actions, reason)


def _gpu_switch_rules(plan: Forwarding, switch: Switch) -> list[Rule]:
    gpu = Gpu(switch.domain, switch.rail)
    arp = Match(ETH_TYPE_ARP, None, EVERY_GPU, HOST_PORT, ARP_REQUEST)
    rules = [
        Rule(switch.id, PRIORITY_ARP, arp, (ArpReply(),), "ARP answer"),
        _ip_rule(switch, LEVEL_EXACT, None, exact(gpu), HOST_PORT, "own GPU"),
        _ip_rule(switch, LEVEL_DOMAIN, None, domain_of(gpu), NVLINK_PORT, "own domain by NVLink"),
    ]
    if plan.fabric.kind is FabricKind.IDEAL:
        return rules
    if plan.relay is Relay.SOURCE:
        rules += _nic_rules(plan, switch, LEVEL_RAIL, rail_of(gpu), "own rail by NIC")
        rules.append(_ip_rule(switch, LEVEL_DEFAULT, None, EVERY_GPU, NVLINK_PORT, "relay in the own domain"))
    else:
        reason = "relay in the destination's domain" if plan.relay is Relay.DESTINATION else "other domains by NIC"
        rules += _nic_rules(plan, switch, LEVEL_DEFAULT, EVERY_GPU, reason)
    return rules


def _nic_rules(plan: Forwarding, switch: Switch, level: int, match: Selector, reason: str) -> list[Rule]:
    """One rule, or for a dual-homed NIC one for the even and one for the odd domains."""
    ports = plan.nic_ports(switch.id)
    if len(ports) == 1:
        return [_ip_rule(switch, level, None, match, ports[0], reason)]
    return [
        _ip_rule(
            switch, level, None, with_plane_bit(match, Gpu(parity, 0)), ports[(parity + switch.domain) % 2], reason
        )
        for parity in (0, 1)
    ]


def _leaf_rules(plan: Forwarding, switch: Switch) -> list[Rule]:
    if switch.kind is SwitchKind.RAIL_LEAF:
        below = [Gpu(domain, switch.rail) for domain in plan.domains_below(switch.id)]
    else:
        below = list(plan.gpus_below(switch.id))
    rules = [_one_for(plan, switch, gpu, "below this leaf") for gpu in below]
    uplinks = plan.uplinks(switch.id)
    if not uplinks:
        return rules
    if len(uplinks) == 1:
        return [*rules, _ip_rule(switch, LEVEL_HASHED, None, EVERY_GPU, uplinks[0], "the only spine")]
    remote = {plan.dst_selector(switch, gpu) for gpu in plan.fabric.gpus if plan.healthy_ports(switch, gpu) == uplinks}
    return rules + _hashed_rules(plan, switch, sorted(remote), uplinks)


def _spine_rules(plan: Forwarding, switch: Switch) -> list[Rule]:
    rules: dict[Selector, Rule] = {}
    hashed: dict[Selector, tuple[int, ...]] = {}
    for dst in plan.fabric.gpus:
        ports = plan.healthy_ports(switch, dst)
        if len(ports) > 1:
            hashed[plan.dst_selector(switch, dst)] = ports
        else:
            rule = _one_for(plan, switch, dst, "leaf of the destination")
            assert rule.match.dst is not None
            rules[rule.match.dst] = rule
    spread = [rule for dst, ports in hashed.items() for rule in _hashed_rules(plan, switch, [dst], ports)]
    return [*rules.values(), *spread]


def _hashed_rules(
    plan: Forwarding, switch: Switch, destinations: Iterable[Selector], ports: tuple[int, ...]
) -> list[Rule]:
    rules = []
    for dst in destinations:
        for src in plan.source_classes(switch.id):
            level = LEVEL_HASHED_ANY_SOURCE if src is None else LEVEL_HASHED
            port = plan.healthy_choice(switch, HashKey(src, dst), ports)
            rules.append(_ip_rule(switch, level, src, dst, port, "hashed"))
    return rules


def _slot(plan: Forwarding, switch: Switch, dst: Gpu) -> _Slot:
    """Where the healthy rule for ``dst`` sits."""
    kind = switch.kind
    if kind is SwitchKind.GPU:
        return _slot_of_gpu_switch(plan, switch, dst)
    if kind is SwitchKind.NVSWITCH:
        return _Slot(LEVEL_RAIL, rail_of(dst))
    if kind is SwitchKind.RAIL:
        return _Slot(LEVEL_DOMAIN, domain_of(dst))
    if kind is SwitchKind.RAIL_LEAF and dst.domain in plan.domains_below(switch.id):
        return _Slot(LEVEL_OWN_GPU, domain_of(dst))
    if kind is SwitchKind.LEAF and dst in plan.gpus_below(switch.id):
        return _Slot(LEVEL_OWN_GPU, exact(dst))
    if kind in LEAF_KINDS or len(plan.healthy_ports(switch, dst)) > 1:
        return _Slot(LEVEL_HASHED, EVERY_GPU)
    spec = plan.fabric.spec
    if kind is SwitchKind.SPINE and spec.kind is FabricKind.RAIL_OPTIMIZED:
        one_leaf_per_rail = spec.domains_per_leaf is not None and spec.domains_per_leaf >= spec.domains
        return _Slot(LEVEL_RAIL, rail_of(dst)) if one_leaf_per_rail else _Slot(LEVEL_EXACT, exact(dst))
    return _Slot(LEVEL_DOMAIN, domain_of(dst))


def _slot_of_gpu_switch(plan: Forwarding, switch: Switch, dst: Gpu) -> _Slot:
    if dst.domain == switch.domain:
        return _Slot(LEVEL_EXACT, exact(dst)) if dst.rail == switch.rail else _Slot(LEVEL_DOMAIN, domain_of(dst))
    by_nic = plan.relay is not Relay.SOURCE or dst.rail == switch.rail
    if plan.relay is Relay.SOURCE and dst.rail == switch.rail:
        level, match = LEVEL_RAIL, rail_of(dst)
    else:
        level, match = LEVEL_DEFAULT, EVERY_GPU
    if by_nic and len(plan.nic_ports(switch.id)) > 1:
        match = with_plane_bit(match, dst)
    return _Slot(level, match)


def repair_rules(routes: Routes) -> RuleTables:
    """The rules to lay over the healthy ones under the routes' failures; only switches that need any are named."""
    changed = routes.changed_destinations()
    if not changed:
        return {}
    tables: RuleTables = {}
    for switch in routes.fabric.switches:
        if not routes.isolated(switch):
            rules = _Repair(routes, switch).rules(changed)
            if rules:
                tables[switch.id] = rules
    return tables


class _Repair:
    """Works out the repair rules of one switch."""

    def __init__(self, routes: Routes, switch: Switch) -> None:
        self.routes = routes
        self.plan = routes.forwarding
        self.switch = switch

    def rules(self, changed: Iterable[Gpu]) -> tuple[Rule, ...]:
        """Rules for the destinations among ``changed`` whose next hop from here is not the healthy one."""
        single: dict[_Slot, dict[Gpu, int | None]] = defaultdict(dict)
        rules: list[Rule] = []
        for dst in changed:
            healthy = self.plan.healthy_ports(self.switch, dst)
            ports = self.routes.preferred_ports(self.switch.id, dst)
            if ports == healthy:
                continue
            slot = _slot(self.plan, self.switch, dst)
            if len(ports) > 1:
                rules += self._hashed(slot, dst, healthy, ports)
            else:
                single[slot][dst] = ports[0] if ports else None
        for slot, port_of in single.items():
            rules += self._grouped(slot, port_of)
        return tuple(rules)

    def _rule(self, priority: int, src: Selector | None, dst: Selector, port: int | None, reason: str = "") -> Rule:
        return _ip_rule(self.switch, priority, src, dst, port, "partitioned" if port is None else reason or "repair")

    def _hashed(self, slot: _Slot, dst: Gpu, healthy: tuple[int, ...], ports: tuple[int, ...]) -> list[Rule]:
        """Rules by source class, only for the classes whose port changes."""
        over_hash = slot.level == LEVEL_HASHED and len(healthy) > 1
        selector = self.plan.dst_selector(self.switch, dst)
        rules = []
        for src in self.plan.source_classes(self.switch.id):
            if src == exact(dst):
                continue
            key = HashKey(src, selector)
            port = self.plan.choose(self.switch, key, ports)
            if over_hash and port == self.plan.healthy_choice(self.switch, key, healthy):
                continue
            if src is not None:
                priority = slot.level + ABOVE_PAIR
            elif over_hash:
                priority = LEVEL_HASHED_ANY_SOURCE + ABOVE_EXACT
            else:
                priority = slot.level + ABOVE_EXACT
            rules.append(self._rule(priority, src, exact(dst), port, "repair, hashed"))
        return rules

    def _grouped(self, slot: _Slot, port_of: dict[Gpu, int | None]) -> list[Rule]:
        """Few rules for destinations of one healthy rule that now go out of a single port each, or nowhere."""
        left = dict(port_of)
        rules: list[Rule] = []
        if len(port_of) > 1:
            served = [gpu for gpu in self.plan.fabric.gpus if _slot(self.plan, self.switch, gpu) == slot]
            if len(port_of) == len(served) and len(set(port_of.values())) == 1:
                return [self._rule(slot.level + ABOVE_WHOLE, None, slot.match, port_of[served[0]])]
            for above in (ABOVE_DOMAIN, ABOVE_RAIL):
                groups: dict[Selector, list[Gpu]] = defaultdict(list)
                for gpu in served:
                    narrowed = slot.match._replace(rail_bits=gpu.rail, rail_mask=ALL_BITS)
                    groups[domain_of(gpu) if above == ABOVE_DOMAIN else narrowed].append(gpu)
                for selector, members in groups.items():
                    # Members already covered by a narrower rule of higher priority need not agree.
                    rest = [gpu for gpu in members if gpu in left or gpu not in port_of]
                    ports = {left.get(gpu, -1) for gpu in rest}
                    if len(rest) > 1 and len(ports) == 1 and -1 not in ports:
                        rules.append(self._rule(slot.level + above, None, selector, ports.pop()))
                        for gpu in rest:
                            del left[gpu]
        rules += [self._rule(slot.level + ABOVE_EXACT, None, exact(gpu), port) for gpu, port in left.items()]
        return rules
