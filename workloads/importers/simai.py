"""SimAI and ASTRA-sim 1.0 text workloads, as AICB writes them too.

Line 1 holds a policy and sizes of groups, line 2 the number of rows. A row is a layer: computing time and collective of
its forward pass, of its input gradient and of its weight gradient. One iteration runs the rows forward, then backward.

Sizes are the larger buffer of a rank, as in nccl-tests: SimAI cuts the size of every collective into one part per rank.
By SimAI's convention forward and input-gradient collectives run in the tensor group, weight-gradient ones in the
data-parallel group; the suffixes ``_EP`` and ``_DP_EP`` name the expert group and the data-parallel group of experts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from topologies.importers.errors import CountMismatchError, MalformedFileError
from workloads.importers.groups import ParallelGroups
from workloads.importers.model import Call, GroupRef, Kind, Members, Program, Reading, Tally
from workloads.importers.source import Source, truncated

KIND = "simai"
TITLE = "SimAI text workload"

_POLICY = re.compile(r"(HYBRID_\w+|MICRO|DATA|MODEL|TRANSFORMER\w*|DISTRIBUTED_INFERENCE|DLRM\w*|CHECK\w*)\b")
_PARAMETER = re.compile(r"([A-Za-z_]+)\s*:?\s+(-?\d+(?:\.\d+)?)")
_COLLECTIVES = {
    "ALLREDUCE": Kind.ALL_REDUCE,
    "ALLGATHER": Kind.ALL_GATHER,
    "REDUCESCATTER": Kind.REDUCE_SCATTER,
    "ALLTOALL": Kind.ALL_TO_ALL,
    "BROADCAST": Kind.BROADCAST,
}
_ROW_FIELDS = 12
_PASSES = ("forward", "input-gradient", "weight-gradient")
_NS = 1e-9


def matches(text: str) -> bool:
    """Whether ``text``, the start of a file, can be that of such a workload."""
    first, _, rest = text.lstrip("\ufeff").partition("\n")
    return bool(_POLICY.match(first)) and rest.partition("\n")[0].strip().isdigit()


@dataclass(frozen=True)
class _Part:
    """One pass of one row."""

    layer: str
    stage: str
    compute_s: float
    call: Call | None


def read(source: Source, gpus: int | None, *, any_count: bool = False) -> Reading:
    """The program that all ranks run. ``gpus`` is the number of ranks where the file does not say it.

    ``any_count`` reads a file whose number of rows differs from what it states; else that raises CountMismatchError.
    Raises MalformedFileError and TruncatedFileError for rows that cannot be read.
    """
    lines = source.text().splitlines()
    tally = Tally()
    parameters = {key: float(value) for key, value in _PARAMETER.findall(lines[0])}
    stated = int(lines[1].split()[0])
    rows = [(number, line) for number, line in enumerate(lines[2:], 3) if line.strip()]
    layers = [_row(source.name, number, line, number == len(lines), tally) for number, line in rows]
    if len(rows) != stated:
        sentence = f"{source.name}: line 2 states {stated} rows, but the file has {len(rows)}"
        if not any_count:
            raise CountMismatchError(f"{sentence}; correct line 2, or read it as it is with --any-count")
        tally.warn(f"{sentence}; the {len(rows)} rows are used")
    micro = lines[0].startswith("MICRO")
    tp, pp, ep, ga = (max(1, int(parameters.get(key, 1))) for key in ("model_parallel_NPU_group", "pp", "ep", "ga"))
    ranks = int(parameters["all_gpus"]) if "all_gpus" in parameters else None
    n = gpus if ranks is None else ranks
    tally.facts.update(policy=lines[0].split()[0], rows=len(rows), tp=None if micro else tp, ep=ep, pp=pp)
    for place, name in enumerate(("forward", "input_gradient", "weight_gradient")):
        tally.facts[f"{name}_compute_ns"] = round(sum(layer[place].compute_s for layer in layers) / _NS)
    groups = _Groups(n, tp, pp, ep, micro)
    calls = _iteration(layers, groups, tally)
    message = int(parameters.get("pp_comm", 0))
    if pp > 1 and message > 0:
        calls = _with_pipeline(calls, groups, message, ga, tally)
    tally.rule(
        "one iteration runs the rows forward, then backward (input gradient, then weight gradient); a collective of "
        "the weight gradient does not hold up what follows, other than the next one in its group"
    )
    tally.rule(
        "collectives of the weight gradient run in the data-parallel group, the others in the tensor group"
        if not micro
        else "every collective of a micro-benchmark runs over all ranks"
    )
    if not micro:
        tally.rule(
            "ranks are numbered as Megatron does it: tensor-parallel neighbours, then data-parallel ones, then stages"
        )
    members = frozenset(range(n)) if n is not None else frozenset()
    return Reading(KIND, TITLE, (source.name,), (Program("all ranks", members, tuple(calls)),), ranks, tally)


def _row(file: str, number: int, line: str, last: bool, tally: Tally) -> tuple[_Part, ...]:
    words = line.split()
    if len(words) != _ROW_FIELDS:
        if last and len(words) < _ROW_FIELDS:
            raise truncated(file, f"line {number}, its last, has {len(words)} of {_ROW_FIELDS} fields")
        raise MalformedFileError(
            f"{file}, line {number}: a row has {_ROW_FIELDS} fields, this one {len(words)}; write the file again"
        )
    parts = []
    for place, stage in enumerate(_PASSES):
        time_ns, comm, size = words[2 + 3 * place : 5 + 3 * place]
        try:
            compute_s, size_bytes = int(time_ns) * _NS, int(float(size))
        except (OverflowError, ValueError):
            raise MalformedFileError(
                f"{file}, line {number}: the {stage} fields '{time_ns} {comm} {size}' are not a time in ns, a "
                "collective and a size in bytes; write the file again"
            ) from None
        parts.append(_Part(words[0], stage, compute_s, _call(file, number, stage, comm, size_bytes, words[0], tally)))
    return tuple(parts)


def _call(file: str, number: int, stage: str, comm: str, size_bytes: int, layer: str, tally: Tally) -> Call | None:
    if comm == "NONE":
        if size_bytes:
            tally.skip("NONE with a size")
        return None
    base, _, suffix = comm.partition("_")
    kind = _COLLECTIVES.get(base)
    if kind is None or suffix not in ("", "EP", "DP_EP"):
        raise MalformedFileError(
            f"{file}, line {number}: '{comm}' is no collective that is known; known are "
            f"{', '.join(_COLLECTIVES)}, with _EP or _DP_EP"
        )
    name = {"EP": "ep", "DP_EP": "dp-ep"}.get(suffix, "dp" if stage == "weight-gradient" else "tp")
    gathers = kind is Kind.ALL_GATHER
    scatters = kind is Kind.REDUCE_SCATTER
    call = Call(
        kind,
        GroupRef(name),
        None if gathers else size_bytes,
        None if scatters else size_bytes,
        stage=f"{stage} {layer}",
    )
    if size_bytes < 1:
        tally.skip_call("collective of size 0", call)
        return None
    tally.use()
    return call


class _Groups:
    """The groups by name; without the number of ranks only their sizes, as far as those are known."""

    def __init__(self, ranks: int | None, tp: int, pp: int, ep: int, micro: bool) -> None:
        self._ranks = ranks
        self._micro = micro
        self._sizes = {"tp": tp, "ep": ep}
        self.parallel = ParallelGroups(range(ranks), tp, pp, ep) if ranks is not None and not micro else None

    def ref(self, name: str) -> GroupRef:
        """The group of that name."""
        if self._micro:
            return GroupRef("all", (), self._ranks, whole=True)
        if self.parallel is None:
            return GroupRef(name, (), self._sizes.get(name))
        found: tuple[Members, ...] = {
            "tp": self.parallel.tensor,
            "dp": self.parallel.data,
            "ep": self.parallel.expert,
            "dp-ep": self.parallel.expert_data,
        }[name]()
        return GroupRef(name, found, len(found[0]))

    def boundaries(self, backwards: bool) -> tuple[Members, ...]:
        """The (source, destination) pairs between all neighbouring pipeline stages; none where ranks are not known."""
        if self.parallel is None:
            return ()
        pairs = [pair for stage in range(self.parallel.pp_size - 1) for pair in self.parallel.neighbours(stage)]
        return tuple(pair[::-1] for pair in pairs) if backwards else tuple(pairs)


def _iteration(layers: Sequence[Sequence[_Part]], groups: _Groups, tally: Tally) -> list[Call]:
    """The calls in the order of one iteration, with what each waits for and the computing before it."""
    refs = {name: groups.ref(name) for name in ("tp", "dp", "ep", "dp-ep")}
    forward = [layer[0] for layer in layers]
    backward = [part for layer in reversed(layers) for part in layer[1:]]
    calls: list[Call] = []
    front: tuple[int, ...] = ()
    aside: dict[str, int] = {}  # the last weight-gradient call of each group
    gap_s = 0.0
    for part in (*forward, *backward):
        gap_s += part.compute_s
        if part.call is None:
            continue
        name = part.call.group.name
        after, passed_s = front, gap_s
        if part.stage == "weight-gradient":
            after = tuple(sorted({*front, *([aside[name]] if name in aside else [])}))
            aside[name] = len(calls)
        else:
            front, gap_s = (len(calls),), 0.0
        calls.append(replace(part.call, group=refs[name], after=after, gap_s=passed_s))
    tally.facts["compute_after_the_last_call_s"] = gap_s
    return calls


def _with_pipeline(calls: list[Call], groups: _Groups, message: int, count: int, tally: Tally) -> list[Call]:
    """The calls and the messages between pipeline stages: activations after the forward part, gradients at the end."""
    tally.rule(
        f"each stage sends {count} messages of {message} bytes (pp_comm) to the next after its forward pass, and as "
        "many back at the end; all stages run the same rows at the same time"
    )
    tally.use(2 * count)
    tally.facts["pipeline_messages_per_boundary"] = 2 * count
    made = list(calls)
    last_forward = max((at for at, call in enumerate(calls) if call.stage.startswith("forward")), default=-1)
    for direction, before in (("activations", last_forward), ("gradients", len(calls) - 1)):
        group = GroupRef("pp", groups.boundaries(backwards=direction == "gradients"), 2)
        for _ in range(count):
            after = (before,) if before >= 0 else ()
            before = len(made)
            made.append(Call(Kind.SEND_RECV, group, message, message, after=after, stage=direction))
    return made
