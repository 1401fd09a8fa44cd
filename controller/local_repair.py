"""Local repair: what a switch does about a dead port by itself, in the milliseconds before the controller has acted.

Every rule sends its packets to a fast-failover group instead of a port. While the port is alive the group is the port;
when it is dead the packet is *marked* and sent another way: by another port if the switch has one that leads on, else
back to where it came from. Marked packets obey rules of their own, which stand above all others:

- GPU switch: what comes by NVLink leaves by the NIC, what comes by the NIC leaves by NVLink.
- NVSwitch: to the GPU on the destination's rail; what that very GPU has sent back, to a GPU on another rail.
- Rail switch: to the destination's domain; what that very domain has sent, to another domain.
- Leaf: to the destination below; else to a GPU of the destination's domain, which relays by NVLink; else up, by another
  uplink than the one it came from. Leaf that has all GPUs of a server: a dead GPU port is replaced by a sibling's.
- Leaf of a rail's own Clos with a dead GPU port: to another domain below, which relays over another rail; what comes
  from that very domain, to the next one.
- Spine: to the destination's leaf; what that very leaf has sent back, to the leaf of another rail.

A marked packet that meets a dead port is dropped, and the drop is counted by the group's last bucket. That is the proof
against loops: a packet is marked once, and the rules for marked packets, all choices of their groups included, contain
no cycle for any destination (a test walks them), so no set of failures and no mixture of rules can make one.

Not repaired locally, only by the controller: in a rail's own Clos, links of a domain that is alone below its leaves
(for traffic from other leaves), and links of a spine that is the only one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from controller.entries import (
    ABOVE_FROM_GPU,
    ALWAYS_GROUP_ID,
    ETH_TYPE_IPV4,
    IN_PORT,
    MARKED_AROUND,
    MARKED_BELOW,
    MARKED_DEFAULT,
    MARKED_DOMAIN,
    MARKED_FROM_UPLINK,
    MARKED_OWN_GPU,
    Action,
    Bucket,
    DecTtl,
    Group,
    Mark,
    Match,
    Output,
    Rule,
    ToGroup,
    Unmark,
    Unstamp,
)
from controller.forwarding import LEAF_KINDS, Forwarding
from controller.selectors import EVERY_GPU, Selector, domain_of, exact, rail_of
from controller.slots import slot_of
from topologies.model import HOST_PORT, NVLINK_PORT, FabricKind, Gpu, Switch, SwitchKind

MAX_CHOICES = 8
"""Ports that one group tries before it gives up."""

_KIND_BITS = 20
_PROTECTED, _FROM_GPU, _MARKED, _AROUND, _UP, _OTHER_UP, _FROM_NEXT = range(1, 8)


def _id(kind: int, port: int) -> int:
    return kind << _KIND_BITS | port


def protected(plan: Forwarding) -> bool:
    """Whether local repair is on; an ideal fabric has no second way, so there it never is."""
    return plan.policy.local_repair and plan.fabric.kind is not FabricKind.IDEAL


def port_action(plan: Forwarding, switch: Switch, port: int, from_gpu: bool = False) -> Action:
    """What sends a packet out of ``port``; ``from_gpu`` at a GPU switch for what the GPU itself sends."""
    if not protected(plan) or (switch.kind is SwitchKind.GPU and port == HOST_PORT):
        return Output(port)
    return ToGroup(_id(_FROM_GPU if from_gpu else _PROTECTED, port))


def delivery(marked: bool = False) -> tuple[Action, ...]:
    """The actions that hand a packet to its GPU as that was sent."""
    return (Unmark(), Unstamp(), Output(HOST_PORT)) if marked else (Unstamp(), Output(HOST_PORT))


def groups_of(plan: Forwarding, switch: Switch) -> tuple[Group, ...]:
    """All groups of a switch; they depend on no failure. The one that is always alive comes first."""
    return _Switch(plan, switch).groups() if protected(plan) else ()


def marked_rules(plan: Forwarding, switch: Switch) -> list[Rule]:
    """The rules for marked packets."""
    return _Switch(plan, switch).marked_rules() if protected(plan) else []


def from_stand_ins(plan: Forwarding, switch: Switch, level: int) -> list[Rule]:
    """Rules of a rail leaf just above ``level``: packets from the domain that stands in for their destination's."""
    if not protected(plan):
        return []
    return [
        Rule(
            level + ABOVE_FROM_GPU,
            Match(ETH_TYPE_IPV4, None, domain_of(Gpu(domain, 0)), in_port),
            (DecTtl(), ToGroup(group_id)),
            "below this leaf, from its stand-in",
        )
        for domain, in_port, group_id in _Switch(plan, switch).stand_in_rules()
    ]


def _after(ports: Sequence[int], first: int) -> list[int]:
    """The ports (in ascending order) that follow ``first``, around the end; as many as a group may try."""
    at = bisect_left(ports, first)
    return [ports[(at + step) % len(ports)] for step in range(1, min(len(ports), MAX_CHOICES + 1))]


class _Switch:
    """Works out groups and marked rules of one switch."""

    def __init__(self, plan: Forwarding, switch: Switch) -> None:
        self.plan = plan
        self.switch = switch
        self.uplinks = plan.uplinks(switch.id)
        self.ports = sorted(port for port, _, _ in plan.neighbours[plan.order[switch.id]])

    def groups(self) -> tuple[Group, ...]:
        always = Group(ALWAYS_GROUP_ID, (Bucket(None, ()),))
        found = [always]
        for port in self.ports:
            others = self._others(port)
            found.append(self._group(_PROTECTED, port, others, (Mark(), Output(IN_PORT))))
            if others and self._relays_below(port):
                found.append(self._group(_FROM_NEXT, port, others[1:], (Mark(), Output(IN_PORT))))
            if self.switch.kind is SwitchKind.GPU:
                ways = [*others, NVLINK_PORT] if port != NVLINK_PORT else self._nics()
                found.append(self._group(_FROM_GPU, port, ways, ()))
            found.append(self._group(_MARKED, port, self._equals(port), (), marked=True))
            if self.switch.kind is not SwitchKind.GPU and port not in self.uplinks:
                found.append(self._choice(_AROUND, port, self._around(port)))
        if self.uplinks:
            found.append(self._choice(_UP, 0, self.uplinks))
            found += [self._choice(_OTHER_UP, port, _after(self.uplinks, port)) for port in self.uplinks]
        return tuple(found)

    def _group(
        self, kind: int, port: int, others: Iterable[int], last: tuple[Action, ...], marked: bool = False
    ) -> Group:
        """``port`` while it is alive, else one of ``others`` (with a mark, unless it is set already), else ``last``."""
        ways = [way for way in others if way != port][: MAX_CHOICES - 1]
        buckets = [Bucket(port, (Output(port),))]
        buckets += [Bucket(way, (Output(way),) if marked else (Mark(), Output(way))) for way in ways]
        return Group(_id(kind, port), (*buckets, Bucket(None, last)))

    def _choice(self, kind: int, port: int, ways: Sequence[int]) -> Group:
        """Any of ``ways``, for packets that have their mark."""
        buckets = [Bucket(way, (Output(way),)) for way in ways[:MAX_CHOICES]]
        return Group(_id(kind, port), (*buckets, Bucket(None, ())))

    def _nics(self) -> list[int]:
        return self.plan.nic_ports(self.switch.id)

    def _equals(self, port: int) -> list[int]:
        """Ports that lead to the same next switch as ``port`` (or, for a dual-homed NIC, to the same rail)."""
        if self.switch.kind is SwitchKind.GPU:
            return _after(self._nics(), port) if port in self._nics() else []
        if port in self.uplinks:
            return []
        ports = self.plan.ports_beside(self.switch.id, port)
        return _after(ports, port)

    def _others(self, port: int) -> list[int]:
        """Ports that can stand in for ``port`` at once, in order of preference."""
        if port in self.uplinks:
            return _after(self.uplinks, port)
        if self.switch.kind is SwitchKind.LEAF and self.plan.fabric.kind is FabricKind.SPINE_LEAF:
            below = self.plan.gpus_below(self.switch.id)
            domain = next(gpu.domain for gpu, down in below.items() if down == port)
            siblings = [down for gpu, down in below.items() if gpu.domain == domain]
            return _after(siblings, port)
        if self._relays_below(port):
            return _after([way for way in self.ports if way not in self.uplinks], port)
        return self._equals(port)

    def _relays_below(self, port: int) -> bool:
        """Whether another domain below this leaf stands in for the one at ``port``."""
        return self.switch.kind is SwitchKind.RAIL_LEAF and port not in self.uplinks

    def stand_in_rules(self) -> list[tuple[int, int, int]]:
        """(domain, in-port, group) where what comes from the stand-in for a domain needs another stand-in."""
        found = []
        for domain, port in self.plan.domains_below(self.switch.id).items():
            others = self._others(port) if self._relays_below(port) else []
            if others:
                found.append((domain, others[0], _id(_FROM_NEXT, port)))
        return found

    def _around(self, port: int) -> list[int]:
        """Where a marked packet goes that came by ``port`` and whose rule would send it back there."""
        kind = self.switch.kind
        if kind in (SwitchKind.NVSWITCH, SwitchKind.RAIL):
            return _after(self.ports, port)
        if kind is SwitchKind.RAIL_LEAF:
            return _after([way for way in self.ports if way not in self.uplinks], port)
        if kind is SwitchKind.LEAF and self.plan.fabric.kind is FabricKind.RAIL_OPTIMIZED:
            return list(self.uplinks)
        if kind is SwitchKind.SPINE and self.plan.fabric.kind is FabricKind.RAIL_OPTIMIZED:
            return self.plan.ports_to_other_rails(self.switch.id, port)
        return []

    def _rule(
        self, priority: int, kind: int, port: int, dst: Selector | None, in_port: int | None, reason: str
    ) -> Rule:
        match = Match(ETH_TYPE_IPV4, None, dst, in_port, marked=True)
        ttl = () if self.switch.kind is SwitchKind.GPU else (DecTtl(),)
        return Rule(priority, match, (*ttl, ToGroup(_id(kind, port))), f"turned back, {reason}")

    def marked_rules(self) -> list[Rule]:
        kind = self.switch.kind
        if kind is SwitchKind.GPU:
            return self._marked_of_gpu()
        if kind is SwitchKind.NVSWITCH:
            port_of = {Gpu(self.switch.domain, port - 1): port for port in self.ports}
            return self._marked_to({rail_of(gpu): port for gpu, port in port_of.items()}, "to the destination's rail")
        if kind in (SwitchKind.RAIL, SwitchKind.RAIL_LEAF):
            below = self.plan.domains_below(self.switch.id)
            rules = self._marked_to(
                {domain_of(Gpu(domain, 0)): port for domain, port in below.items()}, "to the destination's domain"
            )
            return rules + self._marked_up()
        if kind in LEAF_KINDS:
            return self._marked_of_leaf()
        return self._marked_of_spine()

    def _marked_to(self, port_of: dict[Selector, int], reason: str) -> list[Rule]:
        rules = [
            self._rule(MARKED_AROUND, _AROUND, port, dst, port, "by another way than it came")
            for dst, port in port_of.items()
        ]
        return rules + [self._rule(MARKED_DOMAIN, _MARKED, port, dst, None, reason) for dst, port in port_of.items()]

    def _marked_up(self) -> list[Rule]:
        if not self.uplinks:
            return []
        rules = [
            self._rule(MARKED_FROM_UPLINK, _OTHER_UP, port, EVERY_GPU, port, "by another uplink")
            for port in self.uplinks
        ]
        return [*rules, self._rule(MARKED_DEFAULT, _UP, 0, EVERY_GPU, None, "by any uplink")]

    def _marked_of_gpu(self) -> list[Rule]:
        gpu = Gpu(self.switch.domain, self.switch.rail)
        own = Match(ETH_TYPE_IPV4, None, exact(gpu), marked=True)
        nics = self._nics()
        return [
            Rule(MARKED_OWN_GPU, own, delivery(marked=True), "own GPU, turned back on the way"),
            self._rule(MARKED_DEFAULT, _MARKED, nics[0], EVERY_GPU, NVLINK_PORT, "from NVLink to the NIC"),
            *(self._rule(MARKED_DEFAULT, _MARKED, NVLINK_PORT, EVERY_GPU, nic, "from the NIC to NVLink")
              for nic in nics),
        ]  # fmt: skip

    def _marked_of_leaf(self) -> list[Rule]:
        below = self.plan.gpus_below(self.switch.id)
        rules = [self._rule(MARKED_BELOW, _MARKED, port, exact(gpu), None, "below") for gpu, port in below.items()]
        if self.plan.fabric.kind is FabricKind.RAIL_OPTIMIZED:
            rules += self._marked_to(
                {domain_of(gpu): port for gpu, port in below.items()}, "to a GPU of the destination's domain"
            )
        return rules + self._marked_up()

    def _marked_of_spine(self) -> list[Rule]:
        port_of: dict[Selector, int] = {}
        for dst in self.plan.fabric.gpus:
            port_of.setdefault(self._spine_selector(dst), self.plan.healthy_ports(self.switch, dst)[0])
        rules = []
        for dst_selector, first in port_of.items():
            for port in self.plan.ports_beside(self.switch.id, first):
                rules.append(
                    self._rule(MARKED_AROUND, _AROUND, port, dst_selector, port, "by another leaf than it came from")
                )
            rules.append(self._rule(MARKED_DOMAIN, _MARKED, first, dst_selector, None, "to the destination's leaf"))
        return rules

    def _spine_selector(self, dst: Gpu) -> Selector:
        """The destinations on the leaf of ``dst``, as narrowly as one match can name them."""
        match = slot_of(self.plan, self.switch, dst).match
        return self.plan.dst_selector(self.switch, dst) if match == EVERY_GPU else match
