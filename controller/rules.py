"""Rules: routes turned into flow table entries.

The healthy tables are masked matches in closed form. After a failure the healthy rules stay, and rules of higher
priority are laid over them only where a next hop differs; so a repair is few rules, and taking them away restores.

A healthy rule has a *level* (its priority). The rules that repair its destinations sit between its level and the
next one: see :mod:`controller.repairs`.

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

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from controller.entries import (
    ABOVE_FROM_GPU,
    ARP_REQUEST,
    ETH_TYPE_ARP,
    ETH_TYPE_IPV4,
    LEVEL_DEFAULT,
    LEVEL_DOMAIN,
    LEVEL_EXACT,
    LEVEL_HASHED,
    LEVEL_HASHED_ANY_SOURCE,
    LEVEL_OWN_GPU,
    LEVEL_RAIL,
    PRIORITY_ARP,
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
from controller.forwarding import LEAF_KINDS, Forwarding, forwarding
from controller.local_repair import delivery, from_stand_ins, groups_of, marked_rules, port_action, protected
from controller.placed import placed_rules
from controller.policy import Relay, RoutingPolicy
from controller.selectors import EVERY_GPU, Selector, domain_of, exact, rail_of, with_plane_bit, with_rail_bit
from controller.slots import slot_of
from topologies.model import HOST_PORT, NVLINK_PORT, Fabric, FabricKind, Gpu, Switch, SwitchKind

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


def stamp_rule(version: int) -> Rule:
    """The rule of a GPU switch that puts what its GPU sends on the routes of ``version``."""
    match = Match(ETH_TYPE_IPV4, None, EVERY_GPU, HOST_PORT, version=0)
    return Rule(PRIORITY_STAMP, match, (Stamp(version),), "routes in force")


@lru_cache(maxsize=4)
def healthy_rules(fabric: Fabric, policy: RoutingPolicy) -> RuleTables:
    """The rules of every switch when nothing is broken, in closed form."""
    plan = forwarding(fabric, policy)
    placed = placed_rules(fabric, policy) if policy.placement is not None else {}
    return LazyTables(fabric, lambda switch: _healthy_table(plan, switch) + placed.get(switch.id, ()))


def _healthy_table(plan: Forwarding, switch: Switch) -> tuple[Rule, ...]:
    rules = [Rule(PRIORITY_TABLE_MISS, Match(), (), "table-miss")]
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
        rules = [each for rule in rules for each in told_apart(plan, switch, rule)]
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
    return Rule(priority, Match(ETH_TYPE_IPV4, src, dst), actions, reason)


def told_apart(plan: Forwarding, switch: Switch, rule: Rule) -> tuple[Rule, ...]:
    """A GPU switch's rule twice: for what passes through, and above it for what the GPU itself sends."""
    for port in (NVLINK_PORT, *plan.nic_ports(switch.id)):
        if rule.actions == (port_action(plan, switch, port),):
            sent = rule.match._replace(in_port=HOST_PORT)
            way = (port_action(plan, switch, port, from_gpu=True),)
            return rule, Rule(rule.priority + ABOVE_FROM_GPU, sent, way, rule.reason)
    return (rule,)


def _gpu_switch_rules(plan: Forwarding, switch: Switch) -> list[Rule]:
    gpu = Gpu(switch.domain, switch.rail)
    arp = Match(ETH_TYPE_ARP, None, EVERY_GPU, HOST_PORT, ARP_REQUEST)
    rules = [
        Rule(PRIORITY_ARP, arp, (ArpReply(),), "ARP answer"),
        Rule(LEVEL_EXACT, Match(ETH_TYPE_IPV4, None, exact(gpu)), delivery(), "own GPU"),
        _ip_rule(plan, switch, LEVEL_DOMAIN, None, domain_of(gpu), NVLINK_PORT, "own domain by NVLink"),
    ]
    if plan.fabric.kind is FabricKind.IDEAL:
        return rules
    near, far = "relay in the own domain", "relay in the destination's domain"
    if plan.relay in (Relay.SOURCE, Relay.BALANCED):
        rules += _nic_rules(plan, switch, LEVEL_RAIL, rail_of(gpu), "own rail by NIC")
    if plan.relay is Relay.SOURCE:
        rules.append(_ip_rule(plan, switch, LEVEL_DEFAULT, None, EVERY_GPU, NVLINK_PORT, near))
    elif plan.relay is Relay.BALANCED:
        rails_alike, other_rails = (with_rail_bit(EVERY_GPU, rail) for rail in (gpu.rail, gpu.rail + 1))
        rules.append(_ip_rule(plan, switch, LEVEL_DEFAULT, None, rails_alike, NVLINK_PORT, near))
        rules += _nic_rules(plan, switch, LEVEL_DEFAULT, other_rails, far)
    else:
        reason = far if plan.relay is Relay.DESTINATION else "other domains by NIC"
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
    rules += from_stand_ins(plan, switch, LEVEL_OWN_GPU)
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
        for port, (sources, _) in plan.healthy_shares(switch, dst, ports).items():
            for src in sources:
                level = LEVEL_HASHED_ANY_SOURCE if src is None else LEVEL_HASHED
                rules.append(_ip_rule(plan, switch, level, src, dst, port, "hashed"))
    return rules
