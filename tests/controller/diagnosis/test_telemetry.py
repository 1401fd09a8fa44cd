import json

import pytest

from controller.diagnosis.replayed import Ended, Report, Teller
from controller.diagnosis.telemetry import (
    Communicator,
    Message,
    RankOperation,
    from_dict,
    from_row,
    job_of,
    to_dict,
    to_row,
)
from controller.errors import TelemetryError
from topologies.scale import Scale
from workloads.collectives import collective
from workloads.repeated import posted_together, repeated


@pytest.mark.parametrize(
    "item",
    [
        Communicator("dp", (0, 2)),
        RankOperation("dp", 3, 2, "all-reduce", "ring", 1000, 1.5, None),
        Message(7, "dp", 3, 0, 2, 1, 500, 1.0, 1.5, None, 20.0, 2.0),
    ],
)
def test_items_come_back_from_json(item):
    assert from_dict(json.loads(json.dumps(to_dict(item)))) == item
    assert from_row(json.loads(json.dumps(to_row(item)))) == item


def test_the_job_of_a_communicator():
    assert (job_of("job1/all"), job_of("all")) == ("job1", "")


@pytest.mark.parametrize(
    ("data", "words"),
    [({"layer": "x"}, "the layers are"), ({"layer": "communicator", "id": "a", "rank": 1}, "wrong keys"), ({}, "None")],
)
def test_malformed_items_are_refused(data, words):
    with pytest.raises(TelemetryError, match=words):
        from_dict(data)


def test_what_a_teller_makes_of_a_run():
    one = posted_together(collective("all-to-all", {"all": range(3)}, 3000, 3))
    schedule = repeated(one, 2, 1.0)
    first = schedule.transfers[: len(one.transfers)]
    teller = Teller(schedule, Scale(1.0, 1.0))
    assert teller.begin() == [Communicator("all", (0, 1, 2))]
    told = teller.report(Report(1.2, (), {transfer.id: 10.0 for transfer in first}))
    entered = [item for item in told if isinstance(item, RankOperation)]
    assert {(item.rank, item.sequence, item.entered_s, item.left_s) for item in entered} == {
        (rank, 0, 1.0, None) for rank in range(3)
    }
    messages = [item for item in told if isinstance(item, Message)]
    assert {(item.posted_s, item.start_s, item.end_s, item.received_bytes) for item in messages} == {
        (1.0, 1.0, None, 10.0)
    }
    ended = tuple(Ended(transfer.id, 1.0, 2.0 + 0.1 * transfer.src, 1000.0) for transfer in first)
    told = teller.report(Report(2.4, ended, {}))
    left = {item.rank: item.left_s for item in told if isinstance(item, RankOperation)}
    assert left == pytest.approx({0: 2.2, 1: 2.2, 2: 2.2}), "the last of what a rank sends and receives"
    told = teller.report(Report(3.4, (), {}))
    entered = [item for item in told if isinstance(item, RankOperation)]
    assert {(item.sequence, round(item.entered_s, 6)) for item in entered} == {(1, 3.2)}
    assert {round(item.posted_s, 6) for item in told if isinstance(item, Message)} == {3.2}
