"""Rules of placed connections: where a connection leaves a switch by another port than its pair does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from controller.entries import ABOVE_PLACED, ABOVE_PLACED_HEALTHY, ETH_TYPE_IPV4, DecTtl, Match, Rule
from controller.local_repair import port_action
from controller.path_hash import absorbed, chosen, mixed
from controller.placement import CHANNEL_BASE_PORT, Connection, Placement
from controller.policy import RoutingPolicy
from controller.routing import Routes
from controller.selectors import exact
from controller.slots import slot_of
from topologies.model import HOST_PORT, Fabric, Switch, SwitchKind

_CHANNEL_SALT = {
    SwitchKind.GPU: 5,
    SwitchKind.LEAF: 3,
    SwitchKind.RAIL_LEAF: 3,
    SwitchKind.SPINE: 4,
    SwitchKind.RAIL_SPINE: 4,
}

Ways = dict[str, dict[Connection, int]]
"""By switch id, the ports of connections."""


@lru_cache(maxsize=4)
def placed_rules(fabric: Fabric, policy: RoutingPolicy) -> dict[str, tuple[Rule, ...]]:
    """By switch id, the rules of placed connections when nothing is broken; they yield to every repair."""
    routes = Routes(fabric, policy=policy)
    _, apart = _ways(routes)
    return {
        switch_id: tuple(
            _rule(routes, switch_id, each, port, ABOVE_PLACED_HEALTHY, None) for each, port in ports.items()
        )
        for switch_id, ports in apart.items()
    }


def placed_repairs(routes: Routes, version: int, base: Placement | None) -> dict[str, tuple[Rule, ...]]:
    """By switch id, the rules of one version that placed connections need beside the healthy ones and the repairs.

    The healthy rules are those of the placement ``base``, which may be another one than that of ``routes``; its
    connections that ``routes`` no longer place go the way of their pairs.
    """
    _, apart_before = _ways(Routes(routes.fabric, policy=replace(routes.policy, placement=base)))
    now, apart_now = _ways(routes, base.links_of if base is not None else ())
    found: dict[str, list[Rule]] = defaultdict(list)
    for switch_id, ports in now.items():
        before, apart = apart_before.get(switch_id, {}), apart_now.get(switch_id, {})
        for each, port in ports.items():
            as_before = before.get(each) == port and not _pair_is_moved(routes, switch_id, each)
            if (each in before or each in apart) and not as_before:
                found[switch_id].append(_rule(routes, switch_id, each, port, ABOVE_PLACED, version))
    return {switch_id: tuple(rules) for switch_id, rules in found.items()}


def hashed_placement(
    fabric: Fabric, policy: RoutingPolicy, connections: list[Connection], base_port: int = CHANNEL_BASE_PORT
) -> Placement:
    """What a network that hashes every connection by itself does: path key (source, destination, channel).

    The policy's seed salts the hash, tier by tier, apart from the hash of undeclared traffic.
    """
    routes = Routes(fabric, policy=policy)
    ways: dict[Connection, list[str]] = {}
    for each in connections:
        links: list[str] = []
        ends = (each.src.domain, each.src.rail, each.dst.domain, each.dst.rail)
        switch = fabric.switch_by_id[each.src.switch_id]
        while switch.id != each.dst.switch_id:
            ports = _hashed_ports(routes, switch, each)
            words = (_CHANNEL_SALT.get(switch.kind, 0), switch.dpid, *ends, each.channel)
            key = absorbed(mixed(policy.seed & (1 << 64) - 1), words)
            link = fabric.link_by_port[switch.id, chosen(key, ports, ports)]
            if len(ports) > 1:
                links.append(link.id)
            switch = fabric.switch_by_id[link.other(switch.id)]
        ways[each] = links
    return Placement.of(ways, base_port)


def _hashed_ports(routes: Routes, switch: Switch, each: Connection) -> tuple[int, ...]:
    """The ports that a connection is hashed over: what policy prefers, and both uplinks of a dual-homed NIC."""
    ports = routes.preferred_ports(switch.id, each.dst)
    if switch.kind is not SwitchKind.GPU:
        return ports
    uplinks = routes.forwarding.nic_ports(switch.id)
    if not set(ports) <= set(uplinks):
        return ports
    return tuple(port for port in routes.ports(switch.id, each.dst) if port in uplinks)


def _ways(routes: Routes, others: Iterable[Connection] = ()) -> tuple[Ways, Ways]:
    """(ports of placed connections and of ``others``, those that are not the ports of their pairs), by switch id."""
    ports: Ways = defaultdict(dict)
    apart: Ways = defaultdict(dict)
    placement = routes.policy.placement
    for each in dict.fromkeys((*(placement.links_of if placement is not None else ()), *others)):
        path = routes.path(each.src, each.dst, each.channel)
        for hop in path.hops if path is not None else ():
            ports[hop.switch_id][each] = hop.out_port
            if hop.out_port != routes.next_port(hop.switch_id, each.src, each.dst):
                apart[hop.switch_id][each] = hop.out_port
    return ports, apart


def _pair_is_moved(routes: Routes, switch_id: str, each: Connection) -> bool:
    """Whether a repair stands in the way of the connection's healthy rule."""
    switch = routes.fabric.switch_by_id[switch_id]
    if routes.preferred_ports(switch_id, each.dst) != routes.forwarding.healthy_ports(switch, each.dst):
        return True
    return (switch_id, each.src, each.dst) in routes.spread.pairs


def _rule(routes: Routes, switch_id: str, each: Connection, port: int, above: int, version: int | None) -> Rule:
    plan, placement = routes.forwarding, routes.policy.placement
    assert placement is not None
    switch = routes.fabric.switch_by_id[switch_id]
    of_gpu = switch.kind is SwitchKind.GPU
    sends = switch_id == each.src.switch_id
    match = Match(
        ETH_TYPE_IPV4, exact(each.src), exact(each.dst), HOST_PORT if sends else None,
        version=version, tcp_dst=placement.tcp_port(each.channel),
    )  # fmt: skip
    way = port_action(plan, switch, port, from_gpu=sends)
    priority = slot_of(plan, switch, each.dst).level + above
    return Rule(priority, match, (way,) if of_gpu else (DecTtl(), way), f"placed, channel {each.channel}")
