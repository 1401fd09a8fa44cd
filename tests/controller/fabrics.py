"""Fabrics for the tests of the controller: small, of every kind and shape."""

from __future__ import annotations

from hypothesis import strategies as st

from controller.policy import Relay, RoutingPolicy
from topologies.builders import build
from topologies.model import Fabric, FabricKind, FabricSpec

K = FabricKind
NAMED: dict[str, FabricSpec] = {
    "rail-only 1x1": FabricSpec(K.RAIL_ONLY, 1, 1),
    "rail-only 1x4": FabricSpec(K.RAIL_ONLY, 1, 4),
    "rail-only 4x1": FabricSpec(K.RAIL_ONLY, 4, 1),
    "rail-only 2x2": FabricSpec(K.RAIL_ONLY, 2, 2),
    "rail-only 4x4": FabricSpec(K.RAIL_ONLY, 4, 4),
    "rail-only 5x3": FabricSpec(K.RAIL_ONLY, 5, 3),
    "rail-only 3x3 dual-homed": FabricSpec(K.RAIL_ONLY, 3, 3, uplinks=2),
    "rail-only 4x2 Clos": FabricSpec(K.RAIL_ONLY, 4, 2, domains_per_leaf=2, spines=2),
    "rail-only 5x2 Clos, parallel": FabricSpec(K.RAIL_ONLY, 5, 2, domains_per_leaf=2, spines=2, parallel_links=2),
    "rail-only 4x2 Clos, dual-homed": FabricSpec(K.RAIL_ONLY, 4, 2, domains_per_leaf=2, spines=2, uplinks=2),
    "rail-only 4x2 Clos, one spine": FabricSpec(K.RAIL_ONLY, 4, 2, domains_per_leaf=2, spines=1),
    "rail-optimized 4x4": FabricSpec(K.RAIL_OPTIMIZED, 4, 4, spines=4),
    "rail-optimized 3x1": FabricSpec(K.RAIL_OPTIMIZED, 3, 1),
    "rail-optimized 3x2 one spine": FabricSpec(K.RAIL_OPTIMIZED, 3, 2, spines=1),
    "rail-optimized 4x2 units": FabricSpec(K.RAIL_OPTIMIZED, 4, 2, domains_per_leaf=2, spines=2),
    "rail-optimized 3x3 parallel": FabricSpec(K.RAIL_OPTIMIZED, 3, 3, spines=2, parallel_links=2),
    "rail-optimized 3x2 dual-homed": FabricSpec(K.RAIL_OPTIMIZED, 3, 2, spines=2, uplinks=2),
    "spine-leaf 4x2": FabricSpec(K.SPINE_LEAF, 4, 2, spines=2),
    "spine-leaf 4x2 two a leaf, parallel": FabricSpec(
        K.SPINE_LEAF, 4, 2, domains_per_leaf=2, spines=2, parallel_links=3
    ),
    "spine-leaf 3x3 dual-homed": FabricSpec(K.SPINE_LEAF, 3, 3, spines=2, uplinks=2),
    "ideal 2x4": FabricSpec(K.IDEAL, 2, 4),
}

_built: dict[FabricSpec, Fabric] = {}


def built(spec: FabricSpec) -> Fabric:
    """The fabric of ``spec``, built once, so that caches by fabric work across examples."""
    if spec not in _built:
        _built[spec] = build(spec)
    return _built[spec]


def policies(fabric: Fabric) -> list[RoutingPolicy]:
    """The policies that differ on ``fabric``."""
    relays = [Relay.SOURCE, Relay.DESTINATION, Relay.BALANCED] if fabric.kind is K.RAIL_ONLY else [Relay.SOURCE]
    return [RoutingPolicy(relay, seed=3) for relay in relays]


@st.composite
def specs(draw: st.DrawFn) -> FabricSpec:
    """Any small fabric."""
    kind = draw(st.sampled_from(FabricKind))
    domains = draw(st.integers(1, 5))
    rails = draw(st.integers(1, 4))
    per_leaf = draw(st.integers(1, domains))
    leaves = -(-domains // per_leaf) * (rails if kind is K.RAIL_OPTIMIZED else 1)
    return FabricSpec(
        kind,
        domains,
        rails,
        domains_per_leaf=per_leaf,
        spines=draw(st.integers(1, 3)) if leaves > 1 else None,
        parallel_links=draw(st.integers(1, 2)),
        uplinks=draw(st.integers(1, 2)),
    )
