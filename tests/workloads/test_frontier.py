import random
from dataclasses import dataclass, replace

import pytest

from workloads.algorithms import STEPWISE
from workloads.collectives import all_to_all, collective
from workloads.families import Family
from workloads.frontier import Frontier, OnFailure, in_dependency_order
from workloads.operations import Call, Operation, OperationSchedule
from workloads.schedule import Computation


@dataclass(frozen=True)
class Step:
    id: int
    after: tuple[int, ...] = ()


def fed(*steps: Step, on_failure: OnFailure = OnFailure.CONTINUE) -> Frontier[Step]:
    frontier: Frontier[Step] = Frontier(on_failure)
    for step in steps:
        frontier.add(step, 0.0)
    return frontier


def ready(frontier: Frontier[Step]) -> list[tuple[int, float]]:
    return [(one.item.id, one.since_s) for one in frontier.take_ready()]


def skipped(frontier: Frontier[Step]) -> list[tuple[int, int]]:
    return [(one.item.id, one.failed_id) for one in frontier.take_skipped()]


def test_an_item_is_ready_since_the_last_of_what_it_waits_for_ended():
    frontier = fed(Step(0), Step(1), Step(2, (0, 1)), Step(3, (2, 0)))
    assert ready(frontier) == [(0, 0.0), (1, 0.0)]
    frontier.end(1, 5.0)
    assert ready(frontier) == []
    frontier.end(0, 4.0)
    assert ready(frontier) == [(2, 5.0)], "the later end counts, whichever is told first"
    frontier.end(2, 6.0)
    assert ready(frontier) == [(3, 6.0)]
    frontier.end(3, 7.0)
    assert len(frontier) == 0


def test_what_is_fed_late_does_not_wait_for_what_has_ended():
    frontier = fed(Step(0), Step(1))
    assert len(ready(frontier)) == 2
    frontier.end(0, 1.0)
    frontier.add(Step(2, (0,)), 3.0)
    frontier.add(Step(3, (0, 1)), 3.0)
    assert ready(frontier) == [(2, 3.0)]
    frontier.end(1, 4.0)
    assert ready(frontier) == [(3, 4.0)]


def test_what_waits_for_a_failed_item_is_skipped_all_the_way_and_the_rest_goes_on():
    frontier = fed(Step(0), Step(1), Step(2, (0,)), Step(3, (2,)), Step(4, (1,)), Step(5, (4, 3)))
    assert len(ready(frontier)) == 2
    frontier.fail(0, 1.0)
    assert skipped(frontier) == [(2, 0), (3, 0)]
    frontier.end(1, 2.0)
    assert ready(frontier) == [(4, 2.0)]
    frontier.add(Step(6, (3,)), 2.5)
    assert skipped(frontier) == [(6, 0)], "fed in when what it waits for was skipped already"
    frontier.end(4, 3.0)
    assert skipped(frontier) == [(5, 0)]
    assert len(frontier) == 0


def test_stop_starts_nothing_more():
    frontier = fed(Step(0), Step(1), Step(2, (1,)), Step(3, (2,)), on_failure=OnFailure.STOP)
    assert len(ready(frontier)) == 2
    frontier.fail(0, 1.0)
    frontier.add(Step(4), 1.5)
    assert ready(frontier) == []
    frontier.end(1, 2.0)
    assert ready(frontier) == []
    assert sorted(skipped(frontier)) == [(2, 0), (3, 0), (4, 0)]
    assert not fed(Step(0)).skip_if_stopped(Step(0), 1.0)
    assert len(frontier) == 0


def test_a_long_chain_of_skipped_items_needs_no_deep_stack():
    frontier = fed(Step(0), *(Step(number, (number - 1,)) for number in range(1, 20_000)))
    assert len(ready(frontier)) == 1
    frontier.fail(0, 1.0)
    assert len(skipped(frontier)) == 19_999


@pytest.mark.parametrize("form", ["bulk", STEPWISE])
def test_every_transfer_of_a_collective_starts_once_and_after_its_dependencies(form):
    schedule = collective("all-reduce", {"all": range(7)}, 7000, 8, form=form)
    frontier: Frontier = Frontier()
    for transfer in in_dependency_order(schedule):
        frontier.add(transfer, 0.0)
    rng = random.Random(1)
    running = [one.item for one in frontier.take_ready()]
    ended: set[int] = set()
    while running:
        transfer = running.pop(rng.randrange(len(running)))
        assert ended.issuperset(transfer.after)
        ended.add(transfer.id)
        frontier.end(transfer.id, float(len(ended)))
        running += [one.item for one in frontier.take_ready()]
    assert ended == set(schedule.by_id)


def test_operations_longer_than_the_window_pass_through_it():
    """The two-level form is expanded as the frontier has room; no more than the window is ever kept."""
    ring = Call(Family("dp", ((4, 1),)), "all-reduce", 4000, delay_s=0.001)
    operations = OperationSchedule("steps", 4, (Operation(0, "steps", (ring,), repeat=500),))
    frontier: Frontier = Frontier()
    most, count = 0, 0
    running = []
    for item in operations.expand():
        frontier.add(item, float(count))
        while len(frontier) > 40:
            running += [one.item for one in frontier.take_ready()]
            one = running.pop(0)
            frontier.end(one.id, float(count))
            count += 1
        most = max(most, len(frontier))
    assert most <= 41
    assert count > operations.transfer_count - 100


def test_schedules_are_put_in_order():
    schedule = all_to_all({"all": range(3)}, 3000, 4)
    assert list(in_dependency_order(schedule)) == list(schedule.transfers)
    renamed = {transfer.id: len(schedule.transfers) - transfer.id for transfer in schedule.transfers}
    backwards = replace(
        schedule,
        transfers=tuple(
            replace(one, id=renamed[one.id], after=tuple(renamed[before] for before in one.after))
            for one in reversed(schedule.transfers)
        ),
        computations=(Computation(99, 0, 1.0, (renamed[0],), "last"),),
    )
    seen: set[int] = set()
    for item in in_dependency_order(backwards):
        assert seen.issuperset(item.after)
        seen.add(item.id)
    assert len(seen) == len(schedule.transfers) + 1
