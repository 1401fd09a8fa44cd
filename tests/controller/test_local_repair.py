"""Local repair: what switches do about dead ports before the controller has acted."""

from __future__ import annotations

import random
from itertools import combinations, permutations

import pytest

from controller.entries import MARK_DSCP
from controller.fake import AT, FakeFabric, Outcome, ip_packet
from controller.forwarding import SPINE_KINDS
from controller.policy import Relay, RoutingPolicy
from controller.routing import Routes
from controller.rules import groups_for, healthy_rules
from tests.controller.driver import connected_pairs, healthy_fabric, repaired_fabric, targets
from tests.controller.fabrics import NAMED, built, policies
from topologies.model import Fabric, FabricKind, FabricSpec, Failures, Gpu, LinkKind, SwitchKind

DSCP = 46
REPAIRED = [name for name in NAMED if "ideal" not in name and "5x2" not in name and "Clos, one spine" not in name]


def check_every_pair(fake: FakeFabric) -> int:
    """No packet loops; what arrives is intact; what met two dead ports is counted. Returns how many arrive."""
    arrived = 0
    for src, dst in permutations(fake.fabric.gpus, 2):
        before = fake.counted_drops()
        walk = fake.send(src, dst, DSCP)
        assert walk.outcome is not Outcome.LOOP, (src.id, dst.id, walk)
        if walk.outcome is Outcome.DELIVERED:
            arrived += 1
            assert walk.intact, (src.id, dst.id, walk)
        elif walk.outcome is Outcome.DROPPED and walk.reason == "second dead port":
            assert fake.counted_drops() == before + 1
    return arrived


@pytest.mark.parametrize("name", REPAIRED)
def test_any_single_link_is_repaired_without_the_controller(name: str) -> None:
    fabric = built(NAMED[name])
    for policy in policies(fabric):
        fake = healthy_fabric(fabric, policy)
        for link_id in targets(fabric)[:: 3 if policy.relay is Relay.BALANCED else 1]:
            fake.set_link(link_id, up=False)
            truth = connected_pairs(fabric, fake.links_down)
            assert check_every_pair(fake) == len(truth), link_id
            fake.set_link(link_id, up=True)


def test_what_a_clos_rail_does_not_repair_locally() -> None:
    """Links of a domain that is alone below its leaves, for traffic from another leaf; nothing else."""
    fabric = built(NAMED["rail-only 5x2 Clos, parallel"])
    fake = healthy_fabric(fabric, RoutingPolicy())
    lost = set()
    for link_id in targets(fabric):
        fake.set_link(link_id, up=False)
        for src, dst in permutations(fabric.gpus, 2):
            if fake.send(src, dst).outcome is not Outcome.DELIVERED:
                lost.add((fabric.link(link_id).kind, fabric.switch_by_id[fabric.link(link_id).a].domain, dst.domain))
        fake.set_link(link_id, up=True)
    assert lost == {(LinkKind.NIC, 4, 4), (LinkKind.NVLINK, 4, 4)}


@pytest.mark.parametrize("name", [name for name in NAMED if "1x1" not in name])
def test_rules_for_marked_packets_have_no_cycle_whatever_is_dead(name: str) -> None:
    """Every choice of every group followed at once: what no cycle is in, no set of failures can make loop."""
    fabric = built(NAMED[name])
    for policy in policies(fabric):
        fake = healthy_fabric(fabric, policy)
        for dst in fabric.gpus:
            done: set[tuple[str, int]] = set()
            for switch_id, switch in fake.switches.items():
                for in_port in sorted(switch.ports):
                    _follow_all(fake, dst, (switch_id, in_port), [], done)


def _follow_all(
    fake: FakeFabric, dst: Gpu, at: tuple[str, int], path: list[tuple[str, int]], done: set[tuple[str, int]]
) -> None:
    assert at not in path, f"cycle for {dst.id}: {path[path.index(at) :]}"
    if at in done:
        return
    switch_id, in_port = at
    switch = fake.switches[switch_id]
    src = next(gpu for gpu in fake.fabric.gpus if gpu != dst)
    packet = ip_packet(src, dst, MARK_DSCP, in_port)
    flow = switch.lookup(packet)
    assert flow is not None
    ports: set[int] = set()
    for step in flow.steps:
        if step[0] == "output":
            ports.add(step[1])
        elif step[0] == "group":
            ports.update(
                each[1] for _, _, steps in switch.groups[step[1]].buckets for each in steps if each[0] == "output"
            )
    for port in ports & switch.ports - {in_port}:
        link = fake.fabric.link_by_port[switch_id, port]
        if link.kind is not LinkKind.HOST:
            there = link.other(switch_id)
            _follow_all(fake, dst, (there, link.port(there)), [*path, at], done)
    done.add(at)


@pytest.mark.parametrize("name", ["rail-only 2x2", "rail-only 5x3", "rail-only 3x3 dual-homed", "rail-optimized 4x4",
                                  "spine-leaf 4x2", "rail-only 4x2 Clos"])  # fmt: skip
def test_two_and_three_failures_before_any_repair(name: str) -> None:
    fabric = built(NAMED[name])
    pool = targets(fabric)
    random_source = random.Random(name)
    pairs = list(combinations(pool, 2))
    sets = pairs if len(pairs) <= 30 else random_source.sample(pairs, 30)
    sets += [tuple(random_source.sample(pool, 3)) for _ in range(20)]
    for number, policy in enumerate(policies(fabric)):
        fake = healthy_fabric(fabric, policy)
        for links in sets[number :: len(policies(fabric))]:
            for link_id in links:
                fake.set_link(link_id, up=False)
            check_every_pair(fake)
            for link_id in links:
                fake.set_link(link_id, up=True)


def test_a_failure_on_the_repaired_path_is_repaired_locally_too() -> None:
    fabric = built(NAMED["rail-only 4x4"])
    random_source = random.Random(5)
    pool = targets(fabric)
    share = []
    for _ in range(30):
        first, second = random_source.sample(pool, 2)
        routes = Routes(fabric, Failures(links=frozenset({first})))
        fake = repaired_fabric(routes)
        fake.set_link(second, up=False)
        truth = connected_pairs(fabric, fake.links_down)
        share.append(check_every_pair(fake) / len(truth))
    assert sum(share) / len(share) > 0.95


def test_two_rails_only_and_a_third_domain() -> None:
    """K = 2 with the NICs of d0r0 and d1r1 down: only a third domain joins d0 and d1."""
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 3, 2))
    links = frozenset({"d0r0-rail0", "d1r1-rail1"})
    for policy in policies(fabric):
        fake = healthy_fabric(fabric, policy)
        for link_id in links:
            fake.set_link(link_id, up=False)
        walk = fake.send(Gpu(0, 0), Gpu(1, 0))
        assert (walk.outcome, walk.reason) == (Outcome.DROPPED, "second dead port")
        check_every_pair(fake)
        routes = Routes(fabric, Failures(links=links), policy)
        assert check_every_pair(repaired_fabric(routes)) == len(fabric.gpus) * (len(fabric.gpus) - 1)
        path = routes.path(Gpu(0, 0), Gpu(1, 0))
        assert path is not None
        assert 2 in {gpu.domain for gpu in path.relays}


def test_the_way_of_a_packet_that_is_turned_back() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 2, 3))
    fake = healthy_fabric(fabric, RoutingPolicy())
    fake.set_link("d1r2-rail2", up=False)
    walk = fake.send(Gpu(0, 0), Gpu(1, 2), DSCP)
    # To the relay, to its rail switch, back to the relay, to another GPU, over that one's rail, and in by NVLink.
    assert [hop.switch_id for hop in walk.hops] == [
        "s0r0", "nv0", "s0r2", "rail2", "s0r2", "nv0", "s0r0", "rail0", "s1r0", "nv1", "s1r2",
    ]  # fmt: skip
    assert walk.outcome is Outcome.DELIVERED
    assert walk.turned_back
    assert walk.intact


def test_a_second_dead_port_drops_and_counts() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    fake = healthy_fabric(fabric, RoutingPolicy())
    for link_id in ("d0r0-rail0", "d0r1-rail1"):
        fake.set_link(link_id, up=False)
    walk = fake.send(Gpu(0, 0), Gpu(1, 0))
    assert (walk.outcome, walk.reason, walk.switch_id) == (Outcome.DROPPED, "second dead port", "s0r1")
    assert fake.counted_drops() == 1


def test_the_gpu_switch_of_16_gpus_stays_small() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    for policy in (RoutingPolicy(), RoutingPolicy(Relay.DESTINATION)):
        tables = healthy_rules(fabric, policy)
        assert {len(tables[gpu.switch_id]) for gpu in fabric.gpus} <= {10, 11, 12}


def test_local_repair_can_be_turned_off() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    policy = RoutingPolicy(local_repair=False)
    assert set(groups_for(fabric, policy).values()) == {()}
    fake = healthy_fabric(fabric, policy)
    fake.set_link("d0r0-rail0", up=False)
    walk = fake.send(Gpu(0, 0), Gpu(1, 0))
    assert walk.outcome is Outcome.DEAD_LINK
    routes = Routes(fabric, Failures(links=frozenset({"d0r0-rail0"})), policy)
    assert check_every_pair(repaired_fabric(routes)) == 12


def test_traffic_that_carries_the_mark_by_itself_is_only_not_repaired() -> None:
    fabric = built(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    fake = healthy_fabric(fabric, RoutingPolicy())
    for src, dst in permutations(fabric.gpus, 2):
        assert fake.send(src, dst, MARK_DSCP).outcome is Outcome.DELIVERED


def test_ttl_falls_everywhere_but_at_gpu_switches() -> None:
    fabric: Fabric = built(FabricSpec(FabricKind.RAIL_OPTIMIZED, 2, 2, spines=1))
    fake = healthy_fabric(fabric, RoutingPolicy())
    for switch in fabric.switches:
        for in_port in sorted(fake.switches[switch.id].ports):
            packet = ip_packet(Gpu(0, 0), Gpu(1, 1), in_port=in_port)
            before = packet[AT["ttl"]]
            port, _, _ = fake.switches[switch.id].forward(packet)
            if port is not None:
                assert (packet[AT["ttl"]] < before) == (switch.kind is not SwitchKind.GPU)
    assert any(switch.kind in SPINE_KINDS for switch in fabric.switches)
