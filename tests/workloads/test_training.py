from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.fluid import simulate
from tests.simulator.routes import shortest
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec
from topologies.scale import Scale
from workloads.errors import PlanError
from workloads.expert_load import PATTERNS, ExpertLoad
from workloads.models import Model, find_model
from workloads.operations import FamilyTotal, OperationSchedule
from workloads.records import RunRecord
from workloads.traffic import Ways, active_share, ways
from workloads.training import Plan, training_iteration

GPT = find_model("gpt3-175b")
SMALL = dataclasses.replace(find_model("gpt3-125m"), name="small", layers=8)
MOE = Model("moe", 8, 512, 8, 1024, 32_000, 2048, 8, gated=True, experts=8, top_k=2, expert_ffn=2048, dense_layers=2)


def iteration(model: Model, plan: Plan, domain_size: int = 8, **more: Any) -> OperationSchedule:
    return training_iteration(model, plan, ranks=plan.ranks, domain_size=domain_size, **more)


def total(found: OperationSchedule, family: str, collective: str) -> FamilyTotal:
    return next(one for one in found.totals() if (one.family, one.collective) == (family, collective))


def simulated(found: OperationSchedule, domains: int, rails: int, nic_mbps: float = 400_000.0) -> RunRecord:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, domains, rails, nic_mbps, 9 * nic_mbps))
    record = simulate(fabric, found.to_schedule(), shortest(fabric), scale=Scale(1, 1), goodput=1.0)
    assert record.complete
    return record


def end_s(record: RunRecord) -> float:
    return max([one.end_s or 0.0 for one in record.transfers] + [record.last_computation_s or 0.0])


def compute_s(found: OperationSchedule) -> float:
    """Seconds of computing, summed over all GPUs."""
    return sum(
        operation.repeat * call.delay_s * call.family.group_size * call.family.group_count
        for operation in found.operations
        for call in operation.calls
    )


def test_gpt3_175b_has_the_sizes_of_the_published_table() -> None:
    """R9: TP8 PP8 DP512, per iteration and GPU: DP 5.5 GB, PP 6 MB a message. TP: see docs/workloads.md."""
    found = iteration(GPT, Plan(tp=8, pp=8, dp=512, micro_batches=16, sequence_parallel=True))
    message = total(found, "pp", "send-recv")
    assert message.size_bytes / message.calls == 2048 * 12_288 * 2 / 8 == pytest.approx(6.29e6, rel=0.001)
    middle = [call.size_bytes for op in found.operations for call in op.calls if call.family.name == "dp"]
    assert sorted(middle)[3] == pytest.approx(5.5e9, rel=0.015)
    assert max(middle) == pytest.approx(5.5e9, rel=0.02)  # the first stage, with the embedding
    plain = iteration(GPT, Plan(tp=8, pp=8, dp=512, micro_batches=16))
    layer = total(plain, "tp", "all-reduce")
    buffer = layer.size_bytes / layer.calls
    assert buffer == 2048 * 12_288 * 2
    # Four all-reduces a layer, in 12 layers of a stage, per micro-batch; the first stage has one more, for embedding.
    assert layer.calls == 16 * (4 * 12 + 1)
    # One such buffer per layer of a stage is 604 MB (576 MiB), 8 % more than the 560 MB of the table.
    assert 12 * buffer == pytest.approx(560e6, rel=0.08)


def test_an_iteration_of_32768_gpus_is_a_small_object() -> None:
    found = iteration(GPT, Plan(tp=8, pp=8, dp=512, micro_batches=16))
    assert found.transfer_count > 50_000_000
    assert len(found.operations) < 600
    assert len(pickle.dumps(found)) < 300_000


def test_dense_training_is_sparse_traffic() -> None:
    """R5: (K+3)/(N-1) of the pairs talk, if a TP group uses all pairs of its domain; all of it on NVLink and rails."""
    ranks = 8 * 8 * 64
    found = iteration(GPT, Plan(tp=8, pp=8, dp=64, micro_batches=8, tp_algorithm="direct", sequence_parallel=True))
    pairs = found.bytes_by_pair()
    assert active_share(pairs, ranks) == pytest.approx((8 + 3) / (ranks - 1))
    split = ways(pairs, 8)
    assert split.across_rails == 0
    assert split.in_domain > 0.5 * sum(pairs.values()), "tensor parallelism is most of the bytes"
    assert split.in_domain == sum(found.bytes_by_pair(["tp"]).values())
    # With rings inside the domain even fewer pairs talk.
    ring = iteration(GPT, Plan(tp=8, pp=8, dp=64, micro_batches=8))
    assert active_share(ring.bytes_by_pair(), ranks) < (8 + 3) / (ranks - 1)


def test_with_domains_of_256_gpus_99_percent_of_pairs_are_silent() -> None:
    model = find_model("gpt3-1t")
    plan = Plan(tp=32, pp=64, dp=16, micro_batches=64, tp_algorithm="direct", sequence_parallel=True)
    found = iteration(model, plan, domain_size=256)
    pairs = found.bytes_by_pair()
    assert active_share(pairs, plan.ranks) < 0.01
    assert ways(pairs, 256).in_domain > 0.9 * sum(pairs.values())


def test_computing_is_that_of_the_model() -> None:
    for model, plan in (
        (SMALL, Plan(tp=2, pp=2, dp=4, micro_batches=3)),
        (SMALL, Plan(tp=2, pp=2, dp=4, micro_batches=4, chunks=2, sequence_parallel=True, buckets=2)),
        (SMALL, Plan(dp=4, micro_batches=2, zero=3)),
        (MOE, Plan(tp=2, pp=2, dp=4, ep=4, micro_batches=2, sequence_parallel=True)),
        (MOE, Plan(dp=8, ep=8, zero=2)),
    ):
        flops_per_s = plan.gpu_tflops * 1e12 * plan.utilisation
        tokens = plan.micro_batch * model.sequence
        expected_s = 3 * model.forward_flops(tokens) * plan.micro_batches * plan.dp / flops_per_s
        assert compute_s(iteration(model, plan)) == pytest.approx(expected_s)
        if plan.zero < 3:
            again = compute_s(iteration(model, dataclasses.replace(plan, recompute=True)))
            head_s = model.head_flops(tokens) * plan.micro_batches * plan.dp / flops_per_s
            assert again == pytest.approx(expected_s * 4 / 3 - head_s)


@pytest.mark.parametrize(("pp", "micro_batches", "chunks"), [(1, 3, 1), (2, 5, 1), (4, 8, 1), (4, 2, 1), (4, 8, 2)])
def test_a_pipeline_takes_the_closed_form(pp: int, micro_batches: int, chunks: int) -> None:
    """(m + (p-1)/v) (f + b), where messages take no time and all stages compute as long."""
    even = dataclasses.replace(SMALL, vocabulary=1)
    plan = Plan(pp=pp, micro_batches=micro_batches, chunks=chunks, dp=4 // pp)
    record = simulated(iteration(even, plan), 4, 1, nic_mbps=1e12)
    stage_s = 3 * even.forward_flops(even.sequence) / pp / (plan.gpu_tflops * 1e12 * plan.utilisation)
    assert end_s(record) == pytest.approx((micro_batches + (pp - 1) / chunks) * stage_s, rel=1e-3)


def test_messages_of_a_plain_pipeline_hold_the_sender_up_and_interleaving_hides_them() -> None:
    """With two stages, a slow message and nothing else: Megatron's blocking sends add to the time."""
    even = dataclasses.replace(SMALL, vocabulary=1)
    plain = Plan(pp=2, micro_batches=4)
    quiet_s = end_s(simulated(iteration(even, plain), 2, 1, nic_mbps=1e12))
    slow_s = end_s(simulated(iteration(even, plain), 2, 1, nic_mbps=4e4))
    message_s = even.sequence * even.hidden * 2 * 8 / 4e10
    assert slow_s > quiet_s + 2 * message_s
    assert slow_s < quiet_s + 2 * plain.micro_batches * message_s + 1e-9


def test_overlapped_gradients_cost_less() -> None:
    together = end_s(simulated(iteration(SMALL, Plan(dp=4)), 4, 1, nic_mbps=4e4))
    overlapped = end_s(simulated(iteration(SMALL, Plan(dp=4, buckets=8)), 4, 1, nic_mbps=4e4))
    assert overlapped < together
    params = SMALL.params
    ring_s = 2 * 3 / 4 * params * 2 * 8 / 4e10
    passes_s = 3 * SMALL.forward_flops(SMALL.sequence) / (989.4e12 * 0.5)
    assert together == pytest.approx(passes_s + ring_s, rel=0.001)


def test_zero_stages_move_what_the_papers_say() -> None:
    """ZeRO 1 moves as much as an all-reduce, ZeRO 3 half as much again; 2 and 3 once per micro-batch."""

    def moved(zero: int, micro_batches: int) -> int:
        found = iteration(SMALL, Plan(dp=4, zero=zero, micro_batches=micro_batches))
        return sum(one.sent_bytes for one in found.totals())

    whole = moved(0, 1)
    assert whole == pytest.approx(4 * 2 * 3 / 4 * SMALL.params * 2, rel=0.001)
    assert moved(0, 3) == whole
    assert moved(1, 1) == moved(1, 3) == pytest.approx(whole, rel=0.001)
    assert moved(2, 3) == pytest.approx(2 * whole, rel=0.001)  # three times half of it, and the parameters
    assert moved(3, 1) == pytest.approx(1.5 * whole, rel=0.001)
    assert moved(3, 3) == pytest.approx(4.5 * whole, rel=0.001)


def test_zero_3_gathers_at_most_two_layers_ahead() -> None:
    found = iteration(SMALL, Plan(dp=4, zero=3))
    parameters = [op for op in found.operations if op.label == "parameters"]
    assert len(parameters) == 2 * SMALL.layers
    work = [op.id for op in found.operations if op.label.startswith(("forward", "backward"))]
    for at in range(2, SMALL.layers):
        assert work[at - 2] in parameters[at].after


def test_experts_exchange_every_token_top_k_times() -> None:
    plan = Plan(dp=8, ep=4, micro_batches=2)
    found = iteration(MOE, plan)
    exchange = total(found, "ep", "all-to-all")
    assert exchange.calls == 2 * 2 * 2 * 6  # two ways, two passes, two micro-batches, six layers of experts
    assert exchange.size_bytes / exchange.calls == 1024 * 512 * 2 * 2
    copies = total(found, "expert-dp", "all-reduce")
    assert copies.size_bytes == 6 * 8 // 4 * MOE.expert_matrices * 2
    assert total(found, "dp", "all-reduce").size_bytes == 2 * (MOE.params - 6 * 8 * MOE.expert_matrices - 512)


def test_two_phase_experts_leave_no_traffic_across_rails() -> None:
    plan = Plan(dp=16, ep=16)
    model = dataclasses.replace(MOE, experts=16)
    direct = iteration(model, plan, load=ExpertLoad("zipf"))
    assert ways(direct.bytes_by_pair(["ep"]), 8).across_rails > 0
    shuffled = iteration(model, dataclasses.replace(plan, ep_algorithm="two-phase"), load=ExpertLoad("zipf"))
    assert ways(shuffled.bytes_by_pair(["ep"]), 8).across_rails == 0
    assert total(shuffled, "ep", "all-to-all").size_bytes == total(direct, "ep", "all-to-all").size_bytes


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_load_keeps_the_tokens(pattern: str) -> None:
    """What leaves a rank comes back to it, whatever the load; only a hot rank receives more than it sends."""
    plan = Plan(dp=4, ep=4, micro_batches=3)
    load = ExpertLoad(pattern, seed=4)
    found = iteration(MOE, plan, load=load, seed=4)
    pairs = found.bytes_by_pair(["ep"])
    for a in range(4):
        sent = sum(size for (src, _), size in pairs.items() if src == a)
        received = sum(size for (_, dst), size in pairs.items() if dst == a)
        assert sent == pytest.approx(received, rel=1e-6)
    assert iteration(MOE, plan, load=load, seed=4) == found
    uneven = any(call.splits for op in found.operations for call in op.calls)
    assert uneven == (pattern != "uniform")
    even_s = compute_s(iteration(MOE, plan))
    if pattern in ("hot-rank", "hot-expert", "zero-rank", "zipf", "rotating"):
        assert compute_s(found) > even_s, "the slowest rank holds its group up"
    else:
        assert compute_s(found) >= even_s


def test_rank_order_decides_what_runs_on_nvlink() -> None:
    plan = Plan(tp=4, pp=2, dp=4, micro_batches=2)
    megatron = iteration(SMALL, plan, domain_size=4)
    assert ways(megatron.bytes_by_pair(["tp"]), 4).on_rail == 0
    assert ways(megatron.bytes_by_pair(["dp"]), 4) == Ways(0, sum(megatron.bytes_by_pair(["dp"]).values()), 0)
    turned = iteration(SMALL, dataclasses.replace(plan, order="dp-tp-pp"), domain_size=4)
    assert ways(turned.bytes_by_pair(["tp"]), 4).in_domain == 0
    assert ways(turned.bytes_by_pair(["dp"]), 4).on_rail == 0
    for name in ("tp", "dp", "pp"):
        assert sum(turned.bytes_by_pair([name]).values()) == sum(megatron.bytes_by_pair([name]).values())


def test_data_parallel_rings_keep_to_rails() -> None:
    found = iteration(SMALL, Plan(tp=2, dp=16), domain_size=8)  # four copies a domain, four domains
    assert ways(found.bytes_by_pair(), 8).across_rails == 0


def test_hierarchical_data_parallelism_keeps_to_rails() -> None:
    plan = Plan(tp=2, dp=8, dp_algorithm="hierarchical")
    found = iteration(SMALL, plan, domain_size=8)  # four copies a domain, two domains
    split = ways(found.bytes_by_pair(["dp"]), 8)
    assert split.across_rails == 0
    assert split.on_rail * 6 == split.in_domain  # 2(4-1)/4 against 2(2-1)/2 of a quarter


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.data())
def test_any_plan_that_is_accepted_can_be_expanded(data: st.DataObject) -> None:
    draw = data.draw
    model = draw(st.sampled_from([SMALL, MOE]))
    plan = Plan(
        tp=draw(st.sampled_from([1, 2])), pp=draw(st.sampled_from([1, 2, 4])), dp=draw(st.sampled_from([1, 2, 4])),
        ep=draw(st.sampled_from([1, 2])), micro_batches=draw(st.sampled_from([1, 2, 4])),
        sequence_parallel=draw(st.booleans()), chunks=draw(st.sampled_from([1, 2])), zero=draw(st.integers(0, 3)),
        order=draw(st.sampled_from(["tp-dp-pp", "tp-pp-dp", "pp-dp-tp"])), buckets=draw(st.sampled_from([1, 3])),
        recompute=draw(st.booleans()), tp_algorithm=draw(st.sampled_from(["ring", "direct", "double binary tree"])),
        dp_algorithm=draw(st.sampled_from(["ring", "hierarchical", "direct"])),
        ep_algorithm=draw(st.sampled_from(["direct", "two-phase"])),
    )  # fmt: skip
    load = ExpertLoad(draw(st.sampled_from(list(PATTERNS))))
    form = draw(st.sampled_from(["bulk", "stepwise"]))
    try:
        found = iteration(model, plan, load=load, form=form)
    except PlanError:
        return
    if plan.ranks == 1:
        assert found.transfer_count == 0
        return
    whole = found.to_schedule()
    assert len(whole.transfers) == found.transfer_count > 0
    assert whole.bytes_by_pair() == found.bytes_by_pair()


def test_small_iterations_run_to_the_end() -> None:
    for model, plan in (
        (SMALL, Plan(tp=4, pp=2, dp=2, micro_batches=2, sequence_parallel=True, zero=1)),
        (MOE, Plan(tp=2, pp=2, dp=4, ep=2, micro_batches=2, chunks=2, sequence_parallel=True)),
    ):
        record = simulated(iteration(model, plan, domain_size=4, load=ExpertLoad("zipf")), 4, 4)
        busy_s = compute_s(iteration(model, plan, domain_size=4)) / 16
        assert end_s(record) > busy_s


@pytest.mark.parametrize(
    ("model", "plan", "ranks", "words"),
    [
        (
            GPT,
            Plan(tp=8, pp=8, dp=4),
            128,
            "TP 8 x PP 8 x DP 4 = 256 GPUs, but the fabric has 128; the product must",
        ),
        (GPT, Plan(tp=16), 16, "TP 16 is larger than an HB domain of 8 GPUs"),
        (GPT, Plan(tp=5), 5, "the 96 attention heads of gpt3-175b are not divisible by TP 5"),
        (dataclasses.replace(GPT, ffn=49_153), Plan(tp=2), 2, "feed-forward size 49153 of gpt3-175b is not divisible"),
        (dataclasses.replace(GPT, kv_heads=3), Plan(tp=8), 8, "the 3 key-value heads of gpt3-175b"),
        (
            dataclasses.replace(GPT, sequence=1001),
            Plan(tp=2, sequence_parallel=True),
            2,
            "1001 tokens is not",
        ),
        (SMALL, Plan(pp=16), 16, "small has 8 layers, fewer than PP 16 x 1 chunks = 16 parts"),
        (SMALL, Plan(chunks=2), 1, "2 chunks interleave a pipeline, but PP is 1"),
        (SMALL, Plan(pp=2, chunks=2, micro_batches=3), 2, "3 micro-batches are no multiple of PP 2"),
        (SMALL, Plan(dp=2, ep=2), 2, "EP is 2, but small has no experts"),
        (MOE, Plan(dp=3, ep=3), 3, "the 8 experts of moe are not divisible by EP 3"),
        (MOE, Plan(dp=2, ep=4), 2, "DP 2 is not divisible by EP 4"),
        (MOE, Plan(tp=2), 2, "experts with TP 2 need sequence parallelism"),
        (SMALL, Plan(zero=4), 1, "zero is 4; the ZeRO stages are"),
        (SMALL, Plan(pp=2, zero=2), 2, "ZeRO 2 scatters gradients after every micro-batch"),
        (SMALL, Plan(order="tp-pp"), 1, "order is 'tp-pp'"),
        (SMALL, Plan(utilisation=0.0), 1, "utilisation is 0.0"),
        (SMALL, Plan(gpu_tflops=-1.0), 1, "gpu_tflops is -1.0"),
        (SMALL, Plan(tp_algorithm="hierarchical"), 1, "use another tp_algorithm"),
        (
            SMALL,
            Plan(tp=2, dp=6, dp_algorithm="hierarchical"),
            12,
            "the 6 ranks of a dp group in order tp-dp-pp do not",
        ),
        (SMALL, Plan(micro_batches=0), 1, "micro_batches is 0; it must be a whole number"),
    ],
)
def test_impossible_plans_get_one_sentence_with_the_numbers(model: Model, plan: Plan, ranks: int, words: str) -> None:
    with pytest.raises(PlanError, match=words) as found:
        training_iteration(model, plan, ranks=ranks, domain_size=8)
    text = str(found.value)
    assert text.count(". ") == 0
    assert "\n" not in text
