"""One training iteration of a model under a plan: what every GPU computes and sends, as operations over families.

Sizes follow Megatron-LM: a layer's tensor-parallel collectives move the activations of a micro-batch, a pipeline
message its share of them, an expert exchange every token ``top_k`` times, and data parallelism the gradients. Computing
takes its floating-point operations (:mod:`workloads.models`) at ``utilisation`` of the GPU's peak.

Left out, as together they are far below 0.1 % of the bytes: the three numbers per token of the vocabulary-parallel
loss, the norm of the gradients, and the router's statistics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from workloads.algorithms import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BULK,
    DIRECT,
    HIERARCHICAL,
    REDUCE_SCATTER,
    RING,
    SEND_RECV,
    TWO_PHASE,
    find_algorithm,
    shared,
)
from workloads.errors import PlanError
from workloads.expert_load import UNIFORM, ExpertLoad
from workloads.families import Axis, Family
from workloads.models import GPU_PEAK_TFLOPS, Model
from workloads.operations import Call, Operation, OperationSchedule
from workloads.pipeline import Pass, stage_passes

TP, DP, PP, EP, EXPERT_DP, EMBEDDING = "tp", "dp", "pp", "ep", "expert-dp", "embedding"
"""Names of the families: tensor, data, pipeline and expert parallelism, copies of experts, tied embeddings."""


@dataclass(frozen=True)
class Plan:
    """How a model is spread over GPUs.

    ``tp``, ``pp`` and ``dp`` multiply to the number of GPUs; ``ep`` divides ``dp``. ``order`` says which neighbours
    come first when ranks are numbered (``tp-dp-pp``: tensor-parallel ones, then data-parallel ones, then stages).
    ``sequence_parallel`` cuts activations along the sequence between tensor-parallel regions: an all-gather and a
    reduce-scatter take the place of an all-reduce. ``chunks`` above 1 interleaves the pipeline. ``zero`` is the ZeRO
    stage: 0 all-reduces gradients, 1 reduce-scatters them and gathers parameters at the end, 2 reduce-scatters them
    after every micro-batch, 3 also gathers every layer's parameters before its use, in each pass.
    ``micro_batch`` sequences are in a micro-batch, ``micro_batches`` of which each data-parallel copy runs. Gradients
    leave in ``buckets`` per chunk, each as soon as the last backward pass is through its layers. ``recompute`` runs the
    forward pass of a layer again before its backward pass. ``value_bytes`` and ``gradient_bytes`` are the bytes of an
    element. ``gpu_tflops`` is the peak of a GPU, ``utilisation`` the share of it that matrix products reach. The
    algorithms are those of all-reduce (``tp_``, ``dp_``) and all-to-all (``ep_``).
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    micro_batch: int = 1
    micro_batches: int = 1
    sequence_parallel: bool = False
    chunks: int = 1
    zero: int = 0
    order: str = "tp-dp-pp"
    buckets: int = 1
    recompute: bool = False
    value_bytes: int = 2
    gradient_bytes: int = 2
    gpu_tflops: float = GPU_PEAK_TFLOPS["dgx-h100"]
    utilisation: float = 0.5
    tp_algorithm: str = RING
    dp_algorithm: str = RING
    ep_algorithm: str = DIRECT

    @property
    def ranks(self) -> int:
        """GPUs that the plan needs."""
        return self.tp * self.pp * self.dp


def training_iteration(
    model: Model,
    plan: Plan,
    *,
    ranks: int,
    domain_size: int,
    load: ExpertLoad | None = None,
    form: str = BULK,
    seed: int = 0,
) -> OperationSchedule:
    """One iteration on ``ranks`` GPUs in HB domains of ``domain_size``.

    ``load`` spreads tokens over experts, one step of it per micro-batch (None: uniform). Where it is uneven, a group
    goes on when its slowest member has computed. Raises PlanError for a plan that is impossible, with the numbers that
    don't fit.
    """
    check_plan(model, plan, ranks, domain_size)
    making = _Making(model, plan, domain_size, load or ExpertLoad())
    if plan.zero == 3:
        making.sharded()
    else:
        making.pipelined()
    return OperationSchedule(f"{model.name} iteration", ranks, tuple(making.operations), form, seed)


def check_plan(model: Model, plan: Plan, ranks: int, domain_size: int) -> None:
    """Raise PlanError, in one sentence with the numbers, unless the plan is possible."""
    for key in ("tp", "pp", "dp", "ep", "micro_batch", "micro_batches", "chunks", "buckets", "value_bytes",
                "gradient_bytes"):  # fmt: skip
        value = getattr(plan, key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise PlanError(f"{key} is {value!r}; it must be a whole number of at least 1")
    tp, pp, dp, ep = plan.tp, plan.pp, plan.dp, plan.ep
    layers, heads, experts = model.layers, model.heads, model.experts
    if plan.ranks != ranks:
        raise PlanError(
            f"TP {tp} x PP {pp} x DP {dp} = {plan.ranks} GPUs, but the fabric has {ranks}; the product must be {ranks}"
        )
    refused = (
        (tp > domain_size, f"TP {tp} is larger than an HB domain of {domain_size} GPUs, so that every layer would wait "
                           f"for NICs; use TP {domain_size} or less"),
        (heads % tp, f"the {heads} attention heads of {model.name} are not divisible by TP {tp}; "
                     "use a TP that divides them"),
        (model.kv_heads % tp and tp % model.kv_heads, f"the {model.kv_heads} key-value heads of {model.name} cannot be "
                                                      f"split or copied evenly over TP {tp}; choose another TP"),
        (model.ffn % tp or (model.expert_ffn % tp), f"the feed-forward size {model.ffn} of {model.name} is not "
                                                    f"divisible by TP {tp}; use a TP that divides it"),
        (plan.sequence_parallel and model.sequence % tp, f"the sequence of {model.sequence} tokens is not divisible by "
                                                         f"TP {tp}, as sequence parallelism needs; change either"),
        (layers < pp * plan.chunks, f"{model.name} has {layers} layers, fewer than PP {pp} x {plan.chunks} chunks = "
                                    f"{pp * plan.chunks} parts; use fewer"),
        (plan.chunks > 1 and pp == 1, f"{plan.chunks} chunks interleave a pipeline, but PP is 1; use PP 2 or more, or "
                                      "1 chunk"),
        (plan.chunks > 1 and plan.micro_batches % pp, f"{plan.micro_batches} micro-batches are no multiple of PP {pp}, "
                                                      "as interleaving needs; change either"),
        (ep > 1 and not experts, f"EP is {ep}, but {model.name} has no experts; use EP 1"),
        (experts % ep, f"the {experts} experts of {model.name} are not divisible by EP {ep}; use an EP that divides "
                       "them"),
        (dp % ep, f"DP {dp} is not divisible by EP {ep}: expert groups lie within data-parallel ones; change either"),
        (experts and tp > 1 and not plan.sequence_parallel, f"experts with TP {tp} need sequence parallelism, else all "
                                                            f"{tp} ranks would send the same tokens; turn it on"),
        (plan.zero not in (0, 1, 2, 3), f"zero is {plan.zero!r}; the ZeRO stages are 0, 1, 2 and 3"),
        (plan.zero in (2, 3) and pp > 1, f"ZeRO {plan.zero} scatters gradients after every micro-batch, which undoes a "
                                         f"pipeline, but PP is {pp}; use ZeRO 1 or PP 1"),
        (sorted(plan.order.split("-")) != [DP, PP, TP], f"order is '{plan.order}'; it must name tp, dp and pp once "
                                                        "each, like 'tp-dp-pp'"),
        (not 0 < plan.utilisation <= 1, f"utilisation is {plan.utilisation}; it must be above 0 and at most 1"),
        (not (plan.gpu_tflops > 0 and math.isfinite(plan.gpu_tflops)), f"gpu_tflops is {plan.gpu_tflops}; it must be "
                                                                      "a number above 0"),
        (plan.tp_algorithm == HIERARCHICAL, "a TP group lies within a domain, where nothing is hierarchical; use "
                                            "another tp_algorithm"),
    )  # fmt: skip
    for wrong, sentence in refused:
        if wrong:
            raise PlanError(sentence)
    for algorithm in (plan.tp_algorithm, plan.dp_algorithm):
        find_algorithm(ALL_REDUCE, algorithm)
    find_algorithm(ALL_TO_ALL, plan.ep_algorithm)


class _Grid:
    """Where the ranks of a plan are: the families of a stage."""

    def __init__(self, plan: Plan, domain_size: int) -> None:
        counts = {TP: plan.tp, DP: plan.dp, PP: plan.pp}
        self._apart: dict[str, int] = {}
        apart = 1
        for axis in plan.order.split("-"):
            self._apart[axis] = apart
            apart *= counts[axis]
        self._plan = plan
        self._domain_size = domain_size
        self._locals: dict[tuple[Family, str], int] = {}

    def _axis(self, name: str) -> Axis:
        return {TP: self._plan.tp, DP: self._plan.dp}[name], self._apart[name]

    def _first(self, stage: int) -> int:
        return stage * self._apart[PP]

    def tensor(self, stage: int) -> Family:
        return Family(TP, (self._axis(TP),), (self._axis(DP),), self._first(stage))

    def data(self, stage: int) -> Family:
        return Family(DP, (self._axis(DP),), (self._axis(TP),), self._first(stage))

    def expert(self, stage: int) -> Family:
        inside, between = self._expert_axes()
        return Family(EP, (inside,), (between, self._axis(TP)), self._first(stage))

    def expert_data(self, stage: int) -> Family:
        between, inside = self._expert_axes()
        return Family(EXPERT_DP, (inside,), (between, self._axis(TP)), self._first(stage))

    def _expert_axes(self) -> tuple[Axis, Axis]:
        apart = self._apart[DP]
        return (self._plan.ep, apart), (self._plan.dp // self._plan.ep, apart * self._plan.ep)

    def between(self, name: str, stage: int, other: int) -> Family:
        """Pairs of the same place in two stages."""
        pair = (2, (other - stage) * self._apart[PP])
        return Family(name, (pair,), (self._axis(DP), self._axis(TP)), self._first(stage))

    def local(self, family: Family, algorithm: str) -> int:
        """How many consecutive members of every group share a domain, on the same rails in every domain.

        Where that is not the same throughout, a ring takes its members as they come (1), and PlanError is raised for
        algorithms with a phase in the domain.
        """
        key = family, algorithm
        if key not in self._locals:
            self._locals[key] = self._found_local(family, algorithm)
        return self._locals[key]

    def _found_local(self, family: Family, algorithm: str) -> int:
        size, n = self._domain_size, family.group_size
        found = set()
        for members in family.groups():
            local = sum(rank // size == members[0] // size for rank in members)
            runs = [members[at : at + local] for at in range(0, n, local)]
            rails = {tuple(rank % size for rank in run) for run in runs}
            apart = len({rank // size for rank in members}) == len(runs)
            found.add(local if len(rails) == 1 and apart else 0)
        if len(found) == 1 and 0 not in found:
            return found.pop()
        if algorithm in (HIERARCHICAL, TWO_PHASE):
            raise PlanError(
                f"the {n} ranks of a {family.name} group in order {self._plan.order} do not lie alike in domains of "
                f"{size} GPUs, as the algorithm '{algorithm}' needs; change the order, the size or the algorithm"
            )
        return 1


class _Making:
    """Operations as they are added."""

    def __init__(self, model: Model, plan: Plan, domain_size: int, load: ExpertLoad) -> None:
        self.model, self.plan, self.load = model, plan, load
        self.grid = _Grid(plan, domain_size)
        self.operations: list[Operation] = []
        self.tokens = plan.micro_batch * model.sequence
        self.activation_bytes = self.tokens * model.hidden * plan.value_bytes
        self.flops_per_s = plan.tp * plan.gpu_tflops * 1e12 * plan.utilisation

    # -- operations ---------------------------------------------------------------------------------------------------

    def add(self, label: str, calls: Sequence[Call], after: Sequence[int], repeat: int = 1) -> int:
        """Add an operation and return its id.

        Computing goes to the next call that moves something. If none does, all is one computation.
        """
        moving: list[Call] = []
        waiting_s = 0.0
        for call in calls:
            waiting_s += call.delay_s
            if call.collective and call.family.group_size > 1:
                moving.append(replace(call, delay_s=waiting_s))
                waiting_s = 0.0
        if not moving:
            moving, repeat = [Call(calls[0].family, delay_s=waiting_s * repeat)], 1
        elif waiting_s:
            moving.append(Call(calls[0].family, delay_s=waiting_s))
        number = len(self.operations)
        self.operations.append(Operation(number, label, tuple(moving), tuple(dict.fromkeys(after)), repeat))
        return number

    def _s(self, flops: float) -> float:
        return flops / self.flops_per_s

    def tensor_calls(self, stage: int, compute_s: float, backward: bool) -> list[Call]:
        """One tensor-parallel region: a column-parallel product, then a row-parallel one."""
        family, size, algorithm = self.grid.tensor(stage), self.activation_bytes, self.plan.tp_algorithm
        if not self.plan.sequence_parallel or self.plan.tp == 1:
            return [Call(family, ALL_REDUCE, size, compute_s, algorithm)]
        ring = RING if algorithm != DIRECT else algorithm
        gather = Call(family, ALL_GATHER, size, 0.0, ring)
        scatter = Call(family, REDUCE_SCATTER, size, compute_s, ring)
        # The weights' gradient needs the whole input, of which only the own part was kept: it is gathered again.
        return [gather, gather, scatter] if backward else [gather, scatter]

    def layer_calls(self, stage: int, layer: int, backward: bool, step: int) -> list[Call]:
        """A layer's forward pass, or its backward pass, which costs twice as much and runs the other way."""
        model, tokens = self.model, self.tokens
        cost = 2 if backward else 1
        attention = self.tensor_calls(stage, cost * self._s(model.attention_flops(tokens)), backward)
        dense_s = cost * self._s(model.dense_flops(layer, tokens))
        if model.has_experts(layer):
            rest = self.expert_calls(stage, dense_s, cost, step)
        else:
            rest = self.tensor_calls(stage, dense_s, backward)
        if not backward:
            return attention + rest
        again = self.layer_calls(stage, layer, False, step) if self.plan.recompute else []
        return again + rest + attention

    def expert_calls(self, stage: int, dense_s: float, cost: int, step: int) -> list[Call]:
        """Tokens to their experts and back; in the backward pass their gradients take the same two ways.

        With tensor parallelism the ranks that share an expert gather each other's tokens; that is counted at the mean
        load.
        """
        model, plan = self.model, self.plan
        family, tensor = self.grid.expert(stage), self.grid.tensor(stage)
        size = self.activation_bytes // plan.tp * model.top_k
        if self.load.pattern == UNIFORM:
            splits: tuple[tuple[int, ...], ...] = ()
            largest = 1.0
        else:
            shares = self.load.rank_shares(model.experts, plan.ep, model.top_k, step)
            splits = (shared(size, shares),) * plan.ep
            largest = max(shares) * plan.ep
        back = tuple(zip(*splits, strict=True))
        expert_s = cost * largest * self._s(model.expert_flops(self.tokens))
        local = self.grid.local(family, plan.ep_algorithm)
        out = Call(family, ALL_TO_ALL, size, dense_s, plan.ep_algorithm, local, splits)
        calls = [out]
        if plan.tp > 1:
            calls.append(Call(tensor, ALL_GATHER, size * plan.tp))
            calls.append(Call(tensor, REDUCE_SCATTER, size * plan.tp, expert_s))
            expert_s = 0.0
        calls.append(replace(out, delay_s=expert_s, splits=back))
        return calls

    def pass_layers(self, stage: int, layers: Sequence[int], backward: bool, step: int, after: Sequence[int]) -> int:
        """The passes of some layers, equal ones as one operation; returns the id of the last."""
        label = f"{'backward' if backward else 'forward'} {step}"
        runs = [list(run) for _, run in groupby(layers, key=self.model.has_experts)]
        last = -1
        for run in reversed(runs) if backward else runs:
            last = self.add(label, self.layer_calls(stage, run[0], backward, step), after, len(run))
            after = (last,)
        return last

    def embed(self, stage: int, backward: bool, after: Sequence[int]) -> Sequence[int]:
        """Look tokens up in the vocabulary, a part of which is on each rank. Gradients are not passed on."""
        if self.plan.tp == 1 or (backward and not self.plan.sequence_parallel):
            return after
        kind = ALL_GATHER if backward else REDUCE_SCATTER if self.plan.sequence_parallel else ALL_REDUCE
        call = Call(self.grid.tensor(stage), kind, self.activation_bytes)
        return (self.add("embedding", [call], after),)

    def head(self, stage: int, backward: bool, after: Sequence[int]) -> Sequence[int]:
        """The product with the output embedding, a part of which is on each rank."""
        family, size = self.grid.tensor(stage), self.activation_bytes
        compute_s = (2 if backward else 1) * self._s(self.model.head_flops(self.tokens))
        if backward:
            kind = REDUCE_SCATTER if self.plan.sequence_parallel else ALL_REDUCE
            calls = [Call(family, kind, size, compute_s)]
        elif self.plan.sequence_parallel:
            calls = [Call(family, ALL_GATHER, size), Call(family, delay_s=compute_s)]
        else:
            calls = [Call(family, delay_s=compute_s)]
        return (self.add("output embedding", calls, after),)

    # -- data parallelism ---------------------------------------------------------------------------------------------

    def data_calls(self, stage: int, kind: str, layers: Sequence[int], extra_params: int, element_bytes: int
                   ) -> list[Call]:  # fmt: skip
        """One collective over the data-parallel copies of some layers, and one over those of their experts."""
        model, plan, grid = self.model, self.plan, self.grid
        dense = sum(model.dense_params(layer) for layer in layers) + extra_params
        experts = sum(model.expert_params(layer) for layer in layers)
        calls = []
        for family, params in ((grid.data(stage), dense), (grid.expert_data(stage), experts // plan.ep)):
            n = family.group_size
            if n > 1 and params:
                size = max(n, math.ceil(params / plan.tp) * element_bytes)
                whole = kind == ALL_REDUCE
                algorithm = plan.dp_algorithm if whole or plan.dp_algorithm == DIRECT else RING
                calls.append(Call(family, kind, size, 0.0, algorithm, grid.local(family, plan.dp_algorithm)))
        return calls

    def end_params(self, stage: int, chunk: int) -> tuple[int, int]:
        """Parameters of the embeddings with the first layers of a chunk, and with its last layers."""
        model = self.model
        part, parts = chunk * self.plan.pp + stage, self.plan.pp * self.plan.chunks
        first = model.embedding_params + model.positions * model.hidden if part == 0 else 0
        last = model.embedding_params if part == parts - 1 and not (model.tied and parts == 1) else 0
        return first, last

    # -- the iteration ------------------------------------------------------------------------------------------------

    def pipelined(self) -> None:
        """1F1B over the stages; gradients leave after the last backward pass of each bucket of layers."""
        plan = self.plan
        parts = plan.pp * plan.chunks
        layers_of = _cut(range(self.model.layers), parts)
        passes = [list(stage_passes(stage, plan.pp, plan.micro_batches, plan.chunks)) for stage in range(plan.pp)]
        place = [0] * plan.pp
        tails: list[tuple[int, ...]] = [()] * plan.pp  # what the next pass of a stage waits for
        inputs: dict[tuple[bool, int, int], int] = {}  # (backward, part, micro-batch): who delivers it
        syncs: list[list[int]] = [[] for _ in range(plan.pp)]
        while any(at < len(passes[stage]) for stage, at in enumerate(place)):
            for stage in range(plan.pp):
                while place[stage] < len(passes[stage]):
                    current = passes[stage][place[stage]]
                    part = current.chunk * plan.pp + stage
                    key = current.backward, part, current.micro_batch
                    starts = part == (parts - 1 if current.backward else 0)
                    if not starts and key not in inputs:
                        break
                    after = (*tails[stage], *(() if starts else (inputs[key],)))
                    last = self._pass(stage, current, layers_of[part], after, syncs[stage])
                    place[stage] += 1
                    tails[stage] = (last,)
                    target = part - 1 if current.backward else part + 1
                    if 0 <= target < parts:
                        sent = self._message(stage, target % plan.pp, last)
                        inputs[current.backward, target, current.micro_batch] = sent
                        if plan.chunks == 1:
                            tails[stage] = (sent,)  # Megatron waits for its messages unless it interleaves
        for stage in range(plan.pp):
            self._gather_parameters(stage, layers_of, syncs[stage])
        if self.model.tied and plan.pp > 1:
            family = self.grid.between(EMBEDDING, 0, plan.pp - 1)
            size = math.ceil(self.model.embedding_params / plan.tp) * plan.gradient_bytes
            waits = (*tails[0], *tails[-1], *syncs[0][-1:], *syncs[-1][-1:])
            self.add("tied embeddings", [Call(family, ALL_REDUCE, size)], waits)

    def _message(self, stage: int, target: int, after: int) -> int:
        shares = self.plan.tp if self.plan.sequence_parallel else 1
        call = Call(self.grid.between(PP, stage, target), SEND_RECV, self.activation_bytes // shares)
        return self.add(f"message to stage {target}", [call], (after,))

    def _pass(self, stage: int, current: Pass, layers: Sequence[int], after: Sequence[int], syncs: list[int]) -> int:
        """One pass through one chunk, with the gradients of its layers if it is the last one; returns its last id."""
        plan = self.plan
        part, parts, step = current.chunk * plan.pp + stage, plan.pp * plan.chunks, current.micro_batch
        if not current.backward:
            if part == 0:
                after = self.embed(stage, False, after)
            last = self.pass_layers(stage, layers, False, step, after)
            return self.head(stage, False, (last,))[0] if part == parts - 1 else last
        if part == parts - 1:
            after = self.head(stage, True, after)
        leaves = plan.zero == 2 or step == plan.micro_batches - 1
        buckets = _cut(layers, min(plan.buckets, len(layers)) if leaves else 1)
        first_extra, last_extra = self.end_params(stage, current.chunk)
        last = -1
        for number in range(len(buckets) - 1, -1, -1):
            last = self.pass_layers(stage, buckets[number], True, step, after)
            after = (last,)
            if number == 0 and part == 0:
                last = self.embed(stage, True, after)[0]
            if leaves:
                extra = (first_extra if number == 0 else 0) + (last_extra if number == len(buckets) - 1 else 0)
                kind = ALL_REDUCE if plan.zero == 0 else REDUCE_SCATTER
                calls = self.data_calls(stage, kind, buckets[number], extra, plan.gradient_bytes)
                if calls:
                    syncs.append(self.add("gradients", calls, (last, *syncs[-1:])))
        return last

    def _gather_parameters(self, stage: int, layers_of: Sequence[Sequence[int]], syncs: list[int]) -> None:
        """With ZeRO 1 and 2 every rank has updated its share of the parameters and gathers the others."""
        if self.plan.zero == 0 or not syncs:
            return
        for chunk in range(self.plan.chunks):
            layers = layers_of[chunk * self.plan.pp + stage]
            extra = sum(self.end_params(stage, chunk))
            calls = self.data_calls(stage, ALL_GATHER, layers, extra, self.plan.value_bytes)
            syncs.append(self.add("parameters", calls, (syncs[-1],)))

    def sharded(self) -> None:
        """ZeRO 3: every layer's parameters are gathered before each pass, at most two layers ahead."""
        model, plan = self.model, self.plan
        first_extra, last_extra = self.end_params(0, 0)
        extras = [0] * model.layers
        extras[0] += first_extra
        extras[-1] += last_extra
        work: tuple[int, ...] = ()
        before_that: tuple[int, ...] = ()
        gathers: tuple[int, ...] = ()
        scatters: tuple[int, ...] = ()
        for step in range(plan.micro_batches):
            work = tuple(self.embed(0, False, work))
            for backward in (False, True):
                if backward:
                    work = tuple(self.head(0, True, self.head(0, False, work)))
                for layer in range(model.layers - 1, -1, -1) if backward else range(model.layers):
                    calls = self.data_calls(0, ALL_GATHER, [layer], extras[layer], plan.value_bytes)
                    if calls:
                        gathers = (self.add("parameters", calls, (*gathers, *before_that)),)
                    before_that = work
                    work = (self.pass_layers(0, [layer], backward, step, (*work, *gathers)),)
                    calls = self.data_calls(0, REDUCE_SCATTER, [layer], extras[layer], plan.gradient_bytes)
                    if backward and calls:
                        scatters = (self.add("gradients", calls, (*work, *scatters)),)
            work = tuple(self.embed(0, True, work))


def _cut(items: Sequence[int], parts: int) -> list[Sequence[int]]:
    """``items`` in ``parts`` runs whose lengths differ by at most one, longer ones first."""
    each, longer = divmod(len(items), parts)
    starts = [part * each + min(part, longer) for part in range(parts + 1)]
    return [items[start:stop] for start, stop in pairwise(starts)]
