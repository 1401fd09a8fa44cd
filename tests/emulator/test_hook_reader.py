"""What ranks tell, in the terms of the diagnosis: operations as told, connections as busy periods."""

from __future__ import annotations

import random
from typing import Any

import pytest

from controller.diagnosis.telemetry import Communicator, Message, RankOperation
from controller.errors import TelemetryError
from emulator.hook_reader import HookReader

ADDRESSES = {"10.0.1.0": 0, "10.0.1.1": 1, "10.0.2.0": 2, "10.0.2.1": 3}
OPERATION = {"layer": "operation", "communicator": "group 0", "sequence": 4, "rank": 1, "kind": "all-reduce",
             "algorithm": "unknown", "size_bytes": 64, "entered_s": 2.5}  # fmt: skip


def counted(pending: int, acknowledged: int, t_s: float, rank: int = 1, address: str = "10.0.2.1") -> dict[str, Any]:
    return {"layer": "connection", "rank": rank, "address": address, "t_s": t_s, "pending_bytes": pending,
            "acknowledged_bytes": acknowledged, "received_bytes": 0, "retransmits": 0}  # fmt: skip


def reader() -> HookReader:
    return HookReader([0, 1, 3], ADDRESSES)  # rank 2 runs on the fourth GPU


def test_communicators_and_operations_are_of_gpus() -> None:
    found = reader()
    assert found.read({"layer": "communicator", "id": "group 0", "ranks": [0, 2]}) == Communicator("group 0", (0, 3))
    left = {**OPERATION, "rank": 2, "left_s": 2.75}
    assert found.read(left) == RankOperation("group 0", 4, 3, "all-reduce", "unknown", 64, 2.5, 2.75)
    assert found.read(OPERATION) == RankOperation("group 0", 4, 1, "all-reduce", "unknown", 64, 2.5, None)


def test_another_start_of_the_job_has_communicators_of_its_own() -> None:
    found = HookReader([0, 1], ADDRESSES, "restart 1: ")
    operation = found.read(OPERATION)
    assert isinstance(operation, RankOperation)
    assert operation.communicator == "restart 1: group 0"


def test_a_busy_period_is_told_as_a_message_that_grows_and_ends() -> None:
    found = reader()
    found.read(OPERATION)
    assert found.read(counted(0, 500, 3.0)) is None
    told = [found.read(one) for one in (counted(800, 500, 3.5), counted(300, 1000, 4.0), counted(0, 1300, 4.5))]
    assert told == [
        Message(0, "group 0", 4, 1, 3, 0, 800, None, 3.5, None, 0, 3.5),
        Message(0, "group 0", 4, 1, 3, 0, 800, None, 3.5, None, 500, 4.0),
        Message(0, "group 0", 4, 1, 3, 0, 800, None, 3.5, 4.5, 800, 4.5),
    ]
    again = found.read(counted(10, 1300, 5.0))
    assert isinstance(again, Message)
    assert (again.id, again.received_bytes) == (1, 0)


def test_what_is_no_rank_and_what_comes_before_any_operation_is_left_out() -> None:
    found = reader()
    assert found.read(counted(800, 0, 1.0)) is None
    found.read(OPERATION)
    assert found.read(counted(800, 0, 1.0, address="192.0.2.9")) is None


def test_how_long_a_rank_has_been_inside_its_operation() -> None:
    found = reader()
    assert found.waits_s(5.0) == 0.0
    found.read({**OPERATION, "rank": 0, "entered_s": 1.0})
    found.read({**OPERATION, "rank": 1, "entered_s": 2.0})
    assert found.waits_s(5.0) == 4.0
    found.read({**OPERATION, "rank": 0, "entered_s": 1.0, "left_s": 5.0})
    assert found.waits_s(5.0) == 3.0


def test_a_rank_that_tells_nothing_while_another_waits_is_frozen() -> None:
    found = reader()
    found.read({**OPERATION, "rank": 0, "entered_s": 1.0})
    found.read({**OPERATION, "rank": 1, "entered_s": 1.2})
    assert found.frozen(2.0, 3.0) is None
    found.read(counted(0, 5, 6.0, rank=0))
    assert found.frozen(6.2, 3.0) == (1, 1.2)
    assert found.frozen(20.0, 3.0) is None, "nobody is heard of: it is not one rank that has stopped"
    found.read(counted(0, 5, 6.1, rank=1))
    assert found.frozen(6.2, 3.0) is None
    calm = reader()
    calm.read({**OPERATION, "rank": 0, "left_s": 2.6})
    calm.read({**OPERATION, "rank": 1, "left_s": 2.6})
    calm.read(counted(0, 5, 8.0, rank=0))
    assert calm.frozen(8.2, 3.0) is None, "nobody waits for it"


def test_lost_messages_are_counted() -> None:
    found = reader()
    found.read({**OPERATION, "dropped": 7})
    found.read({**OPERATION, "dropped": 2})
    assert found.dropped == 9


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"layer": "weather"},
        {"layer": "operation"},
        {**OPERATION, "rank": 99},
        {**OPERATION, "rank": "one"},
        {**OPERATION, "entered_s": "soon"},
        {**OPERATION, "dropped": "many"},
        {"layer": "communicator", "id": 3, "ranks": [0]},
        {"layer": "communicator", "id": "a", "ranks": 3},
        {"layer": "connection", "rank": 0},
    ],
)
def test_what_no_hook_sends_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(TelemetryError, match="a rank told"):
        reader().read(data)


def test_whatever_a_job_sends_there_is_no_other_error() -> None:
    rng = random.Random(3)
    values = [None, -1, 3, 1e9, "x", [], {}, True, "group 0", [0, "1"]]
    found = reader()
    for _ in range(3000):
        keys = rng.sample([*OPERATION, *counted(0, 0, 0.0), "ranks", "id", "left_s"], 8)
        data = {key: rng.choice(values) for key in keys}
        data["layer"] = rng.choice(["communicator", "operation", "connection"])
        try:
            found.read(data)
        except TelemetryError:
            continue
