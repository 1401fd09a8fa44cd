"""From a workload to a schedule: operations over families of groups, from which transfers are made when needed.

Every operation becomes one call of its collective, which waits for the last transfers that its ranks have in the
operations before, and for the computing in between. What moves nothing, or cannot be made, is left out and counted;
what waits for it waits for what it waited for, and for its computing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from workloads.algorithms import shared
from workloads.collectives import COLLECTIVES
from workloads.families import AnyFamily, family_of
from workloads.importers.errors import ExpansionError, RankCountError, UnknownSizeError
from workloads.importers.model import Kind, Members, Operation, Workload
from workloads.operations import Call, OperationSchedule
from workloads.operations import Operation as Step
from workloads.schedule import Schedule

_BARRIER, _ALONE, _EMPTY = "barrier, which moves nothing", "group of one rank", "size 0"
_MOVES_NOTHING = (_BARRIER, _ALONE, _EMPTY)


@dataclass(frozen=True)
class Expansion:
    """A schedule, the number of operations that are in it, and of those that are not, by reason."""

    operations: OperationSchedule
    used: int
    left_out: dict[str, int]
    notes: tuple[str, ...]

    @property
    def missing(self) -> dict[str, int]:
        """Of what is left out, that which should move bytes between ranks."""
        return {reason: count for reason, count in self.left_out.items() if reason not in _MOVES_NOTHING}

    @cached_property
    def schedule(self) -> Schedule:
        """All transfers; raises ScheduleError if they are too many for one schedule."""
        return self.operations.to_schedule()


def to_schedule(
    workload: Workload, *, gpus: int | None = None, unknown_size_bytes: int | None = None, seed: int = 0
) -> Expansion:
    """The schedule of a workload for a fabric of ``gpus`` GPUs (None: as many as the workload has ranks).

    Operations of unknown size get ``unknown_size_bytes``, or are left out where that is None. Raises RankCountError
    where the number of ranks is not known or larger than ``gpus``, UnknownSizeError where no size is known, and
    ExpansionError for a schedule that would be empty.
    """
    ranks = workload.ranks
    if ranks is None:
        raise RankCountError(f"{workload.name} does not say how many ranks there are; give --gpus N")
    if gpus is not None and ranks > gpus:
        raise RankCountError(
            f"{workload.name} is of {ranks} ranks, more than the {gpus} GPUs of the fabric; use --gpus {ranks} or more"
        )
    sizes_known = any(operation.size_bytes is not None for operation in workload.operations)
    if not sizes_known and unknown_size_bytes is None:
        raise UnknownSizeError(
            f"{workload.name} holds no sizes, so no schedule can be made of it; give --unknown-size BYTES"
        )
    making = _Making(unknown_size_bytes)
    for operation in workload.operations:
        making.add(operation)
    made = OperationSchedule(workload.name, ranks if gpus is None else gpus, tuple(making.steps), seed=seed)
    if not made.transfer_count:
        reasons = ", ".join(f"{count} x {reason}" for reason, count in making.left_out.items())
        raise ExpansionError(f"{workload.name} gives no transfer between ranks ({reasons}); there is nothing to replay")
    return Expansion(made, len(making.steps), dict(making.left_out), tuple(making.notes))


class _Making:
    """Steps as they are added, operation by operation."""

    def __init__(self, unknown_size_bytes: int | None) -> None:
        self.steps: list[Step] = []
        self.left_out: Counter[str] = Counter()
        self.notes: dict[str, None] = {}
        self._unknown = unknown_size_bytes
        # For an operation that is left out, the steps that it waits for, and the computing before it.
        self._passed: dict[int, tuple[int, ...]] = {}
        self._passed_gap_s: dict[int, float] = {}
        self._families: dict[tuple[str, tuple[Members, ...], int], AnyFamily] = {}

    def add(self, operation: Operation) -> None:
        """Add an operation, or count why it is left out."""
        after = tuple(dict.fromkeys(one for before in operation.after for one in self._passed.get(before, (before,))))
        gap_s = operation.gap_s + max((self._passed_gap_s.get(before, 0.0) for before in operation.after), default=0.0)
        reason = self._unusable(operation)
        if reason:
            self.left_out[reason] += 1
            self._passed[operation.id] = after
            self._passed_gap_s[operation.id] = gap_s
            return
        call = self._call(operation, gap_s)
        self.steps.append(Step(operation.id, operation.label or operation.kind.value, (call,), after))

    def _unusable(self, operation: Operation) -> str:
        if operation.kind is Kind.BARRIER:
            return _BARRIER
        if operation.group_size < 2:
            return _ALONE
        if operation.size_bytes == 0:
            return _EMPTY
        if operation.size_bytes is None and self._unknown is None:
            return "unknown size"
        if operation.kind is not Kind.SEND_RECV and operation.kind.value not in COLLECTIVES:
            return f"{operation.kind.value}: no algorithm yet"
        return ""

    def _call(self, operation: Operation, delay_s: float) -> Call:
        size = operation.size_bytes if operation.size_bytes is not None else self._unknown
        assert size is not None
        family, kind = self._family(operation), operation.kind.value
        if operation.kind is Kind.SEND_RECV:
            # Only the sender waits: the receiver's buffer is taken to be ready.
            return Call(family, kind, size, delay_s, posted=True)
        if size < operation.group_size:
            self.notes["operations of less than a byte per rank are rounded up to one byte per rank"] = None
            size = operation.group_size
        splits = pair_bytes(operation) if operation.splits or operation.sent_bytes else ()
        return Call(family, kind, size, delay_s, splits=splits)

    def _family(self, operation: Operation) -> AnyFamily:
        """The groups of an operation, their roots first."""
        root = operation.root
        key = operation.label or "all", operation.groups, root
        if key not in self._families:
            turned: Sequence[Members] = operation.groups
            if root:
                turned = [(*members[root:], *members[:root]) for members in operation.groups]
            self._families[key] = family_of(key[0], turned)
        return self._families[key]


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
