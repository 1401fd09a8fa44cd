"""The keeper against switches in memory: every message its own step, in any order across switches."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from itertools import permutations
from typing import Any

import networkx as nx

from controller import openflow
from controller.app import order_messages
from controller.entries import Rule
from controller.fake import AT, FakeFabric, Outcome, encoded_group, encoded_rule, ip_packet
from controller.framework import PROTOCOL
from controller.keeper import CALM_S, AskPorts, Held, Keeper, Orders, Stage
from controller.openflow import group_steps, rule_identity, steps
from controller.policy import RoutingPolicy
from controller.repairs import rules_for
from controller.routing import Routes
from controller.rules import groups_for
from topologies.model import Fabric, Gpu, LinkKind

Status = tuple[int, bool] | None
"""A port and whether it is usable; None: the answer to the question for all ports."""


def connected_pairs(fabric: Fabric, links_down: frozenset[str] | set[str]) -> set[tuple[Gpu, Gpu]]:
    """The graph's truth: ordered pairs of GPUs that some path of live links joins."""
    graph: nx.MultiGraph = nx.MultiGraph()
    graph.add_nodes_from(gpu.id for gpu in fabric.gpus)
    graph.add_edges_from((link.a, link.b) for link in fabric.links if link.id not in links_down)
    part = {node: index for index, nodes in enumerate(nx.connected_components(graph)) for node in nodes}
    return {(src, dst) for src, dst in permutations(fabric.gpus, 2) if part[src.id] == part[dst.id]}


@lru_cache(maxsize=1 << 16)
def encoded_delete(rule: Rule) -> bytes:
    message = openflow.flow_delete(PROTOCOL, rule.priority, rule.match)
    message.set_xid(0)
    message.serialize()
    return bytes(message.buf)


def encoded(order: Orders) -> list[bytes]:
    """The messages of an order as bytes; those that recur are encoded once."""
    found = [encoded_group(group) for group in order.groups_added]
    found += [encoded_rule(rule) for rule in order.rules_added]
    found += [encoded_delete(origin) for origin in order.deleted]
    rest = Orders(order.switch_id, order.token, (), order.groups_modified, (), (), order.groups_deleted)
    for message in order_messages(PROTOCOL, rest, 0):
        message.set_xid(0)
        message.serialize()
        found.append(bytes(message.buf))
    return found


class Driver:
    """Runs a keeper; ``seed`` decides the order of everything that may be ordered in several ways."""

    def __init__(self, fabric: Fabric, policy: RoutingPolicy | None = None, seed: object = 0) -> None:
        self.fabric = fabric
        self.random = random.Random(str(seed))
        self.fake = FakeFabric(fabric)
        self.now_s = 0.0
        self.events: list[dict[str, Any]] = []
        self.policy = policy or RoutingPolicy()
        self.to_switch: dict[str, deque[tuple[bytes, int | None]]] = {}
        self.to_keeper: dict[str, list[Status]] = {}
        self.sent: dict[str, dict[Any, Rule]] = {}
        self.new_keeper()

    def emit(self, event: str, **fields: Any) -> None:
        self.events.append({"event": event, **fields})

    def new_keeper(self) -> None:
        """A controller that starts anew; what was under way to or from the old one is lost."""
        self.keeper = Keeper(self.fabric, self.policy, self.emit, lambda: self.now_s)
        self.to_switch = {switch_id: deque() for switch_id in self.fake.switches}
        self.to_keeper = {switch_id: [] for switch_id in self.fake.switches}

    def connect(self, switch_id: str, held: bool = False) -> None:
        """A switch connects; with ``held`` it tells flows and groups as this driver had them installed."""
        self.to_switch[switch_id].clear()
        self.to_keeper[switch_id].clear()
        self.keeper.connect(switch_id)
        self.keeper.set_ports(switch_id, self.states(switch_id), every=True)
        flows, groups = self.held(switch_id) if held else ({}, {})
        self.keeper.read(switch_id, flows, groups)
        self.drain()

    def held(self, switch_id: str) -> tuple[dict[Any, Held], dict[int, Any]]:
        """What a switch holds, told by the rules whose messages it was sent."""
        switch = self.fake.switches[switch_id]
        known = {(flow.priority, flow.shape, flow.values): flow for flow in switch.flows()}
        flows = {}
        for rule in self.sent.get(switch_id, {}).values():
            data = encoded_rule(rule)
            flow = self.fake.parsed(data)
            there = known.get((flow.priority, flow.shape, flow.values))
            if there is not None:
                flows[rule_identity(rule)] = Held(there.steps, rule)
        return flows, {group_id: group.buckets for group_id, group in switch.groups.items()}

    def connect_all(self) -> None:
        for switch_id in self.fake.switches:
            self.connect(switch_id)
        self.settle()

    def drain(self) -> None:
        """Take the keeper's orders into the switches' queues."""
        for order in self.keeper.take():
            if isinstance(order, AskPorts):
                self.to_keeper[order.switch_id].append(None)
                continue
            for rule in order.rules_added:
                self.sent.setdefault(order.switch_id, {})[rule_identity(rule)] = rule
            queue = self.to_switch[order.switch_id]
            queue.extend((data, None) for data in encoded(order))
            queue.append((b"", order.token))

    def states(self, switch_id: str) -> dict[int, bool]:
        dead = self.fake.switches[switch_id].dead_ports
        return {port: port not in dead for port in self.fake.switches[switch_id].ports}

    def set_link(self, link_id: str, up: bool, tell: bool = True) -> None:
        """A link fails or comes back; both of its switches have it to tell."""
        self.fake.set_link(link_id, up)
        link = self.fabric.link(link_id)
        for end in (link.a, link.b):
            if tell and end in self.to_keeper:
                self.to_keeper[end].append((link.port(end), up))

    def step(self) -> bool:
        """One message at one switch, or one word to the keeper, or some time; False when nothing is under way."""
        busy = [switch_id for switch_id, queue in self.to_switch.items() if queue]
        telling = [switch_id for switch_id, words in self.to_keeper.items() if words]
        if not busy and not telling:
            if self.keeper.calming:
                self.advance(CALM_S)
                return True
            return False
        if self.random.random() < 0.05:
            self.advance(0.01)
        if telling and (not busy or self.random.random() < len(telling) / (len(busy) + len(telling))):
            switch_id = self.random.choice(telling)
            word = self.to_keeper[switch_id].pop(0)
            if word is None:
                self.keeper.set_ports(switch_id, self.states(switch_id), every=True)
            else:
                self.keeper.set_ports(switch_id, dict([word]))
        else:
            switch_id = self.random.choice(busy)
            data, token = self.to_switch[switch_id].popleft()
            if token is None:
                self.fake.switches[switch_id].apply(data)
            else:
                self.keeper.confirm(switch_id, token)
        self.drain()
        return True

    def run(self) -> None:
        """Until nothing is under way."""
        while self.step():
            pass

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        self.keeper.tick()
        self.drain()

    def unused(self) -> frozenset[str]:
        """Links that no path may use: down, or out of service."""
        return self.keeper.drained.union(self.fake.links_down)

    def settle(self) -> None:
        """Until the keeper has nothing left to do and has asked all switches again."""
        for _ in range(60):
            self.run()
            asked = self.now_s
            self.advance(0.5)
            self.run()
            if self.keeper.stage is Stage.SETTLED and self.keeper.links_down() == self.unused() and asked > 0:
                return
        raise AssertionError(f"not settled: {self.keeper.stage}, {self.keeper.links_down()}, {self.fake.links_down}")

    def outcomes(self) -> dict[tuple[Gpu, Gpu], Outcome]:
        return {(src, dst): self.fake.send(src, dst).outcome for src, dst in permutations(self.fabric.gpus, 2)}

    def check_converged(self) -> None:
        """The switches hold exactly the wanted rules, and the pairs that get through are the graph's truth."""
        wanted = rules_for(self.keeper.routes, self.keeper.version, self.policy)
        for switch_id, switch in self.fake.switches.items():
            held = {(flow.priority, flow.shape, flow.values, flow.steps) for flow in switch.flows()}
            right = set()
            for rule in wanted[switch_id]:
                flow = self.fake.parsed(encoded_rule(rule))
                assert flow.steps == steps(rule.actions)
                right.add((flow.priority, flow.shape, flow.values, flow.steps))
            assert held == right, switch_id
            groups = {group.group_id: group_steps(group) for group in groups_for(self.fabric, self.policy)[switch_id]}
            assert {group_id: group.buckets for group_id, group in switch.groups.items()} == groups
        truth = connected_pairs(self.fabric, self.unused())
        for pair, outcome in self.outcomes().items():
            assert (outcome is Outcome.DELIVERED) == (pair in truth), (pair, outcome)


_healthy: dict[tuple[Fabric, RoutingPolicy], FakeFabric] = {}


def healthy_fabric(fabric: Fabric, policy: RoutingPolicy) -> FakeFabric:
    """A fabric in memory with its groups and healthy rules."""
    known = _healthy.get((fabric, policy))
    if known is None:
        known = _healthy[fabric, policy] = FakeFabric(fabric)
        known.load(rules_for(Routes(fabric, policy=policy)), groups_for(fabric, policy))
    return known.copy()


def repaired_fabric(routes: Routes) -> FakeFabric:
    """A fabric in memory with all rules for ``routes``, and its broken links down."""
    fake = healthy_fabric(routes.fabric, routes.policy)
    healthy = rules_for(Routes(routes.fabric, policy=routes.policy))
    for switch_id, rules in rules_for(routes).items():
        for rule in rules[len(healthy[switch_id]) :]:
            fake.install(switch_id, rule)
    for link_id in routes.links_down:
        fake.set_link(link_id, up=False)
    return fake


def loop_for(fake: FakeFabric, dst: Gpu, versions: Iterable[int] = (0,)) -> list[tuple[str, int]] | None:
    """A cycle on the (switch, in-port) graph of packets for ``dst``, whoever sent them and wherever they are."""
    for version in versions:
        for src in fake.fabric.gpus:
            if src == dst:
                continue
            for switch_id, switch in fake.switches.items():
                for in_port in switch.ports:
                    packet = ip_packet(src, dst, in_port=in_port)
                    packet[AT["eth_src"]] |= version << 8
                    walk = fake.follow(switch_id, packet, dst)
                    if walk.outcome is Outcome.LOOP:
                        return [(hop.switch_id, hop.in_port) for hop in walk.hops]
    return None


def targets(fabric: Fabric) -> list[str]:
    """Links that may fail."""
    return [link.id for link in fabric.links if link.kind is not LinkKind.HOST]
