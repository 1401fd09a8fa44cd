"""R5 and R9: who talks to whom in training, and how much, from the operations of whole iterations."""

from __future__ import annotations

from dataclasses import replace

from experiments.reference.row import Expected, Mark, Reference, ReferenceRow, Told, exactly
from workloads.algorithms import DIRECT
from workloads.models import find_model
from workloads.operations import OperationSchedule
from workloads.traffic import active_share, ways
from workloads.training import DP, PP, TP, Plan, training_iteration

DGX, NVL256 = 8, 256

GPT3 = "gpt3-175b"
GPT3_PLAN = Plan(tp=8, pp=8, dp=512, micro_batches=16, sequence_parallel=True, tp_algorithm=DIRECT)
TRILLION = "gpt3-1t"
TRILLION_PLAN = Plan(tp=32, pp=64, dp=16, micro_batches=64, sequence_parallel=True, tp_algorithm=DIRECT)

SILENT = Expected(99.0, 100.0, Mark.SECONDARY, 0.05)
MOST = Expected(50.0, 100.0, Mark.SECONDARY)


def _iteration(model: str, plan: Plan, domain_size: int) -> OperationSchedule:
    return training_iteration(find_model(model), plan, ranks=plan.ranks, domain_size=domain_size)


def sparsity(told: Told) -> list[ReferenceRow]:
    """Silent pairs, and what share of the bytes is tensor-parallel."""
    rows = []
    for model, plan, domain_size in (
        (GPT3, replace(GPT3_PLAN, dp=64), DGX),
        (GPT3, GPT3_PLAN, DGX),
        (TRILLION, TRILLION_PLAN, NVL256),
    ):
        case = f"{model}, {plan.ranks:,} GPUs, K = {domain_size}"
        told(f"traffic matrix of {case}")
        made = _iteration(model, plan, domain_size)
        pairs = made.bytes_by_pair()
        active = 100 * active_share(pairs, plan.ranks)
        formula = 100 * (domain_size + 3) / (plan.ranks - 1)
        fills_domain = plan.tp == domain_size
        why = (
            ""
            if fills_domain
            else f"a TP group of {plan.tp} talks to {plan.tp - 1} GPUs of its domain, not to {domain_size - 1}"
        )
        expected = exactly(formula, tolerance=1e-9) if fills_domain else Expected(0.0, formula, Mark.DERIVED)
        rows.append(ReferenceRow("R5", f"{case}: pairs that talk, (K+3)/(N-1) at most", "%", active, expected, why))
        # The published share is of a matrix with domains of 256 GPUs.
        rows.append(
            ReferenceRow("R5", f"{case}: silent pairs", "%", 100 - active, SILENT if domain_size == NVL256 else None)
        )
        whole = sum(pairs.values())
        tensor = sum(made.bytes_by_pair([TP]).values())
        rows.append(ReferenceRow("R5", f"{case}: bytes of tensor parallelism", "%", 100 * tensor / whole, MOST))
        crossing = 100 * ways(pairs, domain_size).across_rails / whole
        rows.append(ReferenceRow("R5", f"{case}: bytes that must change rail", "%", crossing, exactly(0.0)))
    return rows


def volumes(told: Told) -> list[ReferenceRow]:
    """Bytes per GPU and iteration of GPT-3 175B under TP8 PP8 DP512."""
    told("volumes of GPT-3 175B")
    made = _iteration(GPT3, GPT3_PLAN, DGX)
    calls = [call for operation in made.operations for call in operation.calls]
    gradients = [call for call in calls if call.family.name == DP]
    reduced = sum(call.size_bytes * call.family.group_size * call.family.group_count for call in gradients)
    of_stages = sorted(call.size_bytes for call in gradients)
    message = next(call.size_bytes for call in calls if call.family.name == PP)
    plain = _iteration(GPT3, replace(GPT3_PLAN, sequence_parallel=False), DGX)
    buffer = next(
        call.size_bytes for operation in plain.operations for call in operation.calls if call.family.name == TP
    )
    layers = find_model(GPT3).layers // GPT3_PLAN.pp
    return [
        ReferenceRow("R9", "DP: gradients, mean of all GPUs", "GB", reduced / made.ranks / 1e9,
                     Expected(5.5, 5.5, Mark.PUBLISHED, 0.05), "2 bytes for each parameter of a GPU"),
        ReferenceRow("R9", "DP: gradients of an inner stage", "GB", of_stages[0] / 1e9, None,
                     "12 layers of 1.81e9 parameters / 8 x 2 bytes"),
        ReferenceRow("R9", "DP: gradients of the first stage", "GB", of_stages[-1] / 1e9, None, "with the embedding"),
        ReferenceRow("R9", "PP: one message", "MB", message / 1e6, Expected(6.0, 6.0, Mark.PUBLISHED, 0.5),
                     "2048 x 12,288 x 2 bytes / 8"),
        ReferenceRow("R9", "TP: one buffer for each layer of a stage", "MB", layers * buffer / 1e6,
                     Expected(560.0, 560.0, Mark.PUBLISHED, 5.0),
                     "12 x 2048 x 12,288 x 2 bytes; the source does not say how it counts, and no count of whole "
                     "buffers gives 560"),
    ]  # fmt: skip


R5 = Reference(
    "R5",
    "Training traffic is sparse: with domains of 256 GPUs 99 % of pairs are silent; most bytes are tensor-parallel.",
    "Traffic matrix of one iteration, from its operations.",
    sparsity,
)
R9 = Reference(
    "R9",
    "GPT-3 175B with TP8 PP8 DP512 moves 5.5 GB (DP), 6 MB a message (PP) and 560 MB (TP) per GPU and iteration.",
    "Sizes of the calls of one iteration.",
    volumes,
)
