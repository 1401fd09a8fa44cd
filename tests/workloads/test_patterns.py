from collections import Counter
from dataclasses import replace

import pytest

from topologies.builders import build
from topologies.model import Fabric, FabricKind, FabricSpec
from workloads.collectives import collective
from workloads.errors import PlanError, ScheduleError
from workloads.expert_load import ExpertLoad
from workloads.expert_traffic import expert_all_to_all
from workloads.jobs import JOBS, at_once, in_rounds
from workloads.patterns import PATTERNS, pattern_on
from workloads.schedule import Computation, Schedule, Tag, Transfer


def fabric_of(domains: int = 4, rails: int = 4, kind: FabricKind = FabricKind.RAIL_ONLY) -> Fabric:
    return build(FabricSpec(kind, domains, rails))


def pairs(schedule: Schedule) -> list[tuple[int, int]]:
    return [(transfer.src, transfer.dst) for transfer in schedule.transfers]


def test_incast_takes_its_senders_from_other_domains_those_of_the_rail_first() -> None:
    assert pairs(pattern_on(fabric_of(), "incast", 10, flows=5, target=6)) == [
        (2, 6),
        (10, 6),
        (14, 6),
        (3, 6),
        (11, 6),
    ]
    assert len(pairs(pattern_on(fabric_of(), "incast", 10))) == 12


def test_shift_is_a_domain_and_a_rail_by_default() -> None:
    assert pairs(pattern_on(fabric_of(), "shift", 10))[:2] == [(0, 5), (1, 6)]
    assert pairs(pattern_on(fabric_of(), "shift", 10, shift=-1))[0] == (0, 15)


@pytest.mark.parametrize(("domains", "rails"), [(2, 1), (2, 4), (4, 4), (3, 5), (8, 8)])
def test_a_permutation_leaves_every_domain_and_is_drawn(domains: int, rails: int) -> None:
    fabric = fabric_of(domains, rails)
    made = pairs(pattern_on(fabric, "permutation", 10, seed=3))
    ranks = list(range(domains * rails))
    assert [src for src, _ in made] == ranks
    assert sorted(dst for _, dst in made) == ranks
    assert all(src // rails != dst // rails for src, dst in made)
    assert made == pairs(pattern_on(fabric, "permutation", 10, seed=3))
    if domains * rails > 8:
        assert made != pairs(pattern_on(fabric, "permutation", 10, seed=4))


def test_random_pairs_are_of_different_domains() -> None:
    made = pairs(pattern_on(fabric_of(), "random-pairs", 10, flows=100, seed=1))
    assert len(made) == 100
    assert all(src // 4 != dst // 4 for src, dst in made)
    assert len(Counter(made)) > 50


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_is_one_phase_and_needs_two_domains(pattern: str) -> None:
    made = pattern_on(fabric_of(), pattern, 10, name="mine")
    assert made.name == "mine"
    assert len(made.phases()) == 1
    with pytest.raises(ScheduleError, match="this fabric has one"):
        pattern_on(fabric_of(kind=FabricKind.IDEAL), pattern, 10)


def test_patterns_that_cannot_be() -> None:
    for pattern, values, words in (
        ("incast", {"flows": 13}, "an incast of 13 senders"),
        ("incast", {"target": 16}, "the target is rank 16"),
        ("shift", {"shift": 32}, "sends everything to itself"),
        ("burst", {}, "the patterns are incast"),
    ):
        with pytest.raises(ScheduleError, match=words):
            pattern_on(fabric_of(), pattern, 10, **values)  # type: ignore[arg-type]


def test_experts_send_by_the_load() -> None:
    fabric = fabric_of()
    hot = expert_all_to_all(fabric, 19_000, experts=16, load=ExpertLoad("hot-rank", factor=4.0), seed=1)
    received: Counter[int] = Counter()
    for transfer in hot.transfers:
        received[transfer.dst] += transfer.size_bytes
    (rank, most), (_, next_most), *_ = received.most_common()
    assert most == 15 * 4000  # a share of 4/19 from every other rank
    assert next_most == 15 * 1000
    assert 0 <= rank < 16


@pytest.mark.parametrize("algorithm", ["direct", "two-phase", "two-phase, rail first"])
def test_tokens_that_all_leave_their_domain(algorithm: str) -> None:
    """What a rank sends to others is the size, and (K-1)/K of it passes a domain once more with two phases."""
    made = expert_all_to_all(fabric_of(), 120_000, experts=16, within_domains=False, algorithm=algorithm)
    between = sum(size for (src, dst), size in made.bytes_by_pair().items() if src // 4 != dst // 4)
    within = sum(size for (src, dst), size in made.bytes_by_pair().items() if src // 4 == dst // 4)
    assert between == 16 * 120_000
    assert within == (0 if algorithm == "direct" else between * 3 // 4)


def test_experts_that_do_not_fit() -> None:
    with pytest.raises(PlanError, match="10 experts are not divisible by 16 ranks"):
        expert_all_to_all(fabric_of(), 1000, experts=10)
    with pytest.raises(PlanError, match="in another domain"):
        expert_all_to_all(fabric_of(1, 4), 1000, experts=4, within_domains=False)


def job(size_bytes: int, computing: bool = False) -> Schedule:
    tag = Tag("send-recv", "send-recv", "all", 0)
    transfers = (Transfer(0, 0, 1, size_bytes, (), tag), Transfer(1, 1, 0, size_bytes, (0,), tag))
    computations = (Computation(2, 0, 0.5, (1,), "end"),) if computing else ()
    return Schedule("job", "send-recv", "direct", 4, 2, size_bytes, "bytes sent", 7, transfers, computations)


def test_jobs_run_beside_each_other() -> None:
    made = at_once([job(10, computing=True), job(10), job(10)], "three")
    assert [(transfer.id, transfer.after) for transfer in made.transfers] == [
        (0, ()), (1, (0,)), (3, ()), (4, (3,)), (5, ()), (6, (5,)),
    ]  # fmt: skip
    assert made.computations[0].after == (1,)
    assert [transfer.tag.group for transfer in made.transfers] == [f"job{number}/all" for number in (0, 0, 1, 1, 2, 2)]
    assert (made.collective, made.size_bytes, made.group_size) == ("send-recv", 10, 2)
    assert (at_once([job(10), job(20)], "two").collective, at_once([job(10), job(20)], "two").size_bytes) == (JOBS, 30)


def test_jobs_that_do_not_go_together() -> None:
    with pytest.raises(ScheduleError, match="no jobs"):
        at_once([], "none")
    larger = pattern_on(fabric_of(), "shift", 10)
    with pytest.raises(ScheduleError, match="4, 16 ranks"):
        at_once([job(10), larger], "two")


def test_rounds_follow_each_other_group_by_group() -> None:
    once = collective("all-reduce", {"a": (0, 1), "b": (2, 3)}, 1 << 20, 4, name="twice")
    made = in_rounds(once, 3)
    count = len(once.transfers)
    assert len(made.transfers) == 3 * count
    assert (made.size_bytes, made.size_meaning) == (3 << 20, f"{once.size_meaning}, sum of 3 rounds")
    phases = 1 + max(one.tag.phase for one in once.transfers)
    for at, one in enumerate(made.transfers):
        number, first = at // count, once.transfers[at % count]
        assert (one.id, one.tag.phase) == (first.id + number * count, first.tag.phase + number * phases)
        if number and not first.after:
            own = {other.id for other in once.transfers if other.tag.group == first.tag.group}
            assert set(one.after) == {other + (number - 1) * count for other in own}
        else:
            assert one.after == tuple(before + number * count for before in first.after)
    assert in_rounds(once, 1) is once


def test_rounds_that_mean_nothing_are_refused() -> None:
    once = collective("all-reduce", {"a": (0, 1)}, 1 << 20, 2, name="none")
    with pytest.raises(ScheduleError, match="rounds is 0; it must be 1 or more"):
        in_rounds(once, 0)
    with pytest.raises(ScheduleError, match="has computations"):
        in_rounds(replace(once, computations=(Computation(99, 0, 1.0, (), "x"),)), 2)
