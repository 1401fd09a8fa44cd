import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from workloads.collectives import all_to_all, ring_all_reduce
from workloads.errors import ScheduleError
from workloads.schedule import Computation, Schedule, Tag, Transfer

TAG = Tag("send-recv", "send-recv", "all", 0)


def schedule(*transfers: Transfer, ranks: int = 4) -> Schedule:
    return Schedule("test", "send-recv", "direct", ranks, ranks, 10, "bytes sent", 0, transfers)


def test_it_survives_json() -> None:
    for original in (ring_all_reduce({"all": range(5)}, 1001, 5, seed=3), all_to_all({"x": [4, 2, 0]}, 99, 5)):
        copy = Schedule.from_dict(json.loads(json.dumps(original.to_dict())))
        assert copy == original
        assert len(copy.phases()) == len(original.phases())


def test_another_format_is_refused() -> None:
    good = all_to_all({"all": range(3)}, 99, 3).to_dict()
    with pytest.raises(ScheduleError, match="version 1 to 2"):
        Schedule.from_dict({**good, "version": 3})
    with pytest.raises(ScheduleError, match="'transfers'"):
        Schedule.from_dict({key: value for key, value in good.items() if key != "transfers"})
    with pytest.raises(ScheduleError, match="colour"):
        Schedule.from_dict({**good, "colour": "red"})
    with pytest.raises(ScheduleError, match="seed"):
        Schedule.from_dict({key: value for key, value in good.items() if key != "seed"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size_bytes": 0}, "size_bytes is 0"),
        ({"size_bytes": 1.5}, "size_bytes is 1.5"),
        ({"dst": 4}, "rank 4 does not exist"),
        ({"src": -1}, "rank -1 does not exist"),
        ({"dst": 0}, "sends to itself"),
        ({"after": (17,)}, "waits for 17"),
        ({"after": (1,)}, "wait for each other"),
        ({"id": 0}, "used twice"),
    ],
)
def test_what_is_no_schedule_is_refused(change: dict[str, Any], words: str) -> None:
    good = Transfer(1, 0, 1, 10, (0,), TAG)
    assert schedule(Transfer(0, 1, 2, 10, (), TAG), good).total_bytes == 20
    with pytest.raises(ScheduleError, match=words):
        schedule(Transfer(0, 1, 2, 10, (), TAG), dataclasses.replace(good, **change))


def test_a_long_cycle_is_found() -> None:
    ring = [Transfer(k, 0, 1, 10, ((k - 1) % 50,), TAG) for k in range(50)]
    with pytest.raises(ScheduleError, match="transfer 0 can never start"):
        schedule(*ring)


def test_finer_dependencies_are_no_phases() -> None:
    chain = schedule(Transfer(0, 0, 1, 10, (), TAG), Transfer(1, 1, 2, 10, (), TAG), Transfer(2, 2, 3, 10, (0,), TAG))
    assert not chain.is_phased
    with pytest.raises(ScheduleError, match="not a sequence of phases"):
        chain.phases()


def test_totals() -> None:
    two = schedule(Transfer(0, 0, 1, 10, (), TAG), Transfer(1, 0, 1, 5, (0,), TAG), Transfer(2, 1, 0, 7, (1,), TAG))
    assert two.bytes_by_pair() == {(0, 1): 15, (1, 0): 7}
    assert two.bytes_by_operation() == {"send-recv": 22}
    assert [len(phase) for phase in two.phases()] == [1, 1, 1]


def test_computing_survives_json_and_version_1_is_still_read() -> None:
    work = Schedule(
        "work", "send-recv", "direct", 4, 2, 10, "bytes sent", 0,
        (Transfer(0, 0, 1, 10, (), TAG, 0.25), Transfer(2, 1, 2, 10, (1,), TAG)),
        (Computation(1, 1, 0.5, (0,), "layer"),),
    )  # fmt: skip
    data = json.loads(json.dumps(work.to_dict()))
    assert Schedule.from_dict(data) == work
    assert data["version"] == 2
    assert work.has_computing
    old = all_to_all({"all": range(3)}, 99, 3)
    assert "computations" not in old.to_dict()
    assert all("delay_s" not in row for row in old.to_dict()["transfers"])
    assert Schedule.from_dict({**old.to_dict(), "version": 1}) == old
    assert not old.has_computing


def test_a_schedule_with_computing_is_no_sequence_of_phases() -> None:
    late = schedule(Transfer(0, 0, 1, 10, (), TAG), Transfer(1, 1, 2, 10, (0,), TAG, 0.5))
    assert not late.is_phased
    with pytest.raises(ScheduleError, match="not a sequence of phases"):
        late.phases()


@pytest.mark.parametrize(
    ("computation", "words"),
    [
        (Computation(1, 4, 0.5, (), ""), "computation 1: rank 4 does not exist"),
        (Computation(1, 1, -0.5, (), ""), "computation 1: duration_s is -0.5"),
        (Computation(1, 1, float("nan"), (), ""), "duration_s is nan"),
        (Computation(0, 1, 0.5, (), ""), "used twice"),
        (Computation(1, 1, 0.5, (9,), ""), "waits for 9"),
        (Computation(1, 1, 0.5, (1,), ""), "wait for each other"),
    ],
)
def test_bad_computations_are_refused(computation: Computation, words: str) -> None:
    first = Transfer(0, 0, 1, 10, (), TAG)
    with pytest.raises(ScheduleError, match=words):
        Schedule("test", "send-recv", "direct", 4, 2, 10, "bytes sent", 0, (first,), (computation,))


def test_bad_delays_are_refused() -> None:
    for delay_s in (-1.0, float("inf"), True):
        with pytest.raises(ScheduleError, match="transfer 0: delay_s is"):
            schedule(Transfer(0, 0, 1, 10, (), TAG, delay_s))


def test_the_example_of_the_documents_can_be_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    example = page.split("```json\n")[2].split("```")[0]
    found = Schedule.from_dict(json.loads(example))
    assert found.transfers[1].delay_s == 0.001
    assert found.computations[0].after == (1,)
