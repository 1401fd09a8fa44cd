import math

import pytest

from topologies.builders import build
from topologies.model import FabricKind, FabricSpec
from workloads.algorithms import STEPWISE
from workloads.collectives import collective, collective_on
from workloads.errors import ScheduleError
from workloads.readiness import Readiness
from workloads.repeated import RankFault, RankFaultKind, posted_together, repeated
from workloads.telemetry import calls

FABRIC = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))


def ends(schedule, absent=()):
    """Ids of all that can end, in an order in which it does."""
    items = [*schedule.transfers, *schedule.computations]
    waiting = Readiness((item, item.after) for item in items)
    over, ready = [], list(waiting.at_once())
    while ready:
        item = ready.pop()
        if getattr(item, "duration_s", 0.0) < math.inf:
            over.append(item.id)
            ready += [one for one, _ in waiting.end(item.id, 0.0)]
    return over


@pytest.mark.parametrize("form", ["bulk", STEPWISE])
@pytest.mark.parametrize("kind", ["all-to-all", "all-reduce"])
def test_every_iteration_is_a_call_and_all_of_it_can_end(kind, form):
    one = collective_on(FABRIC, kind, "all", 4000, form=form, name="x")
    schedule = repeated(one, 3, 0.5)
    assert len(calls(schedule)) == 3
    assert len(schedule.transfers) == 3 * len(one.transfers)
    assert len(ends(schedule)) == len(schedule.transfers) + len(schedule.computations)
    assert {computation.duration_s for computation in schedule.computations} == {0.5}


def test_no_transfer_starts_before_both_its_ends_have_computed():
    schedule = repeated(posted_together(collective_on(FABRIC, "all-to-all", "all", 4000, name="x")), 2, 0.5)
    computer = {one.id: one.rank for one in schedule.computations}
    for transfer in schedule.transfers:
        assert {computer[item] for item in transfer.after if item in computer} == {transfer.src, transfer.dst}


def test_posted_together_waits_for_nothing():
    assert {
        one.after for one in posted_together(collective_on(FABRIC, "all-to-all", "all", 4000, name="x")).transfers
    } == {()}


def test_an_absent_rank_holds_up_all_transfers_of_its_own_from_then_on():
    schedule = repeated(posted_together(collective_on(FABRIC, "all-to-all", "all", 4000, name="x")), 3, 0.5,
                        [RankFault(1, RankFaultKind.ABSENT, 1)])  # fmt: skip
    over = set(ends(schedule))
    made = [sum(one.id in over for one in call.transfers if 1 in (one.src, one.dst)) for call in calls(schedule)]
    others = [sum(one.id in over for one in call.transfers if 1 not in (one.src, one.dst)) for call in calls(schedule)]
    assert made == [6, 0, 0]
    assert others == [6, 6, 0], "the others wait for it in their second call"


def test_a_rank_that_stops_makes_half_of_its_transfers():
    schedule = repeated(posted_together(collective_on(FABRIC, "all-to-all", "all", 4000, name="x")), 3, 0.5,
                        [RankFault(1, RankFaultKind.STOPS, 1)])  # fmt: skip
    over = set(ends(schedule))
    made = [sum(one.id in over for one in call.transfers if 1 in (one.src, one.dst)) for call in calls(schedule)]
    assert made == [6, 3, 0]


def test_a_slow_rank_computes_longer_from_then_on():
    schedule = repeated(collective_on(FABRIC, "all-to-all", "all", 4000, name="x"), 3, 0.5,
                        [RankFault(1, RankFaultKind.SLOW, 1, 3.0)])  # fmt: skip
    assert [one.duration_s for one in schedule.computations if one.rank == 1] == [0.5, 1.5, 1.5]
    assert {one.duration_s for one in schedule.computations if one.rank != 1} == {0.5}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"iterations": 0}, "0 iterations"),
        ({"computing_s": -1.0}, "-1 s of computing"),
        ({"computing_s": math.inf}, "inf s of computing"),
        ({"faults": [RankFault(9, RankFaultKind.ABSENT, 0)]}, "rank 9 goes wrong"),
    ],
)
def test_what_means_nothing_is_refused(change, words):
    one = collective("all-to-all", {"all": range(4)}, 4000, 4)
    with pytest.raises(ScheduleError, match=words):
        repeated(one, **{"iterations": 2, "computing_s": 0.5, **change})


def test_computing_twice_is_refused():
    once = repeated(collective("all-to-all", {"all": range(4)}, 4000, 4), 2, 0.5)
    with pytest.raises(ScheduleError, match="computing of its own"):
        repeated(once, 2, 0.5)


@pytest.mark.parametrize(
    ("values", "words"),
    [((1, RankFaultKind.SLOW, 0, 1.0), "factor"), ((1, RankFaultKind.ABSENT, -1), "count from 0")],
)
def test_faults_that_mean_nothing_are_refused(values, words):
    with pytest.raises(ScheduleError, match=words):
        RankFault(*values)


def test_ready_when_the_last_has_ended():
    waiting = Readiness([("a", (1, 2)), ("b", (1, 2)), ("c", ()), ("d", (2, 2))])
    assert waiting.at_once() == ["c"]
    assert waiting.end(2, 5.0) == [("d", 5.0)]
    assert waiting.end(1, 3.0) == [("a", 5.0), ("b", 5.0)]
    assert waiting.end(1, 9.0) == []
