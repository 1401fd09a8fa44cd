from __future__ import annotations

import dataclasses
import pickle
from collections import Counter
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import operations
from workloads.algorithms import ALGORITHMS
from workloads.errors import CollectiveError, ScheduleError
from workloads.families import Family
from workloads.operations import Call, Operation, OperationSchedule
from workloads.schedule import Computation, Transfer

FAST = settings(derandomize=True, deadline=None, max_examples=60)
PAIRS = Family("pairs", ((2, 1),), ((4, 2),))
ACROSS = Family("across", ((4, 2),), ((2, 1),))
ALL = Family("all", ((8, 1),))


def schedule(*found: Operation, ranks: int = 8, form: str = "bulk") -> OperationSchedule:
    return OperationSchedule("test", ranks, found, form)


def test_families_are_grids() -> None:
    assert list(PAIRS.groups()) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert list(ACROSS.groups()) == [(0, 2, 4, 6), (1, 3, 5, 7)]
    backwards = Family("back", ((2, -4),), ((2, 1), (2, 2)), first=4)
    assert list(backwards.groups()) == [(4, 0), (6, 2), (5, 1), (7, 3)]
    assert backwards.bounds() == (0, 7)
    assert (backwards.group_size, backwards.group_count) == (2, 4)


@FAST
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=2, max_size=4), st.data())
def test_families_over_the_axes_of_a_grid_cut_the_ranks(axes: list[tuple[int, int]], data: st.DataObject) -> None:
    """Whichever axes of a grid lie inside a group, every rank is in exactly one."""
    grid = []
    apart = 1
    for count, _ in axes:
        grid.append((count, apart))
        apart *= count
    chosen = data.draw(st.sets(st.integers(0, len(grid) - 1), min_size=1))
    family = Family(
        "x", tuple(grid[at] for at in chosen), tuple(one for at, one in enumerate(grid) if at not in chosen)
    )
    groups = list(family.groups())
    assert sorted(rank for members in groups for rank in members) == list(range(apart))
    assert {len(members) for members in groups} == {family.group_size}
    assert len(groups) == family.group_count


def chains(draw: Any) -> OperationSchedule:
    """A random schedule of operations over families of 8 ranks."""
    made: list[Operation] = []
    for number in range(draw(st.integers(1, 4))):
        calls = []
        for _ in range(draw(st.integers(1, 3))):
            family = draw(st.sampled_from([PAIRS, ACROSS, ALL]))
            kind = draw(st.sampled_from(["", *(one for one in ALGORITHMS if one != "send-recv")]))
            algorithm = draw(st.sampled_from(list(ALGORITHMS[kind]))) if kind else None
            delay_s = draw(st.sampled_from([0.0, 0.5]))
            calls.append(Call(family, kind, 8000, delay_s, algorithm, local=2))
        after = tuple(sorted(draw(st.sets(st.integers(0, number - 1), max_size=2)))) if number else ()
        made.append(Operation(number, f"op{number}", tuple(calls), after, draw(st.integers(1, 2))))
    return schedule(*made, form=draw(st.sampled_from(["bulk", "stepwise"])))


@FAST
@given(st.data())
def test_what_is_expanded_is_what_was_counted(data: st.DataObject) -> None:
    found = chains(data.draw)
    items = list(found.expand())
    transfers = [item for item in items if isinstance(item, Transfer)]
    assert [item.id for item in items] == list(range(len(items)))
    assert len(transfers) == found.transfer_count
    pairs: Counter[tuple[int, int]] = Counter()
    for transfer in transfers:
        pairs[transfer.src, transfer.dst] += transfer.size_bytes
    assert found.bytes_by_pair() == pairs
    assert sum(total.sent_bytes for total in found.totals()) == sum(pairs.values())
    for item in items:
        assert all(before < item.id for before in item.after)
    if transfers:
        whole = found.to_schedule()
        assert whole.transfers == tuple(transfers)
        assert whole.computations == tuple(item for item in items if isinstance(item, Computation))


@FAST
@given(st.data())
def test_every_rank_does_its_calls_one_after_the_other(data: st.DataObject) -> None:
    """Of two calls in a row, what a rank does in the second waits for all that it did in the first, and no less."""
    draw = data.draw
    kinds = [(kind, name) for kind, known in ALGORITHMS.items() if kind != "send-recv" for name in known]
    family_a, family_b = draw(st.sampled_from(list(product([PAIRS, ACROSS, ALL], repeat=2))))
    (kind_a, name_a), (kind_b, name_b) = draw(st.tuples(*[st.sampled_from(kinds)] * 2))
    first = Call(family_a, kind_a, 8000, 0.0, name_a, 2)
    second = Call(family_b, kind_b, 8000, draw(st.sampled_from([0.0, 1.0])), name_b, 2)
    form = draw(st.sampled_from(["bulk", "stepwise"]))
    joined = schedule(Operation(0, "a", (first, second)), form=form)
    apart = schedule(Operation(0, "a", (first,)), Operation(1, "b", (second,), (0,)), form=form)
    items = list(joined.expand())
    assert [strip(one) for one in items] == [strip(one) for one in apart.expand()]
    count = schedule(Operation(0, "a", (first,)), form=form).transfer_count
    done: dict[int, set[int]] = {rank: set() for rank in range(8)}
    cone: list[set[int]] = []
    delay: list[float] = []
    for item in items:
        cone.append({item.id}.union(*(cone[before] for before in item.after)))
        passed = max((delay[before] for before in item.after), default=0.0)
        own = item.delay_s if isinstance(item, Transfer) else item.duration_s
        delay.append(passed + own)
        if isinstance(item, Computation):
            assert done[item.rank] <= cone[-1]
            continue
        if item.id < count:
            done[item.src].add(item.id)
            done[item.dst].add(item.id)
        else:
            assert done[item.src] | done[item.dst] <= cone[-1]
            assert delay[-1] == second.delay_s, "computing comes once before the call"


def strip(item: Transfer | Computation) -> Transfer | Computation:
    return dataclasses.replace(item, label="") if isinstance(item, Computation) else item


def test_a_rank_waits_only_for_what_it_took_part_in() -> None:
    low = Family("low", ((2, 1),))
    high = Family("high", ((2, 1),), first=2)
    made = schedule(
        Operation(0, "low", (Call(low, "all-gather", 100),)),
        Operation(1, "high", (Call(high, "all-gather", 100),)),
        Operation(2, "both", (Call(PAIRS, "all-gather", 100),), (0, 1)),
    )
    waits = {(one.src, one.dst): one.after for one in made.expand() if isinstance(one, Transfer) and one.id >= 4}
    assert waits[0, 1] == waits[1, 0] == (0, 1)
    assert waits[2, 3] == (2, 3)
    assert waits[4, 5] == ()


def test_delays_are_folded_where_that_is_exact() -> None:
    ring = schedule(Operation(0, "x", (Call(PAIRS, "all-reduce", 800, 0.25),), repeat=2), form="stepwise")
    items = list(ring.expand())
    assert not any(isinstance(item, Computation) for item in items)
    assert sum(item.delay_s for item in items if isinstance(item, Transfer)) == 0.25 * 2 * 2 * 4
    tree = schedule(Operation(0, "x", (Call(ALL, "all-reduce", 800, 0.25, "double binary tree"),)), form="stepwise")
    computations = [item for item in tree.expand() if isinstance(item, Computation)]
    assert [item.rank for item in computations] == list(range(8))
    assert all(item.duration_s == 0.25 for item in computations)
    alone = schedule(Operation(0, "layer", (Call(PAIRS, delay_s=0.5),), repeat=3))
    assert [(item.rank, item.after) for item in alone.expand()][:3] == [(0, ()), (1, ()), (2, ())]
    assert alone.transfer_count == 0
    with pytest.raises(ScheduleError, match="makes 0 transfers"):
        alone.to_schedule()


def test_uneven_calls() -> None:
    splits = ((1, 2), (3, 4))
    made = schedule(Operation(0, "x", (Call(PAIRS, "all-to-all", splits=splits),), repeat=5))
    assert made.bytes_by_pair()[6, 7] == 10
    assert made.bytes_by_pair()[7, 6] == 15
    total = made.totals()[0]
    assert (total.calls, total.size_bytes, total.sent_bytes) == (5, 35, 5 * 4 * 5)
    assert made.bytes_by_pair(["other"]) == {}
    nothing = schedule(Operation(0, "x", (Call(PAIRS, "all-to-all", splits=((1, 0), (0, 1))),)))
    assert list(nothing.expand()) == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ((Operation(0, "x", ()),), "operation 0 .x.: it makes no call"),
        ((Operation(0, "x", (Call(ALL),), repeat=0),), "makes no call"),
        ((Operation(0, "x", (Call(ALL),)), Operation(0, "y", (Call(ALL),))), "used twice"),
        (
            (Operation(0, "x", (Call(ALL),), (1,)), Operation(1, "y", (Call(ALL),))),
            "waits for operation 1, which",
        ),
        ((Operation(0, "x", (Call(Family("tp", ((8, 2),))),)),), "family 'tp' has ranks 0 to 14; the ranks are 0 to 7"),
        ((Operation(0, "x", (Call(ALL, delay_s=-1.0),)),), "delay_s is -1.0"),
    ],
)
def test_what_is_no_schedule_is_refused(found: tuple[Operation, ...], words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        schedule(*found)


def test_a_call_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(CollectiveError, match="at least 8 bytes"):
        list(schedule(Operation(0, "x", (Call(ALL, "all-reduce", 3),))).expand())


def test_a_whole_schedule_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MAX_TRANSFERS", 15)
    with pytest.raises(ScheduleError, match="makes 16 transfers, but a whole schedule holds 1 to 15"):
        schedule(Operation(0, "x", (Call(ALL, "all-reduce", 80),))).to_schedule()


def test_an_expansion_forgets_what_nothing_waits_for() -> None:
    chain = schedule(*(Operation(at, "x", (Call(ALL, "all-gather", 80),), (at - 1,) if at else ()) for at in range(50)))
    running = operations._Expansion(chain)
    for number, _ in enumerate(running.run()):
        assert len(running._left) <= 1, number


def test_schedules_pickle() -> None:
    made = schedule(Operation(0, "x", (Call(ALL, "all-reduce", 80, 0.5),)))
    assert pickle.loads(pickle.dumps(made)) == made
    assert pickle.loads(pickle.dumps(made.to_schedule())) == made.to_schedule()
