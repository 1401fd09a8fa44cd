"""Jobs that go round and round side by side: what a traffic plan is worth in the time of their rounds.

A round of a job is its computing, then all its flows at once; the next round starts when the last of them has ended.
Rates are max-min fair at every instant, as everywhere in the simulator. A flow is one channel of a connection on the
path that the plan gives it, so one pair may use many paths.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import mean

import numpy as np

from controller.placement import Connection
from controller.planning.steering import levelled
from controller.planning.traffic import Plan
from simulator.errors import SimulationError
from simulator.filling import join, run
from simulator.network import CLOCK, network
from simulator.paths import link_positions
from topologies.model import Fabric

ROUNDS = 6
"""Rounds of every job that are counted."""

WARM_UP = 1
"""Rounds before them: in the first one all jobs start together."""

STEPS = 6
"""Measurements after which more of them change little (docs/planning.md)."""


@dataclass(frozen=True)
class Rounds:
    """Mean seconds of a round by job, and by flow with bytes from the start of the flows of its round to its end."""

    job_s: dict[str, float]
    flow_s: dict[Connection, float]


def round_times_s(
    fabric: Fabric, plan: Plan, compute_s: Mapping[str, float] | None = None, rounds: int = ROUNDS
) -> dict[str, float]:
    """Mean seconds of a round of every job of ``plan``: :attr:`Rounds.job_s` of :func:`made_rounds`."""
    return made_rounds(fabric, plan, compute_s, rounds).job_s


def levelled_by_measuring(fabric: Fabric, plan: Plan, steps: int = STEPS) -> Plan:
    """The plan after ``steps`` measurements: each time bytes move to the channels that were faster, as live.

    See :func:`controller.planning.steering.levelled`.
    """
    for _ in range(steps):
        taken_s = made_rounds(fabric, plan).flow_s
        flows = []
        for of_demand in plan.flows:
            rates = {
                flow.connection: flow.size_bytes / taken_s[flow.connection] if flow.size_bytes > 0 else 0.0
                for flow in of_demand
            }
            flows.append(levelled(of_demand, rates) or of_demand)
        plan = replace(plan, flows=tuple(flows))
    return plan


def made_rounds(
    fabric: Fabric, plan: Plan, compute_s: Mapping[str, float] | None = None, rounds: int = ROUNDS
) -> Rounds:
    """The rounds of all jobs of ``plan`` side by side, in real time and without headers.

    ``compute_s`` is the computing of a job before each round's flows, 0 if it is not named. Jobs go on until the
    slowest one has made its rounds. Raises SimulationError for a plan with connections that have no path.
    """
    if plan.lost:
        each = plan.lost[0]
        raise SimulationError(f"channel {each.channel} from {each.src.id} to {each.dst.id} has no path: no round ends")
    positions = link_positions(fabric)
    crossed, sizes, owners, names = [], [], [], []
    jobs = list(dict.fromkeys(demand.job for demand in plan.demands))
    for demand, flows in zip(plan.demands, plan.flows, strict=True):
        for flow in flows:
            if flow.size_bytes > 0:
                lanes = ((fabric.link(link_id), sender) for link_id, sender in flow.lanes)
                crossed.append([2 * positions[link.id] + (sender == link.b) for link, sender in lanes])
                sizes.append(flow.size_bytes)
                owners.append(jobs.index(demand.job))
                names.append(flow.connection)
    first = np.cumsum([0, *map(len, crossed)], dtype=np.int64)
    links = np.concatenate(crossed).astype(np.int32)
    room = np.repeat([link.rate_mbps * 1e6 / 8 for link in fabric.links], 2)
    size = np.array(sizes)
    net = network(room, first, links, np.ones(len(links)), size)
    owner = np.array(owners)
    flows_of = [np.flatnonzero(owner == job).astype(np.int32) for job in range(len(jobs))]
    pause = [(compute_s or {}).get(job, 0.0) for job in jobs]
    starts = [(pause[job], job) for job in range(len(jobs))]
    heapq.heapify(starts)
    ends: list[list[float]] = [[0.0] for _ in jobs]
    open_flows = [0] * len(jobs)
    began = np.zeros(len(jobs))
    taken, times = np.zeros(len(size)), np.zeros(len(size), np.int64)
    waited, ended, end = np.ones(len(size), np.uint8), np.zeros(len(size), np.int32), np.zeros(len(size))
    while min(map(len, ends)) <= WARM_UP + rounds:
        until = starts[0][0] if starts else np.inf
        count = run(net, until, 0.0, 0.0, waited, ended, end, len(size))
        for flow, end_s in zip(ended[:count], end[:count], strict=True):
            job = owners[flow]
            taken[flow] += end_s - began[job]
            times[flow] += 1
            open_flows[job] -= 1
            if not open_flows[job]:
                ends[job].append(float(net.state[CLOCK]))
                heapq.heappush(starts, (ends[job][-1] + pause[job], job))
        while not count and starts and starts[0][0] <= net.state[CLOCK]:
            job = heapq.heappop(starts)[1]
            began[job] = net.state[CLOCK]
            net.left[flows_of[job]] = size[flows_of[job]]
            open_flows[job] = len(flows_of[job])
            join(net, flows_of[job])
    job_s = {name: mean(np.diff(ends[job][WARM_UP:]).tolist()) for job, name in enumerate(jobs)}
    return Rounds(job_s, dict(zip(names, (taken / np.maximum(times, 1)).tolist(), strict=True)))
