import math

import pytest

from simulator.errors import SimulationError
from simulator.fluid import simulate
from simulator.routes import controller_router
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec
from topologies.scale import Scale
from workloads.failures import FailureKind, LinkFailure
from workloads.records import TransferStatus
from workloads.schedule import Computation, Schedule, Tag, Transfer

FABRIC = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 1, nic_rate_mbps=8.0))
"""A NIC carries a million bytes a second."""


def run(failures=(), computations=(), **values):
    after = tuple(one.id for one in computations)
    transfer = Transfer(0, 0, 1, 2_000_000, after, Tag("send", "send-recv", "all", 0))
    schedule = Schedule("x", "send-recv", "one", 2, 2, 1, "bytes", 0, (transfer,), tuple(computations))
    return simulate(FABRIC, schedule, controller_router(FABRIC), scale=Scale(1, 1), goodput=1.0, failures=failures,
                    **values)  # fmt: skip


def test_what_is_on_its_way_is_reported_as_it_moves():
    record = run([LinkFailure("d0r0-rail0", 1.0, kind=FailureKind.DEGRADE, rate_share=0.5)], report_s=0.5)
    assert [(round(one.t_s, 6), one.received_bytes) for one in record.progress] == [
        (0.5, 500_000), (1.0, 1_000_000), (1.5, 1_250_000), (2.0, 1_500_000), (2.5, 1_750_000),
    ]  # fmt: skip
    assert record.transfers[0].end_s == pytest.approx(3.0)


def test_what_stands_still_is_not_reported_for_ever():
    record = run([LinkFailure("d0r0-rail0", 1.0, kind=FailureKind.BLACKHOLE)], report_s=0.5)
    assert record.progress[-1].received_bytes == 1_000_000
    assert record.transfers[0].status is TransferStatus.INCOMPLETE


def test_without_reports_there_are_none_and_the_run_is_the_same():
    assert run().progress == ()
    assert run().transfers == run(report_s=0.1).transfers


def test_what_waits_for_a_computation_that_never_ends_does_not_start():
    record = run(computations=[Computation(1, 0, math.inf, (), "never")], report_s=0.5)
    assert record.transfers[0].status is TransferStatus.FAILED
    assert record.transfers[0].start_s is None


def test_a_time_between_reports_must_mean_something():
    with pytest.raises(SimulationError, match="report_s is 0"):
        run(report_s=0.0)
