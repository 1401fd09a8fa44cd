"""Path probing: every link with a choice is tried, and exactly the broken ones are condemned."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from controller.planning.probing import FIRST_PROBE_CHANNEL, Probe, condemned, placement_of, probes_for
from controller.planning.traffic import Demand
from controller.policy import RoutingPolicy
from controller.routing import Routes
from topologies.builders import build
from topologies.model import Fabric, FabricKind, FabricSpec, Gpu, LinkKind

POLICY = RoutingPolicy()
SPECS = {
    "three leaves": FabricSpec(FabricKind.SPINE_LEAF, 6, 2, spines=4, domains_per_leaf=2),
    "parallel links": FabricSpec(FabricKind.SPINE_LEAF, 4, 2, spines=2, parallel_links=3, domains_per_leaf=2),
    "dual-homed": FabricSpec(FabricKind.SPINE_LEAF, 4, 2, spines=4, domains_per_leaf=2, uplinks=2),
    "rail-optimized": FabricSpec(FabricKind.RAIL_OPTIMIZED, 6, 2, spines=4, domains_per_leaf=2),
}


def demands(fabric: Fabric) -> list[Demand]:
    """A ring over all domains on every rail."""
    count = fabric.spec.domains
    return [
        Demand("ring", Gpu(domain, rail), Gpu((domain + 1) % count, rail), 1.0)
        for rail in range(fabric.spec.rails)
        for domain in range(count)
    ]


def answers(probes: tuple[Probe, ...], broken: frozenset[str]) -> set:
    return {probe.there for probe in probes if broken.isdisjoint(probe.links)}


@pytest.mark.parametrize("name", SPECS)
def test_every_link_with_a_choice_is_tried_twice_by_paths_that_the_controller_can_place(name: str) -> None:
    fabric = build(SPECS[name])
    probes = probes_for(fabric, demands(fabric), POLICY)
    spines = {link.id for link in fabric.links if link.kind is LinkKind.FABRIC}
    for link_id in spines:
        assert sum(link_id in probe.chosen for probe in probes) >= 2, link_id
    assert len(probes) <= 2 * len(list(fabric.failure_targets()))
    placement = placement_of(probes)
    routes = Routes(fabric, policy=replace(POLICY, placement=placement))
    for probe in probes:
        there, back = routes.path(*probe.there), routes.path(*probe.back)
        assert there is not None
        assert back is not None
        assert there.links[1:-1] == probe.links
        assert back.links[1:-1] == probe.links[::-1]
        assert probe.there.channel >= FIRST_PROBE_CHANNEL


@pytest.mark.parametrize("name", SPECS)
def test_exactly_the_broken_links_are_condemned_or_their_partners_that_no_other_path_can_clear(name: str) -> None:
    fabric, random_source = build(SPECS[name]), random.Random(name)
    probes = probes_for(fabric, demands(fabric), POLICY)
    assert condemned(probes, answers(probes, frozenset())) == frozenset()
    choice = sorted({link_id for probe in probes for link_id in probe.chosen})
    for _ in range(10):
        broken = frozenset(random_source.sample(choice, 1))
        found = condemned(probes, answers(probes, broken))
        assert broken <= found
        for link_id in found - broken:  # every path over it that was tried is over the broken one too
            assert all(not broken.isdisjoint(probe.links) for probe in probes if link_id in probe.links)
        if name in ("three leaves", "parallel links"):
            assert found == broken


def test_rail_only_has_nothing_to_probe() -> None:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 2))
    assert probes_for(fabric, demands(fabric), POLICY) == ()
