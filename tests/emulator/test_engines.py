from dataclasses import replace

import pytest

from emulator.engines import Engine, engine_for, start_delay_s
from emulator.run_order import RunOrder
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec
from topologies.scale import default_scale
from workloads.algorithms import STEPWISE, TWO_PHASE
from workloads.collectives import all_ranks, all_to_all, collective, collective_on, ring_all_reduce
from workloads.failures import LinkFailure
from workloads.frontier import OnFailure

FABRIC = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
SCALE = default_scale(FABRIC)


def two_phase(size_bytes):
    return collective_on(FABRIC, "all-to-all", "all", size_bytes, algorithm=TWO_PHASE, name="two-phase")


@pytest.mark.parametrize(
    ("schedule", "engine"),
    [
        (ring_all_reduce(all_ranks(FABRIC), 200 << 20, 16), Engine.IPERF3),
        (ring_all_reduce(all_ranks(FABRIC), 1 << 20, 16), Engine.AGENT),
        (all_to_all(all_ranks(FABRIC), 900 << 20, 16), Engine.IPERF3),
        (all_to_all(all_ranks(FABRIC), 16 << 20, 16), Engine.AGENT),
        (collective("all-reduce", all_ranks(FABRIC), 4 << 30, 16, form=STEPWISE), Engine.AGENT),
        # Its phases on the rails last 1.3 s, but its shuffles in the domain 0.15 s.
        (two_phase(240 << 20), Engine.AGENT),
        (two_phase(2000 << 20), Engine.IPERF3),
    ],
)
def test_iperf3_for_bulk_phases_and_the_agent_for_everything_else(schedule, engine):
    assert engine_for(schedule, FABRIC, SCALE) is engine


def test_computing_is_for_the_agent():
    bulk = ring_all_reduce(all_ranks(FABRIC), 200 << 20, 16)
    assert engine_for(replace(bulk, transfers=()), FABRIC, SCALE) is Engine.AGENT
    first, *rest = bulk.transfers
    assert engine_for(replace(bulk, transfers=(replace(first, delay_s=0.1), *rest)), FABRIC, SCALE) is Engine.AGENT


def test_only_iperf3_needs_time_to_start():
    assert start_delay_s(Engine.IPERF3) > 0
    assert start_delay_s(Engine.AGENT) == 0


@pytest.mark.parametrize("engine", [None, *Engine])
def test_an_order_survives_the_wire(engine):
    schedule = ring_all_reduce(all_ranks(FABRIC), 1 << 20, 16)
    order = RunOrder(schedule, (LinkFailure("d0r0-rail0", 1.0, None),), 3, engine, OnFailure.STOP, 2.5)
    assert RunOrder.from_dict(order.to_dict()) == order
