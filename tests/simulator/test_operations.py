"""Operations simulated class by class take as long as their transfers do one by one."""

import numpy as np
import pytest

from simulator.errors import SimulationError
from simulator.fluid import simulate
from simulator.operations import OperationsRecord, simulate_operations
from simulator.routes import controller_router
from topologies.builders import build
from topologies.model import NO_FAILURES, Fabric, FabricKind, FabricSpec, Failures
from topologies.scale import Scale
from workloads.algorithms import ALL_REDUCE, ALL_TO_ALL, DIRECT, HIERARCHICAL, SEND_RECV, STEPWISE, TREE, TWO_PHASE
from workloads.expert_load import ZIPF, ExpertLoad
from workloads.families import Family, ListedFamily
from workloads.models import Model
from workloads.operations import Call, Operation, OperationSchedule
from workloads.records import RunRecord
from workloads.training import Plan, training_iteration

REAL = Scale(1, 1)
DENSE = Model("dense", layers=4, hidden=64, heads=8, ffn=256, sequence=64, vocabulary=512, kv_heads=8)
EXPERTS = Model("experts", layers=4, hidden=64, heads=8, ffn=256, sequence=64, vocabulary=512, kv_heads=8, experts=8,
                top_k=2, expert_ffn=128)  # fmt: skip

PLANS = {
    "tensor and data": (DENSE, Plan(tp=4, dp=4, micro_batches=2, sequence_parallel=True, buckets=2)),
    "all three": (DENSE, Plan(tp=2, pp=2, dp=4, micro_batches=3)),
    "interleaved": (DENSE, Plan(tp=2, pp=2, dp=4, micro_batches=4, chunks=2, zero=1, buckets=2)),
    "sharded": (DENSE, Plan(dp=16, zero=3, micro_batches=2)),
    "trees": (DENSE, Plan(tp=4, dp=4, dp_algorithm=TREE)),
    "hierarchical": (DENSE, Plan(dp=16, dp_algorithm=HIERARCHICAL)),
    "other order": (DENSE, Plan(tp=4, pp=2, dp=2, micro_batches=2, order="tp-pp-dp")),
    "experts": (EXPERTS, Plan(tp=2, dp=8, ep=4, sequence_parallel=True)),
    "experts in two phases": (EXPERTS, Plan(dp=16, ep=8, ep_algorithm=TWO_PHASE)),
}
FABRICS = {
    "rail-only": FabricSpec(FabricKind.RAIL_ONLY, 4, 4),
    "rail-only, rails of leaves": FabricSpec(FabricKind.RAIL_ONLY, 4, 4, domains_per_leaf=2, spines=2),
    "rail-optimized": FabricSpec(FabricKind.RAIL_OPTIMIZED, 4, 4, domains_per_leaf=2, spines=3),
    "spine-leaf": FabricSpec(FabricKind.SPINE_LEAF, 4, 4, spines=3),
}


def both(
    fabric: Fabric, schedule: OperationSchedule, failures: Failures = NO_FAILURES, start_delay_s: float = 0.0
) -> tuple[OperationsRecord, RunRecord]:
    router = controller_router(fabric)
    folded = simulate_operations(fabric, schedule, router, scale=REAL, failures=failures, start_delay_s=start_delay_s)
    plain = simulate(fabric, schedule.to_schedule(), lambda _: router(failures), scale=REAL, fold=False,
                     start_delay_s=start_delay_s)  # fmt: skip
    return folded, plain


def check_equal(folded: OperationsRecord, plain: RunRecord) -> None:
    ends = [transfer.end_s for transfer in plain.transfers if transfer.end_s is not None]
    assert folded.completion_s == pytest.approx(max(*ends, plain.last_computation_s or 0.0), rel=1e-9)
    assert folded.transfers == len(plain.transfers)
    assert folded.carried_bytes[0::2] == pytest.approx(plain.links.a_to_b_bytes[-1], rel=1e-9, abs=1.0)
    assert folded.carried_bytes[1::2] == pytest.approx(plain.links.b_to_a_bytes[-1], rel=1e-9, abs=1.0)


@pytest.mark.parametrize("plan_name", PLANS)
@pytest.mark.parametrize("fabric_name", FABRICS)
def test_an_iteration_takes_as_long_as_its_transfers(fabric_name: str, plan_name: str) -> None:
    fabric = build(FABRICS[fabric_name])
    model, plan = PLANS[plan_name]
    check_equal(*both(fabric, training_iteration(model, plan, ranks=16, domain_size=4)))


def test_uneven_experts_and_a_start_delay() -> None:
    fabric = build(FABRICS["rail-only"])
    model, plan = PLANS["experts"]
    schedule = training_iteration(model, plan, ranks=16, domain_size=4, load=ExpertLoad(ZIPF))
    check_equal(*both(fabric, schedule, start_delay_s=1e-5))


@pytest.mark.parametrize("seed", range(4))
def test_a_broken_fabric(seed: int) -> None:
    fabric = build(FABRICS[["rail-only", "rail-optimized"][seed % 2]])
    model, plan = PLANS["all three"]
    links = np.random.default_rng(seed).choice(sorted(link.id for link in fabric.failure_targets()), 2, replace=False)
    schedule = training_iteration(model, plan, ranks=16, domain_size=4)
    check_equal(*both(fabric, schedule, Failures(links=frozenset(links.tolist()))))


@pytest.mark.parametrize("kind", [FabricKind.RAIL_ONLY, FabricKind.IDEAL])
def test_one_exchange_of_all_ranks_is_not_laid_out(kind: FabricKind) -> None:
    fabric = build(FabricSpec(kind, 5, 3))
    exchange = Operation(0, "exchange", (Call(Family("all", ((15, 1),)), ALL_TO_ALL, 15 * 10**6),), repeat=2)
    found, plain = both(fabric, OperationSchedule("exchange", 15, (exchange,)))
    check_equal(found, plain)
    assert found.flow_classes == 14 * (1 if kind is FabricKind.IDEAL else 3)


def test_calls_of_several_operations_under_way_together() -> None:
    """Five operations that wait for nothing make the same call: more than there are copies of it at first."""
    fabric = build(FABRICS["rail-only"])
    call = Call(Family("rings", ((4, 4),), ((4, 1),)), ALL_REDUCE, 4 * 10**6)
    late = [
        Operation(number, "late", (Call(call.family, ALL_REDUCE, 4 * 10**6, number * 1e-5),)) for number in range(5)
    ]
    check_equal(*both(fabric, OperationSchedule("many", 16, tuple(late))))


def test_what_does_not_fit_is_refused() -> None:
    fabric = build(FABRICS["rail-only"])
    model, plan = PLANS["all three"]
    stepwise = training_iteration(model, plan, ranks=16, domain_size=4, form=STEPWISE)
    with pytest.raises(SimulationError, match="has the form 'stepwise'"):
        both(fabric, stepwise)
    schedule = training_iteration(model, plan, ranks=16, domain_size=4)
    with pytest.raises(SimulationError, match="for 16 ranks, but the fabric has 12"):
        both(build(FabricSpec(FabricKind.RAIL_ONLY, 3, 4)), schedule)
    cut = Failures(links=frozenset({"d0r0-rail0", "d0r1-rail1", "d0r2-rail2", "d0r3-rail3"}))
    with pytest.raises(SimulationError, match=r"sends from d0r.* to d.*, but no path leads there"):
        both(fabric, schedule, cut)
    huge = Call(Family("all", ((16, 1),)), ALL_TO_ALL, 16, algorithm=DIRECT)
    router = controller_router(fabric)
    with pytest.raises(SimulationError, match="goodput"):
        simulate_operations(fabric, OperationSchedule("x", 16, (Operation(0, "x", (huge,)),)), router, scale=REAL,
                            goodput=0.0)  # fmt: skip


def test_posted_receives_and_groups_that_follow_no_grid() -> None:
    """The receiver of a posted send is not waited for, so that its own computing comes beside the bytes."""
    fabric = build(FABRICS["rail-optimized"])
    pairs = ListedFamily("pairs", ((0, 5), (1, 9), (12, 2)))
    calls = (Call(Family("all", ((16, 1),)), delay_s=1e-3), Call(pairs, SEND_RECV, 10**8, posted=True))
    alone = Operation(1, "receiver", (Call(ListedFamily("five", ((5,),)), delay_s=0.5),))
    schedule = OperationSchedule(
        "posted", 16, (alone, Operation(2, "sends", calls[1:], (1,)), Operation(3, "x", calls))
    )
    check_equal(*both(fabric, schedule))
