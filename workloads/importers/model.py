"""The common form of everything that is imported.

A reader returns :class:`Program` objects: the calls that one rank makes, or that a set of ranks makes alike. Merged,
they are a :class:`Workload`: a graph of :class:`Operation` objects over families of groups of ranks. The
:class:`ImportReport` says what became of every record that was read. Sizes are bytes of the real machine, times are
seconds of the real machine. All of it is immutable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Members = tuple[int, ...]


class Kind(str, Enum):
    """What a call does. The names of the collectives are those of :mod:`workloads.bandwidth`."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    BARRIER = "barrier"
    SEND = "send"
    RECV = "recv"
    SEND_RECV = "send-recv"


ONE_SIDED = (Kind.SEND, Kind.RECV)
"""Calls of which two, on two ranks, are one operation."""


@dataclass(frozen=True)
class GroupRef:
    """The group of a call as far as the file tells it.

    ``name`` is the file's name of the communicator, the same on every rank, or empty. ``groups`` are the groups of
    global ranks that make the call at the same time; one group in the file of one rank; empty where the members are not
    stated. ``size`` is the number of ranks in a group, None where that is not known either. ``whole`` marks the group
    of all ranks.
    """

    name: str = ""
    groups: tuple[Members, ...] = ()
    size: int | None = None
    whole: bool = False


@dataclass(frozen=True)
class Call:
    """One call of a program.

    ``in_bytes`` and ``out_bytes`` are the sizes of a rank's send and receive buffers, None where unknown.
    ``in_splits`` and ``out_splits`` are bytes per member of the group, of an uneven all-to-all. ``peer`` is the other
    global rank of a send or receive, ``root`` the global rank of a rooted collective (None: the first member).
    ``after`` holds the positions of the calls of the same program that must end first; None means: as times tell, else
    in order. ``gap_s`` is the computing before the call where there are no times. ``start_s`` counts
    from the first call of the file; ranks have clocks of their own.
    """

    kind: Kind
    group: GroupRef
    in_bytes: int | None
    out_bytes: int | None
    dtype: str = ""
    in_splits: tuple[int, ...] = ()
    out_splits: tuple[int, ...] = ()
    peer: int | None = None
    root: int | None = None
    after: tuple[int, ...] | None = None
    start_s: float | None = None
    duration_s: float | None = None
    gap_s: float = 0.0
    stage: str = ""

    def size_bytes(self, group_size: int | None) -> int | None:
        """Size in the sense of nccl-tests (the larger buffer), None where it is unknown.

        Gathering collectives are measured by the receive buffer, which is the send buffer times the number of ranks;
        all others by the send buffer.
        """
        known = (self.in_bytes, self.out_bytes)
        if self.kind in (Kind.ALL_GATHER, Kind.GATHER):
            if self.in_bytes is not None and group_size:
                return self.in_bytes * group_size
            return self.out_bytes
        if self.kind is Kind.REDUCE_SCATTER and self.in_bytes is None:
            return self.out_bytes * group_size if self.out_bytes is not None and group_size else None
        if self.kind is Kind.BROADCAST:
            return max((size for size in known if size is not None), default=None)
        if self.kind is Kind.RECV:
            return self.out_bytes
        return self.in_bytes


@dataclass(frozen=True)
class Program:
    """What ``ranks`` do, in order. ``name`` is what messages call it: ``rank 3``, ``pp_stage2``."""

    name: str
    ranks: frozenset[int]
    calls: tuple[Call, ...] = field(repr=False)


@dataclass(frozen=True)
class Operation:
    """One communication operation, made by all of ``groups`` at the same time.

    ``groups`` are disjoint and equally large; a send-recv has groups (source, destination). ``size_bytes`` is the size
    in the sense of nccl-tests, None where unknown. ``after`` holds ids of operations that must end first, ``gap_s`` the
    computing between the last of them and this one. ``root`` is a position in each group. An uneven all-to-all has
    either ``splits`` (bytes from each member to each member) or only the sums ``sent_bytes`` and ``received_bytes`` of
    each member.
    """

    id: int
    kind: Kind
    label: str
    groups: tuple[Members, ...]
    size_bytes: int | None
    after: tuple[int, ...] = ()
    gap_s: float = 0.0
    dtype: str = ""
    root: int = 0
    splits: tuple[tuple[int, ...], ...] = ()
    sent_bytes: tuple[int, ...] = ()
    received_bytes: tuple[int, ...] = ()
    start_s: float | None = None
    duration_s: float | None = None
    stage: str = ""

    @property
    def group_size(self) -> int:
        """Ranks in each group; 0 where the groups are not known."""
        return len(self.groups[0]) if self.groups else 0


@dataclass(frozen=True)
class Total:
    """Calls of one kind on one communicator: how many, and their bytes per rank, summed over the calls.

    ``part`` is empty for what is used, else the reason why it is set aside. ``unknown`` calls have no size in the file.
    ``duration_s`` sums the durations where they are known.
    """

    kind: Kind
    label: str
    part: str
    calls: int
    size_bytes: int
    in_bytes: int
    out_bytes: int
    unknown: int
    duration_s: float


@dataclass(frozen=True)
class ImportReport:
    """What became of every record that was read.

    ``read`` communication records were found; ``used`` of them are in the workload; ``set_aside`` gives the number of
    the others by reason. ``rules`` are the assumptions that were made, ``warnings`` what a reader should look at,
    ``facts`` figures that only this kind of file has.
    """

    kind: str
    title: str
    files: tuple[str, ...]
    ranks: int | None
    known_ranks: int
    read: int
    used: int
    set_aside: Mapping[str, int]
    totals: tuple[Total, ...]
    facts: Mapping[str, Any]
    rules: tuple[str, ...]
    warnings: tuple[str, ...]

    def __post_init__(self) -> None:
        out = self.used + sum(self.set_aside.values())
        assert self.read == out, f"{self.read} records read, {out} accounted for"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form: the fields of this class."""
        return {
            "kind": self.kind,
            "title": self.title,
            "files": list(self.files),
            "ranks": self.ranks,
            "known_ranks": self.known_ranks,
            "records_read": self.read,
            "records_used": self.used,
            "set_aside": dict(self.set_aside),
            "totals": [
                {**{name: getattr(total, name) for name in total.__dataclass_fields__}, "kind": total.kind.value}
                for total in self.totals
            ],
            "facts": dict(self.facts),
            "rules": list(self.rules),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class Workload:
    """Operations in an order that respects ``after``, and the report. ``ranks`` None: the files do not say."""

    name: str
    ranks: int | None
    operations: tuple[Operation, ...] = field(repr=False)
    report: ImportReport = field(repr=False)


@dataclass
class Tally:
    """Counts records while a file is read, so that nothing is dropped silently."""

    read: int = 0
    set_aside: Counter[str] = field(default_factory=Counter)
    aside_calls: list[tuple[str, Call]] = field(default_factory=list, repr=False)
    rules: dict[str, None] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def skip(self, reason: str, count: int = 1) -> None:
        """Count records that were read and are not used."""
        if count:
            self.read += count
            self.set_aside[reason] += count

    def skip_call(self, reason: str, call: Call) -> None:
        """Count a call that is not used, keeping its size for the totals."""
        self.skip(reason)
        self.aside_calls.append((reason, call))

    def use(self, count: int = 1) -> None:
        """Count records that become calls of a program."""
        self.read += count

    def rule(self, text: str) -> None:
        """State an assumption, once."""
        self.rules[text] = None

    def warn(self, text: str) -> None:
        """Say something that a reader should look at, once."""
        self.warnings[text] = None


@dataclass(frozen=True)
class Reading:
    """What a reader makes of its files: programs, the number of ranks if they tell it, and the tally."""

    kind: str
    title: str
    files: tuple[str, ...]
    programs: tuple[Program, ...]
    ranks: int | None
    tally: Tally


def totals(calls: Iterable[tuple[str, str, int | None, Call]]) -> tuple[Total, ...]:
    """Totals of (part, label, group size, call), by kind, label and part, largest first within a part."""
    sums: dict[tuple[str, str, Kind], list[float]] = {}
    for part, label, group_size, call in calls:
        row = sums.setdefault((part, label, call.kind), [0, 0, 0, 0, 0, 0.0])
        size = call.size_bytes(group_size)
        row[0] += 1
        row[1] += size or 0
        row[2] += call.in_bytes or 0
        row[3] += call.out_bytes or 0
        row[4] += size is None and call.kind is not Kind.BARRIER
        row[5] += call.duration_s or 0.0
    found = [
        Total(kind, label, part, int(row[0]), int(row[1]), int(row[2]), int(row[3]), int(row[4]), row[5])
        for (part, label, kind), row in sums.items()
    ]
    return tuple(sorted(found, key=lambda total: (total.part, -total.size_bytes, -total.calls, total.label)))
