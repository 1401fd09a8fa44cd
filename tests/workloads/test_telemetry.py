from dataclasses import replace

import numpy as np
import pytest

from topologies.builders import build
from topologies.model import FabricKind, FabricSpec
from topologies.scale import Scale
from workloads.algorithms import STEPWISE
from workloads.collectives import collective
from workloads.families import Family
from workloads.operations import Call, Operation, OperationSchedule
from workloads.records import LinkSeries, RunRecord, TransferRecord, TransferStatus
from workloads.telemetry import calls, ranks_in_calls

FABRIC = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
NO_SAMPLES = LinkSeries((), np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)))


def record(schedule, failed=()):
    """Every transfer takes a second, starting at its id."""
    transfers = tuple(
        TransferRecord(one.id, TransferStatus.FAILED, None, None, 0.0, one.size_bytes, "x")
        if one.id in failed
        else TransferRecord(one.id, TransferStatus.COMPLETE, one.id, one.id + 1.0, one.size_bytes, one.size_bytes)
        for one in schedule.transfers
    )
    return RunRecord("emulator", FABRIC.spec, Scale(1, 1), schedule, (), 0, transfers, NO_SAMPLES, ())


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("broadcast", "bulk"),
        *((kind, form) for kind in ("all-reduce", "all-gather", "all-to-all") for form in ("bulk", STEPWISE)),
    ],
)
@pytest.mark.parametrize("repeat", [1, 3])
def test_calls_are_told_apart_and_counted_per_group(kind, form, repeat):
    call = Call(Family("dp", ((2, 1),), ((2, 2),)), kind, 4000)
    schedule = OperationSchedule("x", 4, (Operation(0, "x", (call,), repeat=repeat),), form=form).to_schedule()
    found = calls(schedule)
    assert [(one.group, one.sequence) for one in found] == [
        (f"dp[{group}]", number) for number in range(repeat) for group in range(2)
    ]
    assert sum(len(one.transfers) for one in found) == len(schedule.transfers)
    assert len({one.size_bytes for one in found}) == 1


def test_pieces_of_a_stepwise_broadcast_are_calls():
    schedule = collective("broadcast", {"all": range(3)}, 4000, 4, form=STEPWISE)
    found = calls(schedule)
    assert [one.sequence for one in found] == list(range(len(found)))
    assert sum(len(one.transfers) for one in found) == len(schedule.transfers)
    assert {len(one.transfers) for one in found} == {2}, "the two hops of a piece are one call"


def test_every_send_is_a_call():
    there = Call(Family("pp", ((2, 1),)), "send-recv", 100)
    schedule = OperationSchedule("x", 4, (Operation(0, "x", (there, there)),)).to_schedule()
    assert [one.sequence for one in calls(schedule)] == [0, 1]


def test_ranks_enter_and_leave():
    schedule = collective("all-gather", {"all": range(4)}, 4000, 4)
    ((_, ranks),) = ranks_in_calls(record(schedule))
    assert [one.rank for one in ranks] == [0, 1, 2, 3]
    for one in ranks:
        own = [transfer for transfer in schedule.transfers if one.rank in (transfer.src, transfer.dst)]
        assert one.entered_s == min(transfer.id for transfer in own if transfer.src == one.rank)
        assert one.left_s == max(transfer.id for transfer in own) + 1
        assert one.sent_bytes == one.received_bytes == 3000


def test_who_never_entered_and_who_never_left():
    schedule = collective("broadcast", {"all": range(3)}, 300, 4)
    first, second = schedule.transfers
    ((_, ranks),) = ranks_in_calls(record(schedule, failed={second.id}))
    by_rank = {one.rank: one for one in ranks}
    assert by_rank[first.src].left_s is not None
    assert by_rank[second.src].entered_s is None
    assert by_rank[second.src].left_s is None
    assert by_rank[second.dst].received_bytes == 0
    unreported = replace(record(schedule), transfers=())
    ((_, ranks),) = ranks_in_calls(unreported)
    assert all(one.entered_s is one.left_s is None for one in ranks)
