"""Folded and unfolded runs give the same result, and symmetric ones fold to few classes."""

import numpy as np
import pytest

from simulator.fluid import simulate
from simulator.folding import Crossings, Waits, first_members, quotient, refine
from simulator.routes import controller_router
from topologies.builders import build
from topologies.model import Fabric, FabricKind, FabricSpec
from topologies.scale import Scale
from workloads.algorithms import ALGORITHMS, BULK, STEPWISE
from workloads.collectives import all_ranks, all_to_all, collective_on, rail_rings
from workloads.failures import LinkFailure
from workloads.records import RunRecord
from workloads.schedule import Computation, Schedule, Tag, Transfer

FABRICS = {
    "rail-only": FabricSpec(FabricKind.RAIL_ONLY, 4, 4),
    "rail-only, rails of leaves": FabricSpec(FabricKind.RAIL_ONLY, 4, 2, switch_ports=4, domains_per_leaf=2, spines=2),
    "rail-optimized": FabricSpec(FabricKind.RAIL_OPTIMIZED, 4, 4),
    "rail-optimized, oversubscribed": FabricSpec(FabricKind.RAIL_OPTIMIZED, 4, 2, domains_per_leaf=2, spines=1),
    "spine-leaf": FabricSpec(FabricKind.SPINE_LEAF, 4, 4),
    "ideal": FabricSpec(FabricKind.IDEAL, 2, 4),
}
REAL = Scale(1, 1)


def both(fabric: Fabric, schedule: Schedule, *failures: LinkFailure) -> tuple[RunRecord, RunRecord]:
    made = [
        simulate(fabric, schedule, controller_router(fabric), scale=REAL, failures=failures, repair_delay_s=1e-4,
                 fold=fold)
        for fold in (True, False)
    ]  # fmt: skip
    return made[0], made[1]


def check_equal(folded: RunRecord, plain: RunRecord) -> None:
    for one, other in zip(folded.transfers, plain.transfers, strict=True):
        assert (one.transfer_id, one.status, one.size_bytes, one.reason) == (
            other.transfer_id, other.status, other.size_bytes, other.reason
        )  # fmt: skip
        assert (one.start_s is None, one.end_s is None) == (other.start_s is None, other.end_s is None)
        assert (one.start_s or 0.0) == pytest.approx(other.start_s or 0.0, rel=1e-9, abs=1e-15)
        assert (one.end_s or 0.0) == pytest.approx(other.end_s or 0.0, rel=1e-9)
        assert one.received_bytes == pytest.approx(other.received_bytes, rel=1e-9, abs=1e-3)
    assert (folded.last_computation_s or 0.0) == pytest.approx(plain.last_computation_s or 0.0, rel=1e-9)
    for ours, theirs in (
        (folded.links.a_to_b_bytes[-1], plain.links.a_to_b_bytes[-1]),
        (folded.links.b_to_a_bytes[-1], plain.links.b_to_a_bytes[-1]),
    ):
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1.0)


CASES = [
    (fabric, kind, algorithm, form, grouping)
    for fabric in FABRICS
    for kind, algorithms in ALGORITHMS.items()
    if kind != "send-recv"
    for algorithm in algorithms
    for form in (BULK, STEPWISE)
    for grouping in ("all", "rails")
    if not (fabric == "ideal" and grouping == "rails") and not (grouping == "rails" and algorithm == "hierarchical")
]


@pytest.mark.parametrize("fabric_name", FABRICS)
def test_every_collective_folded_is_the_same_unfolded(fabric_name: str) -> None:
    fabric = build(FABRICS[fabric_name])
    for name, kind, algorithm, form, grouping in CASES:
        if name == fabric_name:
            schedule = collective_on(fabric, kind, grouping, 16 * 10**7, algorithm=algorithm, form=form, name=kind)
            check_equal(*both(fabric, schedule))


@pytest.mark.parametrize("fabric_name", FABRICS)
@pytest.mark.parametrize("seed", range(3))
def test_failures_folded_are_the_same_unfolded(fabric_name: str, seed: int) -> None:
    fabric = build(FABRICS[fabric_name])
    rng = np.random.default_rng(seed)
    schedule = all_to_all(all_ranks(fabric), 16 * 10**8, len(fabric.gpus))
    links = rng.choice(sorted(link.id for link in fabric.failure_targets()), size=2, replace=False).tolist()
    failures = (LinkFailure(links[0], 0.002, 0.03), LinkFailure(links[1], 0.0))
    check_equal(*both(fabric, schedule, *failures))


def test_computing_and_random_transfers_folded_are_the_same_unfolded() -> None:
    fabric = build(FABRICS["rail-optimized, oversubscribed"])
    tag = Tag("send-recv", "send-recv", "all", 0)
    rng = np.random.default_rng(5)
    transfers, computations = [], []
    for number in range(200):
        src, dst = rng.choice(8, size=2, replace=False).tolist()
        after = tuple(sorted(set(rng.integers(0, number, size=2).tolist()))) if number > 20 else ()
        if number % 10 == 9:
            computations.append(Computation(number, src, float(rng.choice([0.001, 0.002])), after, ""))
        else:
            size = int(rng.choice([10**6, 10**7]))
            transfers.append(Transfer(number, src, dst, size, after, tag, float(rng.choice([0.0, 0.001]))))
    schedule = Schedule("s", "send-recv", "direct", 8, 2, 1, "", 0, tuple(transfers), tuple(computations))
    check_equal(*both(fabric, schedule))


def test_rail_rings_fold_to_one_flow_and_one_link() -> None:
    """Every edge of every ring is equal, and so are all links, up or down: each is crossed by one flow."""
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 6, 3))
    groups = rail_rings(fabric)
    flow = np.arange(18)
    src = np.concatenate([np.array(members) for members in groups.values()])
    dst = np.concatenate([np.roll(members, -1) for members in groups.values()])
    crossed = Crossings(np.repeat(flow, 2), np.stack((2 * src, 2 * dst + 1), axis=1).ravel())
    nothing = np.zeros(0, dtype=np.int64)
    part = refine(np.zeros(18, dtype=np.int64), np.zeros(18, dtype=np.int64), np.zeros(1, dtype=np.int64),
                  np.zeros(36, dtype=np.int64), Waits(nothing, nothing), [crossed])  # fmt: skip
    assert len(np.unique(part.items)) == 1
    assert len(np.unique(part.links)) == 1
    first, link, weight = quotient(crossed, part.items, part.links, first_members(part.items))
    assert (first.tolist(), len(link), weight.tolist()) == ([0, 1], 1, [1.0])
