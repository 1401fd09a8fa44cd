"""From a workload to a schedule of transfers.

Every collective is made by the function of its name in :mod:`workloads.collectives`; send-recv and uneven all-to-all
are made here. A group's transfers wait for the last transfers that its ranks have in the operations before, and for the
computing in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from workloads.algorithms import shared, uneven_flows
from workloads.collectives import COLLECTIVES
from workloads.importers.errors import ExpansionError, RankCountError, UnknownSizeError
from workloads.importers.model import Kind, Members, Operation, Workload
from workloads.schedule import Schedule, Tag, Transfer

MAX_TRANSFERS = 2_000_000
"""Transfers up to which a schedule is made; its file would have some 300 MB."""

_BARRIER, _ALONE, _EMPTY = "barrier, which moves nothing", "group of one rank", "size 0"
_MOVES_NOTHING = (_BARRIER, _ALONE, _EMPTY)

_SENDS = tuple[tuple[int, int, int, str], ...]  # source, destination, bytes, step


@dataclass(frozen=True)
class Expansion:
    """A schedule, the operations that are in it, and the number of those that are not, by reason."""

    schedule: Schedule
    operations: int
    left_out: dict[str, int]
    notes: tuple[str, ...]

    @property
    def missing(self) -> dict[str, int]:
        """Of what is left out, that which should move bytes between ranks."""
        return {reason: count for reason, count in self.left_out.items() if reason not in _MOVES_NOTHING}


def to_schedule(
    workload: Workload, *, gpus: int | None = None, unknown_size_bytes: int | None = None, seed: int = 0
) -> Expansion:
    """The schedule of a workload for a fabric of ``gpus`` GPUs (None: as many as the workload has ranks).

    Operations of unknown size get ``unknown_size_bytes``, or are left out where that is None. Raises RankCountError
    where the number of ranks is not known or larger than ``gpus``, UnknownSizeError where no size is known, and
    ExpansionError for a schedule that would be empty or have more than :data:`MAX_TRANSFERS` transfers.
    """
    ranks = workload.ranks
    if ranks is None:
        raise RankCountError(f"{workload.name} does not say how many ranks there are; give --gpus N")
    if gpus is not None and ranks > gpus:
        raise RankCountError(
            f"{workload.name} is of {ranks} ranks, more than the {gpus} GPUs of the fabric; use --gpus {ranks} or more"
        )
    ranks = ranks if gpus is None else gpus
    sizes_known = any(operation.size_bytes is not None for operation in workload.operations)
    if not sizes_known and unknown_size_bytes is None:
        raise UnknownSizeError(
            f"{workload.name} holds no sizes, so no schedule can be made of it; give --unknown-size BYTES"
        )
    making = _Making(workload, ranks, unknown_size_bytes)
    for operation in workload.operations:
        making.add(operation)
    if not making.transfers:
        reasons = ", ".join(f"{count} x {reason}" for reason, count in making.left_out.items())
        raise ExpansionError(f"{workload.name} gives no transfer between ranks ({reasons}); there is nothing to replay")
    used = [operation for operation in workload.operations if operation.id in making.used]
    kinds = sorted({operation.kind.value for operation in used})
    schedule = Schedule(
        name=workload.name,
        collective=kinds[0] if len(kinds) == 1 else "imported",
        algorithm="imported order",
        ranks=ranks,
        group_size=max(operation.group_size for operation in used),
        size_bytes=sum(making.used.values()),
        size_meaning="sum over the operations, each in the sense of nccl-tests",
        seed=seed,
        transfers=tuple(making.transfers),
    )
    return Expansion(schedule, len(used), dict(making.left_out), tuple(making.notes))


class _Making:
    """Transfers as they are added, operation by operation."""

    def __init__(self, workload: Workload, ranks: int, unknown_size_bytes: int | None) -> None:
        self.transfers: list[Transfer] = []
        self.left_out: Counter[str] = Counter()
        self.notes: dict[str, None] = {}
        self.used: dict[int, int] = {}
        self._name = workload.name
        self._ranks = ranks
        self._unknown = unknown_size_bytes
        # For each operation, the last transfers of every rank in it; for one that is left out, those it waits for.
        self._last: dict[int, dict[int, tuple[int, ...]]] = {}
        # Computing before operations that are left out: whatever waits for them computes as long.
        self._passed_gap_s: dict[int, float] = {}

    def add(self, operation: Operation) -> None:
        """Add the transfers of an operation, or count why there are none."""
        reason = self._unusable(operation)
        if reason:
            self.left_out[reason] += 1
            self._last[operation.id] = self._passed_on(operation)
            self._passed_gap_s[operation.id] = self._gap_s(operation)
            return
        size = operation.size_bytes if operation.size_bytes is not None else self._unknown
        assert size is not None
        n = operation.group_size
        if operation.kind is not Kind.SEND_RECV and size < n:
            self.notes["operations of less than a byte per rank are rounded up to one byte per rank"] = None
            size = n
        self.used[operation.id] = size
        last: dict[int, tuple[int, ...]] = {}
        phases_of = _phases(replace(operation, size_bytes=size), self._ranks)
        for number, members in enumerate(operation.groups):
            self._add_group(operation, number, members, phases_of, last)
        self._last[operation.id] = last

    def _unusable(self, operation: Operation) -> str:
        if operation.kind is Kind.BARRIER:
            return _BARRIER
        if operation.group_size < 2:
            return _ALONE
        if operation.size_bytes == 0:
            return _EMPTY
        if operation.size_bytes is None and self._unknown is None:
            return "unknown size"
        own = operation.kind is Kind.SEND_RECV or _uneven(operation)
        if not own and operation.kind.value not in COLLECTIVES:
            return f"{operation.kind.value}: no algorithm yet"
        return ""

    def _gap_s(self, operation: Operation) -> float:
        return operation.gap_s + max((self._passed_gap_s.get(before, 0.0) for before in operation.after), default=0.0)

    def _passed_on(self, operation: Operation) -> dict[int, tuple[int, ...]]:
        passed: dict[int, set[int]] = {}
        for before in operation.after:
            for rank, ids in self._last[before].items():
                passed.setdefault(rank, set()).update(ids)
        return {rank: tuple(sorted(ids)) for rank, ids in passed.items()}

    def _add_group(
        self,
        operation: Operation,
        number: int,
        members: Members,
        phases: Sequence[_SENDS],
        last: dict[int, tuple[int, ...]],
    ) -> None:
        # Of a send-recv only the sender waits: the receiver's buffer is taken to be ready.
        waiting = members[:1] if operation.kind is Kind.SEND_RECV else members
        before = tuple(
            sorted({one for op in operation.after for rank in waiting for one in self._last[op].get(rank, ())})
        )
        label = operation.label or "all"
        group = f"{label}[{number}]" if len(operation.groups) > 1 else label
        root = operation.root
        turned = members[root:] + members[:root]  # algorithms have the root at position 0
        delay_s = self._gap_s(operation)
        for phase, sends in enumerate(phases):
            first = len(self.transfers)
            for source, destination, size_bytes, step in sends:
                tag = Tag(step, operation.kind.value, group, phase)
                number_of = len(self.transfers)
                self.transfers.append(
                    Transfer(number_of, turned[source], turned[destination], size_bytes, before, tag, delay_s)
                )
            if len(self.transfers) > MAX_TRANSFERS:
                raise ExpansionError(
                    f"{self._name} makes more than {MAX_TRANSFERS:,} transfers, too many for one schedule; "
                    "import a shorter trace"
                )
            if len(self.transfers) > first:
                before = tuple(range(first, len(self.transfers)))
                delay_s = 0.0
        for rank in members:
            last[rank] = before


def _uneven(operation: Operation) -> bool:
    return bool(operation.splits or operation.sent_bytes)


def _phases(operation: Operation, ranks: int) -> tuple[_SENDS, ...]:
    """The phases of an operation as sends between positions in a group; the same for all of its groups."""
    size = operation.size_bytes
    assert size is not None
    n = operation.group_size
    if operation.kind is Kind.SEND_RECV:
        return (((0, 1, size, operation.kind.value),),)
    if _uneven(operation):
        flows = uneven_flows(pair_bytes(operation)).flows
        return tuple(
            tuple((flow.src, flow.dst, flow.size_bytes, flow.operation) for flow in phase)
            for _, phase in groupby(flows, key=lambda flow: flow.phase)
        )
    # The collective over positions 0 to n-1 gives the pattern for every group.
    made = COLLECTIVES[operation.kind.value]({"": range(n)}, size, max(n, 2))
    return tuple(
        tuple((transfer.src, transfer.dst, transfer.size_bytes, transfer.tag.operation) for transfer in phase)
        for phase in made.phases()
    )


def pair_bytes(operation: Operation) -> tuple[tuple[int, ...], ...]:
    """Bytes that each member of an uneven all-to-all sends to each, itself included.

    Where the file tells only what each rank sends and receives in all, what a rank sends is shared out in proportion
    to what the others receive; its sum is kept exactly.
    """
    if operation.splits:
        return operation.splits
    weights = operation.received_bytes
    if not any(weights):
        weights = (1,) * len(operation.sent_bytes)
    return tuple(shared(sent, weights) for sent in operation.sent_bytes)
