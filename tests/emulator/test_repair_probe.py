import pytest

from controller.policy import RoutingPolicy
from controller.routing import Routes
from emulator.probe import Stream, pair_across
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec, Failures, LinkKind


def test_the_longest_gap_is_between_arrivals_whatever_their_order() -> None:
    stream = Stream(6, ((0.0, 0.10), (0.1, 0.20), (0.2, 0.95), (0.3, 0.90), (0.4, 1.0)))
    gap = stream.longest_gap()
    assert gap is not None
    assert abs(gap[0] - 0.7) < 1e-9
    assert gap[1] == 0.9


def test_too_few_arrivals_have_no_gap() -> None:
    assert Stream(5, ((0.0, 0.1),)).longest_gap() is None


FABRICS = [
    FabricSpec(FabricKind.RAIL_ONLY, 4, 4),
    FabricSpec(FabricKind.RAIL_ONLY, 4, 4, uplinks=2),
    FabricSpec(FabricKind.RAIL_ONLY, 16, 2, switch_ports=8),
    FabricSpec(FabricKind.RAIL_OPTIMIZED, 2, 2),
    FabricSpec(FabricKind.RAIL_OPTIMIZED, 4, 4, spines=2, parallel_links=2),
    FabricSpec(FabricKind.SPINE_LEAF, 8, 8),
]


@pytest.mark.parametrize("spec", FABRICS, ids=lambda spec: f"{spec.kind.value}-{spec.domains}x{spec.rails}")
@pytest.mark.parametrize("policy", [RoutingPolicy(), RoutingPolicy(seed=7)], ids=["seed 0", "seed 7"])
def test_every_link_between_switches_has_a_pair_whose_path_crosses_it(spec: FabricSpec, policy: RoutingPolicy) -> None:
    fabric = build(spec)
    routes = Routes(fabric, policy=policy)
    for link in fabric.failure_targets():
        pair = pair_across(fabric, link.id, policy)
        if link.kind is not LinkKind.FABRIC:
            assert pair is not None
        elif pair is None:  # then no pair at all crosses it: it is idle whatever is sent
            paths = [routes.path(src, dst) for src in fabric.gpus for dst in fabric.gpus if src != dst]
            assert not any(path is not None and link.id in path.links for path in paths)
        else:
            path = routes.path(*pair)
            assert path is not None
            assert link.id in path.links


def test_the_pair_of_a_link_that_is_down_is_one_that_it_gets_back() -> None:
    fabric = build(FabricSpec(FabricKind.RAIL_OPTIMIZED, 4, 4))
    links = [link.id for link in fabric.failure_targets() if link.kind is LinkKind.FABRIC]
    pair = pair_across(fabric, links[0], RoutingPolicy(), links[:2])
    assert pair is not None
    path = Routes(fabric, Failures(links=frozenset(links[1:2]))).path(*pair)
    assert path is not None
    assert links[0] in path.links


def test_a_host_link_has_no_pair() -> None:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    host = next(link for link in fabric.links if link.kind is LinkKind.HOST)
    assert pair_across(fabric, host.id, RoutingPolicy()) is None
