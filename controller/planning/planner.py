"""The planner: even load over all usable paths, for all jobs together.

A plan keeps the sum of a steep convex function of the lanes' loads small. It first gives every channel, one after
the other, the path on which the sum grows least (the least loaded one); then channels move while a move lowers the sum;
then each demand shifts bytes from its dearest channels to its cheapest. The sum falls with every step, so this ends.
What decides how long a round takes is the busiest lane: the tests hold it against a linear program.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from controller.placed import hashed_placement
from controller.placement import CHANNEL_BASE_PORT, Connection, Placement
from controller.planning.traffic import Demand, Flow, Lane, Loads, Plan, add_load, check_demands, lanes_of
from controller.planning.usable import UsablePaths
from controller.policy import RoutingPolicy
from controller.routing import Routes
from topologies.model import NO_FAILURES, Fabric, Failures

STEEPNESS = (6, 24)
"""Powers of the load in the function that is kept small, one after the other. The higher, the more the busiest
lane alone counts; the lower, the more a step changes."""

SWEEPS = 12
"""Rounds of moving channels and shifting bytes at most."""

LEAST_GAIN = 1e-4
"""A sweep that lowers the sum by less than this share of it is the last one."""

TIES = 1e-6
"""Share by which costs are varied, seeded, so that equals are told apart."""

WORTH_MOVING = 0.05
"""Share by which a new plan must shorten a round before connections are moved for an imbalance."""


def hashed(fabric: Fabric, demands: Sequence[Demand], policy: RoutingPolicy, failures: Failures = NO_FAILURES) -> Plan:
    """What a network does that plans nothing: every channel on the path of its own hash, with equal bytes."""
    connections = [each for demand in demands for each in demand.connections]
    return followed(fabric, demands, hashed_placement(fabric, policy, connections), policy, failures)


def followed(
    fabric: Fabric,
    demands: Sequence[Demand],
    placement: Placement,
    policy: RoutingPolicy,
    failures: Failures = NO_FAILURES,
    bytes_of: Mapping[Connection, float] | None = None,
) -> Plan:
    """Where the routing takes the channels under ``failures`` with a placement that stays as it is.

    ``bytes_of`` are the bytes of the channels; without it they are equal within a demand.
    """
    check_demands(fabric, demands, placement.base_port)
    routes = Routes(fabric, failures, replace(policy, placement=placement))
    all_flows, lost = [], []
    for demand in demands:
        flows = []
        for each in demand.connections:
            path = routes.path(*each)
            size_bytes = bytes_of[each] if bytes_of is not None else demand.size_bytes / demand.channels
            if path is None:
                lost.append(each)
            else:
                flows.append(Flow(each, lanes_of(fabric, path), size_bytes))
        all_flows.append(tuple(flows))
    return Plan(tuple(demands), tuple(all_flows), placement, tuple(lost))


def planned(
    fabric: Fabric,
    demands: Sequence[Demand],
    policy: RoutingPolicy,
    failures: Failures = NO_FAILURES,
    *,
    background: Loads | None = None,
    reweight: bool = True,
    base_port: int = CHANNEL_BASE_PORT,
) -> Plan:
    """A plan for all demands under ``failures``, made from nothing.

    ``background`` are bytes that others send on the lanes while one round lasts, measured or known. Without
    ``reweight`` all channels of a demand carry equally much. Raises PlanningError and PlacementError
    for demands that do not fit.
    """
    check_demands(fabric, demands, base_port)
    return _Planning(fabric, demands, policy, failures, background, base_port).plan({}, reweight)


def replanned(
    plan: Plan,
    fabric: Fabric,
    policy: RoutingPolicy,
    failures: Failures = NO_FAILURES,
    *,
    background: Loads | None = None,
    reweight: bool = True,
) -> Plan:
    """A plan for what has changed since ``plan``: other failures, other background.

    It starts from the paths that channels have and that are still usable, so that few of them move.
    """
    kept = {flow.connection: flow for flows in plan.flows for flow in flows}
    planning = _Planning(fabric, plan.demands, policy, failures, background, plan.placement.base_port)
    return planning.plan(kept, reweight)


def replanned_if_worth(
    plan: Plan, fabric: Fabric, policy: RoutingPolicy, failures: Failures, background: Loads
) -> Plan | None:
    """A new plan for a measured imbalance, or None where it would not shorten a round by :data:`WORTH_MOVING`.

    ``background`` are the bytes measured on each lane in one round beyond those of the plan.
    """
    candidate = replanned(plan, fabric, policy, failures, background=background)
    before, after = plan.busiest_s(fabric, background), candidate.busiest_s(fabric, background)
    return candidate if after < (1 - WORTH_MOVING) * before else None


def moved(before: Plan, after: Plan) -> tuple[Connection, ...]:
    """The connections of ``before`` whose path in ``after`` is another one, or none."""
    lanes = {flow.connection: flow.lanes for flows in after.flows for flow in flows}
    flows = (flow for flows in before.flows for flow in flows)
    return tuple(flow.connection for flow in flows if lanes.get(flow.connection) != flow.lanes)


class _Planning:
    """One computation: ``loads`` are in units of an even load of the busiest demand, so that powers stay small."""

    def __init__(
        self,
        fabric: Fabric,
        demands: Sequence[Demand],
        policy: RoutingPolicy,
        failures: Failures,
        background: Loads | None,
        base_port: int,
    ) -> None:
        self.fabric, self.demands, self.base_port = fabric, tuple(demands), base_port
        plain = replace(policy, placement=None)
        self.usable = UsablePaths(Routes(fabric, failures, plain))
        # What is broken may be known to the planner alone: links are named wherever there would be a choice.
        self.healthy = UsablePaths(Routes(fabric, policy=plain)) if failures != NO_FAILURES else self.usable
        self.loads: dict[Lane, float] = dict(background or {})
        self.flows: list[list[Flow]] = []
        self._power = STEEPNESS[0]
        self._random = random.Random(policy.seed)
        self._unit: dict[str, float] = {}
        slowest = min((link.rate_mbps for link in fabric.links), default=1.0)
        most = max((demand.size_bytes for demand in self.demands), default=1.0)
        self._full = most / slowest

    def plan(self, kept: Mapping[Connection, Flow], reweight: bool) -> Plan:
        lost: list[Connection] = []
        for demand in self.demands:
            flows: list[Flow] = []
            self.flows.append(flows)
            if not self.usable.connected(demand.src, demand.dst):
                lost += demand.connections
                continue
            for each in demand.connections:
                had = kept.get(each)
                size_bytes = had.size_bytes if had and reweight else demand.size_bytes / demand.channels
                if had and self._is_usable(each, had.lanes):
                    flows.append(Flow(each, had.lanes, size_bytes))
                else:
                    flows.append(Flow(each, (), size_bytes))
            add_load(self.loads, flows)
        for flows in self.flows:
            for at, flow in enumerate(flows):
                if not flow.lanes:
                    self._move(flows, at)
        for self._power in STEEPNESS:
            self._settle(reweight)
        ways = {
            flow.connection: self.usable.choices(flow.connection.dst, flow.lanes)
            | self.healthy.choices(flow.connection.dst, flow.lanes)
            for flows in self.flows
            for flow in flows
        }
        every = {each: ways.get(each, frozenset()) for demand in self.demands for each in demand.connections}
        found = tuple(tuple(flows) for flows in self.flows)
        return Plan(self.demands, found, Placement.of(every, self.base_port), tuple(lost))

    def _is_usable(self, each: Connection, lanes: tuple[Lane, ...]) -> bool:
        here = each.src.switch_id
        for lane in lanes:
            there = dict(self.usable.steps(here, each.dst)).get(lane)
            if there is None:
                return False
            here = there
        return here == each.dst.switch_id

    def _settle(self, reweight: bool) -> None:
        value = self._value()
        for _ in range(SWEEPS):
            for flows in self.flows:
                for at in range(len(flows)):
                    self._move(flows, at)
            if reweight:
                for flows in self.flows:
                    self._shift(flows)
            before, value = value, self._value()
            if value > before * (1 - LEAST_GAIN):
                return

    def _level(self, lane: Lane, more_bytes: float = 0.0) -> float:
        unit = self._unit.get(lane[0])
        if unit is None:
            unit = self._unit[lane[0]] = 1 / (self.fabric.link(lane[0]).rate_mbps * self._full)
        return (self.loads.get(lane, 0.0) + more_bytes) * unit

    def _value(self) -> float:
        return sum(float(self._level(lane) ** self._power) for lane in self.loads)

    def _growth(self, lane: Lane, size_bytes: float) -> float:
        return float(self._level(lane, size_bytes) ** self._power - self._level(lane) ** self._power)

    def _cost(self, lanes: Iterable[Lane], size_bytes: float) -> float:
        return sum(self._growth(lane, size_bytes) for lane in lanes)

    def _move(self, flows: list[Flow], at: int) -> None:
        """Give one flow the path on which its bytes cost least; it stays where another is not cheaper."""
        flow = flows[at]
        add_load(self.loads, (flow,), -1)
        each, size_bytes = flow.connection, flow.size_bytes
        # Ties go by lot: in port order, a demand's channels would all meet equal loads, and shifting had no effect.
        lot = self._random.random

        def cost(lane: Lane) -> float:
            return self._growth(lane, size_bytes) * (1 + TIES * lot())

        lanes = self.usable.cheapest(each.src, each.dst, cost)
        stays = bool(flow.lanes) and self._cost(flow.lanes, size_bytes) <= self._cost(lanes, size_bytes) * (1 + 1e-9)
        flows[at] = flow if stays else replace(flow, lanes=lanes)
        add_load(self.loads, (flows[at],))

    def _slope(self, flow: Flow) -> float:
        return sum(
            float(self._level(lane) ** (self._power - 1)) / self.fabric.link(lane[0]).rate_mbps for lane in flow.lanes
        )

    def _shift(self, flows: list[Flow]) -> None:
        """Shift bytes from the dearest channel of a demand to its cheapest, as often as it has channels."""
        for _ in range(len(flows)):
            slopes = [self._slope(flow) for flow in flows]
            givers = [at for at, flow in enumerate(flows) if flow.size_bytes > 0]
            giver = max(givers, key=lambda at: slopes[at])
            taker = min(range(len(flows)), key=lambda at: slopes[at])
            if slopes[giver] <= slopes[taker] * (1 + 1e-6):
                return
            self._halve(flows, giver, taker)

    def _halve(self, flows: list[Flow], giver: int, taker: int) -> None:
        """Shift so many bytes that both channels are equally dear, or the giver has none left."""
        low, high = 0.0, flows[giver].size_bytes
        gives, takes = flows[giver], flows[taker]
        for _ in range(20):
            size_bytes = (low + high) / 2
            self._put(flows, giver, taker, gives, takes, size_bytes)
            if self._slope(flows[giver]) > self._slope(flows[taker]):
                low = size_bytes
            else:
                high = size_bytes
        self._put(flows, giver, taker, gives, takes, high if high == gives.size_bytes else low)

    def _put(self, flows: list[Flow], giver: int, taker: int, gives: Flow, takes: Flow, size_bytes: float) -> None:
        add_load(self.loads, (flows[giver], flows[taker]), -1)
        flows[giver] = replace(gives, size_bytes=gives.size_bytes - size_bytes)
        flows[taker] = replace(takes, size_bytes=takes.size_bytes + size_bytes)
        add_load(self.loads, (flows[giver], flows[taker]))
