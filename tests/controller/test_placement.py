"""Placed connections: they take the links that they were given, also after failures, and nobody else is moved."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from controller.errors import PlacementError
from controller.fake import Outcome
from controller.placed import hashed_placement
from controller.placement import Connection, Placement, read_placement
from controller.policy import Relay, RoutingPolicy
from controller.routing import Routes
from controller.rules import healthy_rules
from tests.controller.driver import Driver, healthy_fabric, repaired_fabric, targets
from tests.controller.fabrics import NAMED, built, policies
from topologies.model import Fabric, FabricKind, FabricSpec, Failures, Gpu, LinkKind

PLACED = ["rail-only 4x4", "rail-only 3x3 dual-homed", "rail-only 4x2 Clos", "rail-optimized 3x3 parallel",
          "spine-leaf 4x2 two a leaf, parallel"]  # fmt: skip


def some_placement(fabric: Fabric, random_source: random.Random, count: int = 24) -> Placement:
    """Connections with random links; not all of them can be taken."""
    links = [link.id for link in fabric.failure_targets()]
    pairs = random_source.sample(list(permutations(fabric.gpus, 2)), min(count, len(fabric.gpus)))
    return Placement.of({
        Connection(src, dst, random_source.randrange(3)): random_source.sample(links, len(links) // 2)
        for src, dst in pairs
    })  # fmt: skip


def check(fabric: Fabric, policy: RoutingPolicy, links_down: frozenset[str]) -> None:
    """Packets of placed connections take their paths, all others those of their pairs."""
    placement = policy.placement
    assert placement is not None
    routes = Routes(fabric, Failures(links=links_down), policy)
    without_links = Placement.of(dict.fromkeys(placement.links_of, ()), placement.base_port)
    plain = Routes(fabric, Failures(links=links_down), replace(policy, placement=without_links))
    fake = repaired_fabric(routes) if links_down else healthy_fabric(fabric, policy)
    for each in placement.links_of:
        path = routes.path(each.src, each.dst, each.channel)
        walked = fake.send(each.src, each.dst, tcp_dst=placement.tcp_port(each.channel))
        assert (walked.outcome is Outcome.DELIVERED) == (path is not None)
        if path is not None:
            assert walked.hops == path.hops, (each, links_down)
            assert links_down.isdisjoint(path.links)
            shortest = plain.path(each.src, each.dst)
            assert shortest is not None
            of_pair = routes.path(each.src, each.dst)
            assert of_pair is not None
            assert len(path.hops) == len(shortest.hops) == len(of_pair.hops)
            # After a failure the pair may go another way than without links: they count where rails are levelled.
            assert links_down or of_pair == shortest
            for tcp_dst in (None, placement.tcp_port(each.channel) + 1000):
                assert fake.send(each.src, each.dst, tcp_dst=tcp_dst).hops == of_pair.hops


@pytest.mark.parametrize("name", PLACED)
def test_placed_connections_go_where_they_should(name: str) -> None:
    fabric = built(NAMED[name])
    random_source = random.Random(name)
    for plain in policies(fabric)[:2]:
        policy = replace(plain, placement=some_placement(fabric, random_source))
        check(fabric, policy, frozenset())
        for count in (1, 1, 1, 2, 3):
            check(fabric, policy, frozenset(random_source.sample(targets(fabric), count)))


def test_the_link_given_is_taken_and_another_when_it_is_dead() -> None:
    fabric = built(FabricSpec(FabricKind.SPINE_LEAF, 2, 2, spines=2, parallel_links=2))
    first, second = Connection(Gpu(0, 0), Gpu(1, 0), 0), Connection(Gpu(0, 0), Gpu(1, 0), 1)
    ways = {first: ["leaf0-spine0#2", "leaf1-spine0"], second: ["leaf0-spine1", "leaf1-spine1#2"]}
    policy = RoutingPolicy(placement=Placement.of(ways))
    for each, links in ways.items():
        path = Routes(fabric, policy=policy).path(*each)
        assert path is not None
        assert set(links) <= set(path.links)
    broken = Routes(fabric, Failures(links=frozenset({"leaf0-spine0#2"})), policy).path(*first)
    assert broken is not None
    assert broken == Routes(fabric, Failures(links=frozenset({"leaf0-spine0#2"})), policy).path(*first)
    assert "leaf0-spine0#2" not in broken.links
    check(fabric, policy, frozenset({"leaf0-spine0#2"}))


def test_a_relay_can_be_placed_too() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    each = Connection(Gpu(0, 0), Gpu(1, 1))
    policy = RoutingPolicy(Relay.SOURCE, placement=Placement.of({each: ["d0r0-rail0"]}))
    path = Routes(fabric, policy=policy).path(*each)
    assert path is not None
    assert path.relays == (Gpu(1, 0),)
    check(fabric, policy, frozenset())
    # One rule, at the switch of the sending GPU.
    plain = healthy_rules(fabric, RoutingPolicy())
    added = {
        switch_id: len(rules) - len(plain[switch_id]) for switch_id, rules in healthy_rules(fabric, policy).items()
    }
    assert {switch_id: count for switch_id, count in added.items() if count} == {"s0r0": 1}


def test_the_keeper_installs_them_and_repairs_them() -> None:
    fabric = built(NAMED["spine-leaf 4x2"])
    policy = RoutingPolicy(placement=some_placement(fabric, random.Random(2)))
    driver = Driver(fabric, policy, seed=4)
    driver.connect_all()
    driver.check_converged()
    for link_id in random.Random(5).sample(targets(fabric), 3):
        driver.set_link(link_id, up=False)
        driver.settle()
        driver.check_converged()


@pytest.mark.parametrize("name", PLACED)
def test_they_are_placed_anew_while_the_fabric_runs(name: str) -> None:
    """Whatever is broken: packets take the paths of the placement in force, and the old one leaves no rule behind."""
    fabric = built(NAMED[name])
    random_source = random.Random(f"anew {name}")
    for own in (None, some_placement(fabric, random_source)):
        policy = RoutingPolicy(placement=own)
        driver = Driver(fabric, policy, seed=name)
        driver.connect_all()
        link_id = random_source.choice(targets(fabric))
        for step in (
            some_placement(fabric, random_source),
            link_id,
            some_placement(fabric, random_source),
            None,
            link_id,
        ):
            if isinstance(step, str):
                driver.set_link(step, up=step in driver.fake.links_down)
            else:
                driver.keeper.place(step)
                driver.drain()
            driver.settle()
            driver.check_converged()
            check_walks(driver)
        assert driver.keeper.version == 0
        placed = [event for event in driver.events if event["event"] == "placed"]
        assert len(placed) == 3
        assert sum(event["event"] == "repaired" for event in driver.events) == 2


def check_walks(driver: Driver) -> None:
    """Packets of all declared connections take the paths of the keeper's routes."""
    routes = driver.keeper.routes
    placement = routes.policy.placement
    for each in placement.links_of if placement is not None else ():
        path = routes.path(*each)
        walked = driver.fake.send(each.src, each.dst, tcp_dst=placement.tcp_port(each.channel))
        assert walked.hops == path.hops if path is not None else walked.outcome is not Outcome.DELIVERED


def test_a_placement_during_a_repair_announces_both() -> None:
    fabric = built(NAMED["spine-leaf 4x2"])
    driver = Driver(fabric, RoutingPolicy(local_repair=False), seed=1)
    driver.connect_all()
    driver.events.clear()
    driver.set_link("leaf0-spine0", up=False)
    while driver.keeper.links_down() != {"leaf0-spine0"}:
        driver.step()
    driver.keeper.place(some_placement(fabric, random.Random(1)))
    driver.drain()
    driver.settle()
    told = [event["event"] for event in driver.events if event["event"] in ("placed", "repaired")]
    assert told == ["placed", "repaired"]


def test_another_base_port_is_refused_at_run_time() -> None:
    fabric = built(NAMED["spine-leaf 4x2"])
    driver = Driver(fabric, RoutingPolicy(placement=Placement.of({Connection(Gpu(0, 0), Gpu(1, 0)): ()})))
    with pytest.raises(PlacementError, match="base port is 9000"):
        driver.keeper.place(Placement.of({}, base_port=9000))


def test_hashed_connections_load_spines_like_balls_in_bins() -> None:
    """Eight jobs of one flow over eight uplinks: the slowest gets E[1 / max load] = 0.41, the mean job 0.656."""
    fabric = built(FabricSpec(FabricKind.RAIL_OPTIMIZED, 2, 8, spines=8, domains_per_leaf=1))
    connections = [Connection(Gpu(0, 0), Gpu(1, 0), channel) for channel in range(8)]
    slowest, mean = [], []
    for seed in range(600):
        placement = hashed_placement(fabric, RoutingPolicy(seed=seed), connections)
        load = Counter(next(link for link in sorted(links) if link.startswith("leaf0-")) for _, links in placement.ways)
        assert sum(load.values()) == 8
        slowest.append(1 / max(load.values()))
        mean.append(sum(count * (1 / count) for count in load.values()) / 8)
    # 600 seeds: the standard error of both means is below 0.006.
    assert abs(sum(slowest) / 600 - 0.41) < 0.02
    assert abs(sum(mean) / 600 - 0.656) < 0.02


def test_connections_are_hashed_over_both_uplinks_of_a_nic() -> None:
    fabric = built(FabricSpec(FabricKind.SPINE_LEAF, 2, 1, spines=2, uplinks=2))
    connections = [Connection(Gpu(0, 0), Gpu(1, 0), channel) for channel in range(400)]
    placement = hashed_placement(fabric, RoutingPolicy(seed=2), connections)
    nics = Counter(link_id for _, links in placement.ways for link_id in links if link_id.startswith("d0r0-"))
    assert len(nics) == 2
    assert all(abs(count - 200) < 40 for count in nics.values())  # four standard deviations
    check(fabric, RoutingPolicy(placement=placement), frozenset())


def test_tiers_do_not_repeat_each_other() -> None:
    fabric = built(FabricSpec(FabricKind.SPINE_LEAF, 2, 2, spines=2, parallel_links=4))
    connections = [Connection(Gpu(0, 0), Gpu(1, 1), channel) for channel in range(800)]
    placement = hashed_placement(fabric, RoutingPolicy(seed=9), connections)
    joint = Counter(tuple(link.partition("#")[2] or "1" for link in sorted(links)) for _, links in placement.ways)
    assert len(joint) == 16
    # 15 degrees of freedom: 37.7 is passed once in 1,000 seeds.
    assert sum((count - 50) ** 2 / 50 for count in joint.values()) < 37.7


def test_written_and_read_back() -> None:
    fabric = built(NAMED["rail-only 4x4"])
    placement = some_placement(fabric, random.Random(7))
    assert Placement.from_dict(placement.to_dict()) == placement
    assert {link.kind for link in fabric.failure_targets()} == {LinkKind.NIC, LinkKind.NVLINK}


GOOD = {"src": "d0r0", "dst": "d1r0", "links": []}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "key 'connections'"),
        ({"connections": 3}, "key 'connections'"),
        ({"connections": [{"src": "d0r0"}]}, "connection 0 of the placement must have the keys"),
        ({"connections": [GOOD, {**GOOD, "src": "gpu7"}]}, "connection 1 of the placement: 'gpu7' is not the name"),
        ({"connections": [{**GOOD, "channel": "x"}]}, "channel is 'x'"),
        ({"connections": [{**GOOD, "links": "d0r0-rail0"}]}, "links must be a list"),
        ({"connections": [], "base_port": "high"}, "base_port is 'high'"),
        ({"connections": [{**GOOD, "dst": "d9r0"}]}, "does not fit the fabric"),
        ({"connections": [{**GOOD, "links": ["d0r0-rail9"]}]}, "does not fit the fabric"),
        ({"connections": [{**GOOD, "dst": "d0r0"}]}, "to itself"),
        ({"connections": [{**GOOD, "channel": 60000}]}, "TCP port 67000"),
    ],
)
def test_what_is_wrong_is_named(data: Any, words: str) -> None:
    with pytest.raises(PlacementError, match=words):
        Placement.from_dict(data).check(built(NAMED["rail-only 4x4"]))


def test_a_placement_is_read_from_a_file_or_refused_in_one_sentence(tmp_path: Path) -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    path = tmp_path / "placement.json"
    for text, sentence in (
        (None, "cannot read the placement file"),
        ("{", "is not JSON"),
        ("[]", "a placement is an object with the key 'connections'"),
        (json.dumps({"connections": [{**GOOD, "src": "d9r0"}]}), "does not fit the fabric"),
    ):
        if text is not None:
            path.write_text(text)
        with pytest.raises(PlacementError, match=sentence) as refused:
            read_placement(path, fabric)
        assert "\n" not in str(refused.value)
    path.write_text(json.dumps({"connections": [GOOD]}))
    assert read_placement(path, fabric) == Placement.from_dict({"connections": [GOOD]})


@pytest.mark.parametrize("channels", [2, 3])
def test_channels_that_are_spread_one_by_one_have_their_rules(channels: int) -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    ring = [
        Connection(src, Gpu((src.domain + 1) % 4, src.rail), channel)
        for src in fabric.gpus for channel in range(channels)
    ]  # fmt: skip
    policy = RoutingPolicy(placement=Placement.of(dict.fromkeys(ring, ())))
    for links in ({"d1r0-rail0"}, {"d1r0-rail0", "d1r2-rail2"}, {"d3r2-rail2", "d1r3-nv1"}):
        check(fabric, policy, frozenset(links))
