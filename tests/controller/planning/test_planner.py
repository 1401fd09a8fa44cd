"""Plans: every channel on a usable path, all bytes there, the busiest lane near the optimum of a linear program."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from controller.errors import PlacementError, PlanningError
from controller.placed import hashed_placement
from controller.planning.optimum import least_busiest_s
from controller.planning.planner import followed, hashed, moved, planned, replanned, replanned_if_worth
from controller.planning.traffic import Demand, Plan, lanes_of
from controller.planning.usable import UsablePaths
from controller.policy import RoutingPolicy
from controller.routing import Routes
from topologies.builders import build
from topologies.model import NO_FAILURES, Fabric, FabricKind, FabricSpec, Failures, Gpu, LinkKind

POLICY = RoutingPolicy()
BY_SERVER = FabricSpec(FabricKind.SPINE_LEAF, 16, 1, spines=8, domains_per_leaf=8)
SPECS = {
    "spine-leaf": BY_SERVER,
    "spine-leaf 2:1": replace(BY_SERVER, oversubscription=2.0),
    "spine-leaf parallel": replace(BY_SERVER, rails=2, spines=4, parallel_links=4),
    "spine-leaf dual-homed": replace(BY_SERVER, uplinks=2),
    "rail-optimized": FabricSpec(FabricKind.RAIL_OPTIMIZED, 4, 4, spines=4),
    "rail-only": FabricSpec(FabricKind.RAIL_ONLY, 4, 4),
    "rail-only dual-homed": FabricSpec(FabricKind.RAIL_ONLY, 4, 4, uplinks=2),
    "rail-only Clos": FabricSpec(FabricKind.RAIL_ONLY, 8, 2, domains_per_leaf=2, spines=2),
}
TARGET = 0.98


def pairs(fabric: Fabric, jobs: int = 8, channels: int = 8, size_bytes: float = 1e9) -> list[Demand]:
    """Jobs of two domains each, both ways on every rail; domain j and one half of the fabric further on."""
    half = fabric.spec.domains // 2
    return [
        Demand(f"job{job}", Gpu(src, rail), Gpu(dst, rail), size_bytes, channels)
        for job in range(min(jobs, half))
        for rail in range(fabric.spec.rails)
        for src, dst in ((job, half + job), (half + job, job))
    ]


def some_failures(fabric: Fabric, random_source: random.Random, count: int) -> Failures:
    links = [link.id for link in fabric.failure_targets()]
    return Failures(links=frozenset(random_source.sample(links, count)))


def check(plan: Plan, fabric: Fabric, failures: Failures, policy: RoutingPolicy = POLICY) -> None:
    """The routing takes every channel where the plan says, over live links, and all bytes are there."""
    routes = Routes(fabric, failures, replace(policy, placement=plan.placement))
    planned_for = {flow.connection for flows in plan.flows for flow in flows}
    for demand, flows in zip(plan.demands, plan.flows, strict=True):
        assert planned_for.issuperset(demand.connections) or set(plan.lost).issuperset(demand.connections)
        if flows:
            assert sum(flow.size_bytes for flow in flows) == pytest.approx(demand.size_bytes)
        for flow in flows:
            path = routes.path(*flow.connection)
            assert path is not None
            assert lanes_of(fabric, path) == flow.lanes
            assert routes.links_down.isdisjoint(path.links)
            assert flow.size_bytes >= 0


@pytest.mark.parametrize("name", SPECS)
def test_plans_are_near_the_optimum_whatever_is_broken(name: str) -> None:
    fabric, random_source = build(SPECS[name]), random.Random(name)
    regular = pairs(fabric)
    some = [
        Demand("some", *random_source.sample(fabric.gpus, 2), random_source.choice((1e8, 5e8, 1e9)), 8, 8 * number)
        for number in range(16)
    ]
    for demands in (regular, some):
        for count in (0, 1, 3):
            failures = some_failures(fabric, random_source, count)
            plan = planned(fabric, demands, POLICY, failures)
            check(plan, fabric, failures)
            joined = [demand for demand, flows in zip(demands, plan.flows, strict=True) if flows]
            optimum = least_busiest_s(fabric, joined, POLICY, failures)
            assert optimum <= plan.busiest_s(fabric) * (1 + 1e-6)
            assert optimum >= TARGET * plan.busiest_s(fabric), (count, demands is regular)


@pytest.mark.parametrize("name", SPECS)
def test_a_plan_that_is_made_anew_moves_only_what_it_must_and_is_as_good(name: str) -> None:
    fabric, random_source = build(SPECS[name]), random.Random(name)
    before = planned(fabric, pairs(fabric), POLICY)
    for _ in range(3):
        failures = some_failures(fabric, random_source, 1)
        after = replanned(before, fabric, POLICY, failures)
        check(after, fabric, failures)
        joined = [demand for demand, flows in zip(after.demands, after.flows, strict=True) if flows]
        assert least_busiest_s(fabric, joined, POLICY, failures) >= TARGET * after.busiest_s(fabric)
        hit = [
            flow.connection
            for flows in before.flows
            for flow in flows
            if any(link_id in failures.links for link_id, _ in flow.lanes)
        ]
        assert set(hit) <= set(moved(before, after))
        if not hit:
            assert moved(before, after) == ()


def test_one_of_eight_uplinks_down_leaves_seven_eighths_where_bytes_can_be_re_weighted() -> None:
    fabric = build(BY_SERVER)
    demands = pairs(fabric)
    failures = Failures(links=frozenset({"leaf0-spine0"}))
    healthy = planned(fabric, demands, POLICY)
    ideal_s = 8e9 / 400e9
    assert healthy.busiest_s(fabric) == pytest.approx(ideal_s)
    again = replanned(healthy, fabric, POLICY, failures)
    assert ideal_s / again.busiest_s(fabric) == pytest.approx(7 / 8, rel=1e-3)
    evenly = replanned(healthy, fabric, POLICY, failures, reweight=False)
    assert ideal_s / evenly.busiest_s(fabric) == pytest.approx(8 / 10)
    single = planned(fabric, pairs(fabric, channels=1), POLICY, failures)
    assert ideal_s / single.busiest_s(fabric) == pytest.approx(1 / 2)
    static = followed(fabric, demands, healthy.placement, POLICY, failures, healthy.bytes_of)
    check(replace(static, placement=healthy.placement), fabric, failures)
    assert static.busiest_s(fabric) > evenly.busiest_s(fabric)


def test_hashed_channels_go_where_the_hash_of_connections_says() -> None:
    fabric = build(BY_SERVER)
    demands = pairs(fabric)
    plan = hashed(fabric, demands, RoutingPolicy(seed=5))
    connections = [each for demand in demands for each in demand.connections]
    assert plan.placement == hashed_placement(fabric, RoutingPolicy(seed=5), connections)
    check(plan, fabric, NO_FAILURES, RoutingPolicy(seed=5))
    assert set(plan.bytes_of.values()) == {1e9 / 8}


def test_both_uplinks_of_a_dual_homed_nic_carry_half() -> None:
    fabric = build(SPECS["spine-leaf dual-homed"])
    plan = planned(fabric, pairs(fabric), POLICY)
    nics = [size for (link_id, _), size in plan.loads.items() if fabric.link(link_id).kind is LinkKind.NIC]
    assert len(nics) == 2 * 2 * len(fabric.gpus)
    assert nics == pytest.approx([5e8] * len(nics))


def test_orphans_of_a_rail_only_fabric_are_spread_over_all_other_rails() -> None:
    fabric = build(SPECS["rail-only"])
    demands = pairs(fabric)
    failures = Failures(links=frozenset({"d0r0-rail0"}))
    plan = planned(fabric, demands, POLICY, failures)
    sent = Counter({
        link_id: size for (link_id, sender), size in plan.loads.items()
        if fabric.link(link_id).kind is LinkKind.NIC and sender.startswith("s0r")
    })  # fmt: skip
    assert dict(sent) == pytest.approx({f"d0r{rail}-rail{rail}": 4e9 / 3 for rail in (1, 2, 3)}, rel=0.01)


def test_a_measured_imbalance_moves_connections_only_where_it_pays() -> None:
    fabric = build(BY_SERVER)
    plan = planned(fabric, pairs(fabric, jobs=4), POLICY)
    busy = {("leaf0-spine0", "leaf0"): 1e9}
    found = replanned_if_worth(plan, fabric, POLICY, NO_FAILURES, busy)
    assert found is not None
    check(found, fabric, NO_FAILURES)
    assert found.busiest_s(fabric, busy) == pytest.approx(8e9 / 400e9)
    assert found.busiest_s(fabric, busy) < plan.busiest_s(fabric, busy)
    assert replanned_if_worth(plan, fabric, POLICY, NO_FAILURES, {("leaf0-spine0", "leaf0"): 1e5}) is None


def test_connections_without_a_path_are_named() -> None:
    fabric = build(BY_SERVER)
    failures = Failures(nodes=frozenset({"d3r0"}))
    plan = planned(fabric, pairs(fabric, channels=2), POLICY, failures)
    assert {(each.src, each.dst) for each in plan.lost} == {(Gpu(3, 0), Gpu(11, 0)), (Gpu(11, 0), Gpu(3, 0))}
    with pytest.raises(PlanningError, match="no path from d3r0 to d11r0"):
        least_busiest_s(fabric, plan.demands, POLICY, failures)


def test_the_same_seed_gives_the_same_plan() -> None:
    fabric = build(SPECS["spine-leaf parallel"])
    first, second, other = (planned(fabric, pairs(fabric), RoutingPolicy(seed=seed)) for seed in (1, 1, 2))
    assert first == second
    assert other != first


def test_the_cheapest_path_is_the_cheapest_of_all() -> None:
    fabric, random_source = build(SPECS["spine-leaf parallel"]), random.Random(1)
    usable = UsablePaths(Routes(fabric))
    price = {(link.id, end): random_source.random() for link in fabric.links for end in (link.a, link.b)}
    src, dst = Gpu(0, 0), Gpu(9, 1)

    def all_sums(switch_id: str) -> list[float]:
        if switch_id == dst.switch_id:
            return [0.0]
        steps = usable.steps(switch_id, dst)
        return [price[lane] + rest for lane, there in steps for rest in all_sums(there)]

    assert len(all_sums(src.switch_id)) == 4 * 4 * 4
    assert sum(price[lane] for lane in usable.cheapest(src, dst, price.__getitem__)) == pytest.approx(
        min(all_sums(src.switch_id))
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dst": Gpu(0, 0)}, "does not send to itself"),
        ({"size_bytes": 0}, "size_bytes is 0; it must be a number above 0"),
        ({"size_bytes": float("nan")}, "size_bytes is nan"),
        ({"channels": 0}, "1 channel or more"),
    ],
)
def test_demands_that_mean_nothing_are_refused(values: dict[str, object], words: str) -> None:
    with pytest.raises(PlanningError, match=words):
        Demand(**{"job": "one", "src": Gpu(0, 0), "dst": Gpu(1, 0), "size_bytes": 1.0, **values})  # type: ignore[arg-type]


def test_two_demands_can_not_claim_one_channel_nor_a_gpu_that_is_not_there() -> None:
    fabric = build(BY_SERVER)
    one = Demand("one", Gpu(0, 0), Gpu(1, 0), 1.0, 2)
    with pytest.raises(PlanningError, match="jobs 'one' and 'two' both use channel 1 from d0r0 to d1r0"):
        planned(fabric, [one, replace(one, job="two", first_channel=1)], POLICY)
    with pytest.raises(PlacementError, match="d99r0"):
        planned(fabric, [replace(one, dst=Gpu(99, 0))], POLICY)
