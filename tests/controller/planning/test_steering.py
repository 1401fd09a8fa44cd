"""The plan of a run: what each mode does when links change and when channels are measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.errors import PlanningError
from controller.placement import Connection, Placement
from controller.planning.steering import PlanMode, Planning, Steering, demands_of, levelled
from controller.planning.traffic import Flow, divided
from controller.policy import RoutingPolicy
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec, Gpu
from workloads.collectives import collective
from workloads.jobs import at_once
from workloads.schedule import Schedule

FABRIC = build(
    FabricSpec(FabricKind.SPINE_LEAF, 8, 2, spines=4, parallel_links=2, domains_per_leaf=4, oversubscription=2.0)
)
POLICY = RoutingPolicy(seed=3)
DOWN = frozenset({"leaf0-spine0"})


def schedule() -> Schedule:
    across = {f"job{job}": (2 * job, 2 * job + 8) for job in range(4)}
    parts = [collective("all-reduce", groups, 1 << 20, 16, name="part") for groups in (across, {"inside": (1, 0)})]
    return at_once(parts, "jobs")


def steering(mode: PlanMode, channels: int = 4, unused: frozenset[str] = frozenset()) -> Steering:
    planning = Planning(mode, channels)
    return Steering(FABRIC, demands_of(FABRIC, schedule(), planning), POLICY, planning, unused)


def links_used(one: Steering) -> set[str]:
    return {link_id for flows in one.plan.flows for flow in flows for link_id, _ in flow.lanes}


def test_pairs_of_one_domain_are_not_planned() -> None:
    demands = demands_of(FABRIC, schedule(), Planning(PlanMode.STATIC, 4))
    assert {(demand.src, demand.dst) for demand in demands} == {
        pair for job in range(4) for pair in ((Gpu(job, 0), Gpu(job + 4, 0)), (Gpu(job + 4, 0), Gpu(job, 0)))
    }
    assert {demand.job for demand in demands} == {f"job0/job{job}" for job in range(4)}
    assert {demand.size_bytes for demand in demands} == {schedule().bytes_by_pair()[0, 8]}


@pytest.mark.parametrize("mode", PlanMode)
def test_shares_are_of_every_pair_and_sum_to_one(mode: PlanMode) -> None:
    one = steering(mode)
    for _ in range(2):
        assert len(one.shares) == 8
        for (src, dst), shares in one.shares.items():
            assert shares == one.shares_of(src, dst)
            assert len(shares) == 4
            assert sum(shares) == pytest.approx(1)
        one.links_changed(DOWN)
        one.replan()


def test_only_a_dynamic_plan_is_made_anew_and_the_first_one_comes_back() -> None:
    for mode in PlanMode:
        one = steering(mode)
        first = one.placement
        used = links_used(one)
        one.links_changed(DOWN)
        assert not links_used(one) & DOWN  # the routing takes them elsewhere
        assert one.placement == first
        count = one.replan()
        assert (one.placement != first) == (mode is PlanMode.DYNAMIC)
        assert bool(count) == (mode is PlanMode.DYNAMIC)
        one.links_changed(frozenset())
        one.replan()
        assert (one.placement, links_used(one)) == (first, used)


def test_a_new_plan_is_more_even_than_what_the_routing_does() -> None:
    kept, anew = steering(PlanMode.STATIC), steering(PlanMode.DYNAMIC)
    for one in (kept, anew):
        one.links_changed(DOWN)
        one.replan()
    assert anew.plan.busiest_s(FABRIC) < kept.plan.busiest_s(FABRIC)


def test_links_that_are_not_to_be_used_are_used_by_no_plan() -> None:
    for mode in PlanMode:
        one = steering(mode, unused=DOWN)
        first = one.placement
        assert not links_used(one) & DOWN
        both = DOWN | {"leaf1-spine2"}
        for links_down in (both, DOWN):
            one.links_changed(links_down)
            one.replan()
            assert not links_used(one) & links_down
        assert one.placement == first
        # They may come back later, and the placement must name another link wherever there is a choice then.
        if mode is not PlanMode.HASHED:
            assert all(len(links) == 2 and not links & DOWN for links in one.placement.links_of.values())


def test_bytes_move_to_the_channels_that_are_measured_to_be_faster() -> None:
    one = steering(PlanMode.DYNAMIC)
    src, dst = Gpu(0, 0), Gpu(4, 0)
    before = one.shares_of(src, dst)
    for channel in (0, 1, 2):
        assert not one.measured(Connection(src, dst, channel), 1000, 1.0)
    assert one.measured(Connection(src, dst, 3), 1000, 2.0)
    after = one.shares_of(src, dst)
    assert sum(after) == pytest.approx(1)
    assert after[3] < before[3]
    assert all(after[channel] > before[channel] for channel in (0, 1, 2))
    assert one.shares_of(dst, src) == before
    # Measured alike, nothing is left to be done.
    assert not any(one.measured(Connection(src, dst, channel), 1e6 * after[channel], 1.0) for channel in range(4))
    static = steering(PlanMode.STATIC)
    assert not any(static.measured(Connection(src, dst, channel), 1000, 1.0 + channel) for channel in range(4))
    assert not one.measured(Connection(Gpu(0, 1), Gpu(0, 0), 0), 1000, 1.0)  # not planned


def test_levelling_ends_where_all_channels_end_together() -> None:
    """Channels with fixed rates: the bytes become proportional to them."""
    rates = {Connection(Gpu(0, 0), Gpu(1, 0), channel): rate for channel, rate in enumerate((1.0, 2.0, 5.0, 0.0))}
    flows = tuple(Flow(each, (), 10.0 if rate else 0.0) for each, rate in rates.items())
    for _ in range(20):
        again = levelled(flows, rates)
        if again is None:
            break
        flows = again
    assert [flow.size_bytes for flow in flows] == pytest.approx([30 / 8, 60 / 8, 150 / 8, 0], rel=0.05)
    assert sum(flow.size_bytes for flow in flows) == pytest.approx(30)


def test_a_placement_is_a_plan_that_says_which_pairs_and_channels_there_are() -> None:
    each = Connection(Gpu(0, 0), Gpu(4, 0))
    ways = {each: ["leaf0-spine1", "leaf1-spine1"], each._replace(channel=1): ["leaf0-spine2#2", "leaf1-spine2"]}
    planning = Planning(PlanMode.STATIC, placement=Placement.of(ways))
    assert Planning.from_dict(planning.to_dict()) == planning
    demands = demands_of(FABRIC, schedule(), planning)
    assert [(demand.src, demand.dst, demand.channels) for demand in demands] == [(Gpu(0, 0), Gpu(4, 0), 2)]
    one = Steering(FABRIC, demands, POLICY, planning)
    assert one.placement == planning.placement
    assert one.shares == {(Gpu(0, 0), Gpu(4, 0)): (0.5, 0.5)}
    assert {"leaf0-spine1", "leaf0-spine2#2"} < links_used(one)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"channels": 0}, "needs 1 connection or more"),
        ({"mode": PlanMode.DYNAMIC, "placement": Placement.of({})}, "does not go with the plan 'dynamic'"),
    ],
)
def test_a_planning_that_means_nothing_is_refused(values: dict[str, object], words: str) -> None:
    with pytest.raises(PlanningError, match=words):
        replace(Planning(PlanMode.STATIC), **values)  # type: ignore[arg-type]


def test_channels_of_a_placement_have_no_gap() -> None:
    planning = Planning(PlanMode.STATIC, placement=Placement.of({Connection(Gpu(0, 0), Gpu(4, 0), 3): ()}))
    with pytest.raises(PlanningError, match="channels from d0r0 to d4r0 are 3"):
        demands_of(FABRIC, schedule(), planning)


@pytest.mark.parametrize("shares", [(1.0,), (1, 1, 1), (0.5, 0.0, 0.5), (0.123, 0.456, 0.421), (1e-9, 1.0)])
@pytest.mark.parametrize("size_bytes", [1, 2, 7, 1000, 12_345_678])
def test_bytes_are_divided_exactly(shares: tuple[float, ...], size_bytes: int) -> None:
    parts = divided(size_bytes, shares)
    assert sum(parts) == size_bytes
    for part, share in zip(parts, shares, strict=True):
        assert abs(part - size_bytes * share / sum(shares)) < 1
        assert part >= 0
        assert share or not part
