"""Rules: routes turned into flow table entries.

The healthy tables are masked matches in closed form. After a failure the healthy rules stay, and rules of higher
priority are laid over them only where a next hop differs; so a repair is few rules, and taking them away restores.

A healthy rule has a *level* (its priority). The rules that repair its destinations sit between its level and the
next one: ``+10`` for all of them at once, ``+20`` for those of one rail, ``+30`` for those of one domain, ``+40`` for
one destination, ``+50`` for one pair of source class and destination.

The repair rules match one *version* of the routes, which a packet is stamped with where it enters the fabric. So a
packet obeys one set of routes from end to end, whatever the switches hold of another: a change installs the rules of a
new version everywhere, then turns the stamps over one by one, then takes the old version away. Routes of one version
have no loop, so there is none at any moment and in any order of messages. The healthy rules match every version.

With local repair (:mod:`controller.local_repair`) rules send to groups instead of ports, and at GPU switches what the
GPU sends is told apart from what is passing through, because it cannot be turned back.

NVSwitches, rail switches, leaves and spines decrement the TTL, so that not even a switch that misses its rules, for it
has lost its controller, can make a packet go round for ever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from controller.entries import (
    ABOVE_DOMAIN,
    ABOVE_EXACT,
    ABOVE_FROM_GPU,
    ABOVE_PAIR,
    ABOVE_RAIL,
    ABOVE_WHOLE,
    ARP_REQUEST,
    ETH_TYPE_ARP,
    ETH_TYPE_IPV4,
    LEVEL_DEFAULT,
    LEVEL_DOMAIN,
    LEVEL_EXACT,
    LEVEL_HASHED,
    LEVEL_HASHED_ANY_SOURCE,
    LEVEL_RAIL,
    PRIORITY_ARP,
    PRIORITY_CLOSED_PORT,
    PRIORITY_STAMP,
    PRIORITY_TABLE_MISS,
    Action,
    ArpReply,
    DecTtl,
    Group,
    Match,
    Rule,
    Stamp,
)
from controller.local_repair import delivery, groups_of, marked_rules, port_action, protected
from controller.policy import Relay, RoutingPolicy
from controller.routing import LEAF_KINDS, Forwarding, HashKey, Routes, forwarding
from controller.selectors import ALL_BITS, EVERY_GPU, Selector, domain_of, exact, rail_of, with_plane_bit
from controller.slots import Slot, slot_of
from topologies.model import HOST_PORT, NVLINK_PORT, Fabric, FabricKind, Gpu, LinkKind, Switch, SwitchKind

RuleTables = Mapping[str, tuple[Rule, ...]]
_Entry = TypeVar("_Entry")


class LazyTables(Mapping[str, tuple[_Entry, ...]]):
    """Entries by switch id, worked out for a switch when first asked for and then kept.

    A fabric of 32,768 GPUs has 600,000 rules; nobody ever needs more than those of the switches at hand.
    """

    def __init__(self, fabric: Fabric, make: Callable[[Switch], tuple[_Entry, ...]]) -> None:
        """``make`` gives the entries of a switch."""
        self._switches = fabric.switch_by_id
        self._make = make
        self._made: dict[str, tuple[_Entry, ...]] = {}

    def __getitem__(self, switch_id: str) -> tuple[_Entry, ...]:
        known = self._made.get(switch_id)
        if known is None:
            known = self._made[switch_id] = self._make(self._switches[switch_id])
        return known

    def __iter__(self) -> Iterator[str]:
        return iter(self._switches)

    def __len__(self) -> int:
        return len(self._switches)


def rules_for(routes: Routes, version: int | None = None) -> RuleTables:
    """All rules of all switches, by switch id, when ``routes`` are in force as that version.

    The version is by default 1, and 0 if nothing is broken. Switches that no failure concerns keep their healthy tuple
    itself.
    """
    healthy = healthy_rules(routes.fabric, routes.policy)
    if not routes.links_down:
        return healthy
    in_force = 1 if version is None else version
    laid_over = version_rules(routes, in_force)

    def make(switch: Switch) -> tuple[Rule, ...]:
        rules = healthy[switch.id]
        if switch.id in laid_over:
            rules += laid_over[switch.id]
        if switch.kind is SwitchKind.GPU:
            rules = (*rules, stamp_rule(Gpu(switch.domain, switch.rail), in_force))
        return rules

    return LazyTables(routes.fabric, make)


@lru_cache(maxsize=4)
def groups_for(fabric: Fabric, policy: RoutingPolicy) -> Mapping[str, tuple[Group, ...]]:
    """All groups of all switches, by switch id; the same whatever is broken, and none without local repair."""
    plan = forwarding(fabric, policy)
    return LazyTables(fabric, lambda switch: groups_of(plan, switch))


@dataclass(frozen=True)
class Family:
    """Switches whose tables are alike: their kind, how many they are, and the healthy entries that each holds."""

    kind: SwitchKind
    switches: int
    rules: int
    groups: int


def families(fabric: Fabric, policy: RoutingPolicy) -> tuple[Family, ...]:
    """How many rules and groups each switch of a fabric holds when nothing is broken; any size in little time.

    Tables of switches of one kind with equally many ports, uplinks and neighbours differ in addresses and ports only,
    so one of each family is worked out and counted.
    """
    plan = forwarding(fabric, policy)
    alike: dict[tuple[SwitchKind, int, int, int], list[Switch]] = {}
    for switch in fabric.switches:
        neighbours = plan.neighbours[plan.order[switch.id]]
        shape = (len(neighbours), len(plan.uplinks(switch.id)), len({there for _, there, _ in neighbours}))
        alike.setdefault((switch.kind, *shape), []).append(switch)
    return tuple(
        Family(
            switches[0].kind,
            len(switches),
            len(healthy_rules(fabric, policy)[switches[0].id]),
            len(groups_for(fabric, policy)[switches[0].id]),
        )
        for switches in alike.values()
    )


def version_rules(routes: Routes, version: int) -> dict[str, tuple[Rule, ...]]:
    """The rules that only packets of ``version`` obey: repairs, and drops at the ports of dead links.

    A link that has come back stays closed until routes that use it are in force.
    """
    fabric = routes.fabric
    tables = {switch_id: list(rules) for switch_id, rules in repair_rules(routes).items()}
    for link_id in sorted(routes.links_down):
        link = fabric.link_by_id[link_id]
        if link.kind is not LinkKind.HOST:
            for end in (link.a, link.b):
                closed = Match(in_port=link.port(end))
                tables.setdefault(end, []).append(Rule(end, PRIORITY_CLOSED_PORT, closed, (), "link is down"))
    return {
        switch_id: tuple(replace(rule, match=replace(rule.match, version=version)) for rule in rules)
        for switch_id, rules in tables.items()
    }


def stamp_rule(gpu: Gpu, version: int) -> Rule:
    """The rule that puts what ``gpu`` sends on the routes of ``version``."""
    match = Match(ETH_TYPE_IPV4, None, EVERY_GPU, HOST_PORT, version=0)
    return Rule(gpu.switch_id, PRIORITY_STAMP, match, (Stamp(version),), "routes in force")


@lru_cache(maxsize=4)
def healthy_rules(fabric: Fabric, policy: RoutingPolicy) -> RuleTables:
    """The rules of every switch when nothing is broken, in closed form."""
    plan = forwarding(fabric, policy)
    return LazyTables(fabric, lambda switch: _healthy_table(plan, switch))


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
    if switch.kind is SwitchKind.GPU and protected(plan):
        rules = [each for rule in rules for each in _told_apart(plan, switch, rule)]
    return (*rules, *marked_rules(plan, switch))


def _one_for(plan: Forwarding, switch: Switch, dst: Gpu, reason: str) -> Rule:
    """The healthy rule that serves ``dst`` by its single port."""
    (port,) = plan.healthy_ports(switch, dst)
    slot = slot_of(plan, switch, dst)
    return _ip_rule(plan, switch, slot.level, None, slot.match, port, reason)


def _ip_rule(
    plan: Forwarding, switch: Switch, priority: int, src: Selector | None, dst: Selector, port: int | None, reason: str
) -> Rule:
    actions: tuple[Action, ...] = ()
    if port is not None:
        way = port_action(plan, switch, port)
        actions = (way,) if switch.kind is SwitchKind.GPU else (DecTtl(), way)
    return Rule(switch.id, priority, Match(ETH_TYPE_IPV4, src, dst), actions, reason)


def _told_apart(plan: Forwarding, switch: Switch, rule: Rule) -> tuple[Rule, ...]:
    """A GPU switch's rule twice: for what passes through, and above it for what the GPU itself sends."""
    for port in (NVLINK_PORT, *plan.nic_ports(switch.id)):
        if rule.actions == (port_action(plan, switch, port),):
            sent = replace(rule.match, in_port=HOST_PORT)
            way = (port_action(plan, switch, port, from_gpu=True),)
            return rule, Rule(rule.switch_id, rule.priority + ABOVE_FROM_GPU, sent, way, rule.reason)
    return (rule,)


def _gpu_switch_rules(plan: Forwarding, switch: Switch) -> list[Rule]:
    gpu = Gpu(switch.domain, switch.rail)
    arp = Match(ETH_TYPE_ARP, None, EVERY_GPU, HOST_PORT, ARP_REQUEST)
    rules = [
        Rule(switch.id, PRIORITY_ARP, arp, (ArpReply(),), "ARP answer"),
        Rule(switch.id, LEVEL_EXACT, Match(ETH_TYPE_IPV4, None, exact(gpu)), delivery(), "own GPU"),
        _ip_rule(plan, switch, LEVEL_DOMAIN, None, domain_of(gpu), NVLINK_PORT, "own domain by NVLink"),
    ]
    if plan.fabric.kind is FabricKind.IDEAL:
        return rules
    if plan.relay is Relay.SOURCE:
        rules += _nic_rules(plan, switch, LEVEL_RAIL, rail_of(gpu), "own rail by NIC")
        rules.append(_ip_rule(plan, switch, LEVEL_DEFAULT, None, EVERY_GPU, NVLINK_PORT, "relay in the own domain"))
    else:
        reason = "relay in the destination's domain" if plan.relay is Relay.DESTINATION else "other domains by NIC"
        rules += _nic_rules(plan, switch, LEVEL_DEFAULT, EVERY_GPU, reason)
    return rules


def _nic_rules(plan: Forwarding, switch: Switch, level: int, match: Selector, reason: str) -> list[Rule]:
    """One rule, or for a dual-homed NIC one for the even and one for the odd domains."""
    ports = plan.nic_ports(switch.id)
    if len(ports) == 1:
        return [_ip_rule(plan, switch, level, None, match, ports[0], reason)]
    return [
        _ip_rule(
            plan,
            switch,
            level,
            None,
            with_plane_bit(match, Gpu(parity, 0)),
            ports[(parity + switch.domain) % 2],
            reason,
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
        return [*rules, _ip_rule(plan, switch, LEVEL_HASHED, None, EVERY_GPU, uplinks[0], "the only spine")]
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
            rules.append(_ip_rule(plan, switch, level, src, dst, port, "hashed"))
    return rules


def repair_rules(routes: Routes) -> dict[str, tuple[Rule, ...]]:
    """The rules to lay over the healthy ones under the routes' failures; only switches that need any are named."""
    tables = {}
    for switch_id, changed in routes.changes().items():
        rules = _Repair(routes, routes.fabric.switch_by_id[switch_id]).rules(changed)
        if rules:
            tables[switch_id] = rules
    return tables


class _Repair:
    """Works out the repair rules of one switch."""

    def __init__(self, routes: Routes, switch: Switch) -> None:
        self.routes = routes
        self.plan = routes.forwarding
        self.switch = switch

    def rules(self, changed: Iterable[Gpu]) -> tuple[Rule, ...]:
        """Rules for the destinations among ``changed`` whose next hop from here is not the healthy one."""
        single: dict[Slot, dict[Gpu, int | None]] = defaultdict(dict)
        rules: list[Rule] = []
        for dst in changed:
            healthy = self.plan.healthy_ports(self.switch, dst)
            ports = self.routes.preferred_ports(self.switch.id, dst)
            if ports == healthy:
                continue
            slot = slot_of(self.plan, self.switch, dst)
            if len(ports) > 1:
                rules += self._hashed(slot, dst, healthy, ports)
            else:
                single[slot][dst] = ports[0] if ports else None
        for slot, port_of in single.items():
            rules += self._grouped(slot, port_of)
        if self.switch.kind is SwitchKind.GPU and protected(self.plan):
            rules = [each for rule in rules for each in _told_apart(self.plan, self.switch, rule)]
        return tuple(rules)

    def _rule(self, priority: int, src: Selector | None, dst: Selector, port: int | None, reason: str = "") -> Rule:
        return _ip_rule(
            self.plan, self.switch, priority, src, dst, port, "partitioned" if port is None else reason or "repair"
        )

    def _hashed(self, slot: Slot, dst: Gpu, healthy: tuple[int, ...], ports: tuple[int, ...]) -> list[Rule]:
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

    def _grouped(self, slot: Slot, port_of: dict[Gpu, int | None]) -> list[Rule]:
        """Few rules for destinations of one healthy rule that now go out of a single port each, or nowhere."""
        left = dict(port_of)
        rules: list[Rule] = []
        if len(port_of) > 1:
            served = [gpu for gpu in self.plan.fabric.gpus if slot_of(self.plan, self.switch, gpu) == slot]
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
