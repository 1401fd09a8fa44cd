from itertools import permutations

import numpy as np
import pytest

from controller.policy import Relay, RoutingPolicy
from simulator.path_table import PathTable
from simulator.paths import NO_LINK, directed_links, link_positions
from topologies.builders import build
from topologies.model import NO_FAILURES, Fabric, FabricKind, FabricSpec, Failures

SPECS = [
    FabricSpec(FabricKind.IDEAL, 2, 4),
    FabricSpec(FabricKind.RAIL_ONLY, 3, 4),
    FabricSpec(FabricKind.RAIL_ONLY, 4, 2, uplinks=2),
    FabricSpec(FabricKind.RAIL_ONLY, 8, 2, switch_ports=4),
    FabricSpec(FabricKind.RAIL_ONLY, 6, 2, domains_per_leaf=2, spines=2, parallel_links=2, uplinks=2),
    FabricSpec(FabricKind.RAIL_OPTIMIZED, 4, 4),
    FabricSpec(FabricKind.RAIL_OPTIMIZED, 5, 3, domains_per_leaf=2, spines=3, parallel_links=2),
    FabricSpec(FabricKind.RAIL_OPTIMIZED, 4, 3, uplinks=2, oversubscription=2.0),
    FabricSpec(FabricKind.RAIL_OPTIMIZED, 66, 2, domains_per_leaf=33, spines=5),
    FabricSpec(FabricKind.SPINE_LEAF, 4, 4),
    FabricSpec(FabricKind.SPINE_LEAF, 5, 2, domains_per_leaf=2, spines=2, parallel_links=3),
]


def check(fabric: Fabric, failures: Failures, policy: RoutingPolicy) -> None:
    table = PathTable(fabric, failures, policy)
    positions = link_positions(fabric)
    ranks = range(len(fabric.gpus))
    pairs = list(permutations(ranks, 2))
    if len(pairs) > 3000:
        pairs = pairs[::7]
    src, dst = np.array(pairs, dtype=np.int64).T
    rows = table.directed(src, dst)
    for (one, other), row in zip(pairs, rows, strict=True):
        path = table.routes.path(fabric.gpu_of_rank(one), fabric.gpu_of_rank(other))
        expected = directed_links(fabric, positions, one, other, path.links) if path else ()
        assert tuple(row[row != NO_LINK]) == expected


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("relay", [Relay.SOURCE, Relay.DESTINATION, Relay.BALANCED])
def test_all_pairs_go_where_the_routing_sends_them(spec: FabricSpec, relay: Relay) -> None:
    for seed in (0, 7):
        check(build(spec), NO_FAILURES, RoutingPolicy(relay=relay, seed=seed))


@pytest.mark.parametrize("spec", SPECS[:8], ids=str)
def test_pairs_that_lose_a_link_go_where_the_repaired_routing_sends_them(spec: FabricSpec) -> None:
    fabric = build(spec)
    targets = sorted(link.id for link in fabric.failure_targets())
    rng = np.random.default_rng(3)
    for _ in range(6):
        links = frozenset(rng.choice(targets, size=min(2, len(targets)), replace=False).tolist())
        check(fabric, Failures(links=links), RoutingPolicy(seed=1))
    switch = next(switch.id for switch in reversed(fabric.switches))
    check(fabric, Failures(nodes=frozenset({switch, fabric.gpus[0].id})), RoutingPolicy())
