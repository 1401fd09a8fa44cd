"""One schedule of transfers: who sends how many bytes to whom, what each waits for, and the computing in between.

Sizes are bytes and durations seconds of the real machine; :mod:`topologies.scale` makes emulated ones of them. Both
back ends take the same schedule, on every fabric.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from workloads.errors import ScheduleError

FORMAT = "railbed-schedule"
FORMAT_VERSION = 2
READABLE_VERSIONS = (1, 2)
"""Version 1 had neither ``delay_s`` nor computations."""


@dataclass(frozen=True, slots=True)
class Tag:
    """Where a transfer comes from.

    ``operation`` is the step (``reduce-scatter``), ``collective`` the whole (``all-reduce``), ``group`` the ranks that
    take part (``all``, ``rail2``), ``phase`` the number of the bulk phase, from 0.
    """

    operation: str
    collective: str
    group: str
    phase: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """``size_bytes`` real bytes from global rank ``src`` to ``dst``.

    It starts ``delay_s`` real seconds after all in ``after`` have ended: the computing in between. What becomes of it
    when one of them fails is the back end's to say.
    """

    id: int
    src: int
    dst: int
    size_bytes: int
    after: tuple[int, ...]
    tag: Tag
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Computation:
    """Global rank ``rank`` computes for ``duration_s`` real seconds, once all in ``after`` have ended.

    ``math.inf`` is a rank that never ends it: what waits for it never starts.

    For computing that a ``delay_s`` can't express: at the end of a schedule, or beside a transfer. Its id is from the
    same numbers as those of the transfers; either may wait for the other.
    """

    id: int
    rank: int
    duration_s: float
    after: tuple[int, ...]
    label: str


@dataclass(frozen=True)
class Schedule:
    """Transfers and what they mean; checked when it is made (raises ScheduleError).

    ``ranks`` is the number of GPUs of the fabric. ``group_size`` is the number of ranks in a group of the collective,
    the n of the bandwidth formulas. ``size_bytes`` is the size of the collective in the sense of nccl-tests, as
    ``size_meaning`` spells out. ``algorithm`` says how the collective is replayed (``pipelined ring``).
    ``computations`` are what the ranks compute beside the delays of the transfers.
    """

    name: str
    collective: str
    algorithm: str
    ranks: int
    group_size: int
    size_bytes: int
    size_meaning: str
    seed: int
    transfers: tuple[Transfer, ...] = field(repr=False)
    computations: tuple[Computation, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def by_id(self) -> dict[int, Transfer]:
        """Transfers by id."""
        return {transfer.id: transfer for transfer in self.transfers}

    @property
    def total_bytes(self) -> int:
        """Sum of all transfers in real bytes."""
        return sum(transfer.size_bytes for transfer in self.transfers)

    def bytes_by_operation(self) -> dict[str, int]:
        """Real bytes per operation, in order of first appearance."""
        return dict(_sum_by((transfer.tag.operation, transfer.size_bytes) for transfer in self.transfers))

    def bytes_by_pair(self) -> dict[tuple[int, int], int]:
        """Real bytes per ordered pair of ranks."""
        return dict(_sum_by(((transfer.src, transfer.dst), transfer.size_bytes) for transfer in self.transfers))

    @cached_property
    def has_computing(self) -> bool:
        """Whether a transfer has a delay, or there are computations."""
        return bool(self.computations) or any(transfer.delay_s for transfer in self.transfers)

    @cached_property
    def _phases(self) -> tuple[tuple[Transfer, ...], ...] | None:
        if self.has_computing:
            return None
        waiting: dict[frozenset[int], list[Transfer]] = {}
        sets: dict[int, frozenset[int]] = {}  # a phase shares one tuple: its set is made once
        for transfer in self.transfers:
            after = sets.setdefault(id(transfer.after), frozenset(transfer.after))
            waiting.setdefault(after, []).append(transfer)
        phases = []
        before: frozenset[int] = frozenset()
        while before in waiting:
            phase = tuple(waiting.pop(before))
            phases.append(phase)
            before = frozenset(transfer.id for transfer in phase)
        return None if waiting else tuple(phases)

    @property
    def is_phased(self) -> bool:
        """Whether the transfers form phases with a barrier, and no computing, between each and the next."""
        return self._phases is not None

    def phases(self) -> tuple[tuple[Transfer, ...], ...]:
        """The phases in order: every transfer of one waits for all transfers of the phase before.

        Raises ScheduleError for a schedule with finer dependencies or with computing.
        """
        if self._phases is None:
            raise ScheduleError(
                f"schedule '{self.name}' is not a sequence of phases with barriers between them; "
                "replay it by its dependencies instead"
            )
        return self._phases

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form that :meth:`from_dict` reads back.

        Keys: ``format``, ``version``, the fields of this class, and ``transfers`` as a list of objects with ``id``,
        ``src``, ``dst``, ``size_bytes``, ``after``, ``operation``, ``collective``, ``group`` and ``phase``, and
        ``delay_s`` where it is not 0. ``computations`` is a list of objects with ``id``, ``rank``, ``duration_s``,
        ``after`` and ``label``; the key is left out where there are none.
        """
        fields = ("name", "collective", "algorithm", "ranks", "group_size", "size_bytes", "size_meaning", "seed")
        data = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            **{name: getattr(self, name) for name in fields},
            "transfers": [
                {
                    "id": transfer.id, "src": transfer.src, "dst": transfer.dst, "size_bytes": transfer.size_bytes,
                    "after": list(transfer.after), "operation": transfer.tag.operation,
                    "collective": transfer.tag.collective, "group": transfer.tag.group, "phase": transfer.tag.phase,
                    **({"delay_s": transfer.delay_s} if transfer.delay_s else {}),
                }
                for transfer in self.transfers
            ],
        }  # fmt: skip
        if self.computations:
            data["computations"] = [
                {
                    "id": computation.id, "rank": computation.rank, "duration_s": computation.duration_s,
                    "after": list(computation.after), "label": computation.label,
                }
                for computation in self.computations
            ]  # fmt: skip
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schedule:
        """Inverse of :meth:`to_dict`; raises ScheduleError for another format, and for missing or unknown keys."""
        if data.get("format") != FORMAT or data.get("version") not in READABLE_VERSIONS:
            raise ScheduleError(
                f"this is not a schedule that can be read: expected format '{FORMAT}' version 1 to {FORMAT_VERSION}, "
                f"found {data.get('format')!r} version {data.get('version')!r}"
            )
        shared: dict[tuple[int, ...], tuple[int, ...]] = {}
        try:
            transfers = []
            for row in data["transfers"]:
                after = tuple(row["after"])
                tag = Tag(row["operation"], row["collective"], row["group"], row["phase"])
                ends, size_bytes, delay_s = (row["src"], row["dst"]), row["size_bytes"], row.get("delay_s", 0.0)
                transfers.append(Transfer(row["id"], *ends, size_bytes, shared.setdefault(after, after), tag, delay_s))
            computations = tuple(
                Computation(row["id"], row["rank"], row["duration_s"], tuple(row["after"]), row["label"])
                for row in data.get("computations", ())
            )
            own = ("format", "version", "transfers", "computations")
            rest = {key: value for key, value in data.items() if key not in own}
            return cls(**rest, transfers=tuple(transfers), computations=computations)
        except KeyError as error:
            raise ScheduleError(f"the schedule lacks the key {error}") from None
        except TypeError as error:
            raise ScheduleError(f"the schedule has a missing or unknown key: {error}") from None


def _sum_by(items: Iterable[tuple[Any, int]]) -> Counter[Any]:
    totals: Counter[Any] = Counter()
    for key, size_bytes in items:
        totals[key] += size_bytes
    return totals


def _check(schedule: Schedule) -> None:
    name, ranks = schedule.name, schedule.ranks
    for transfer in schedule.transfers:
        src, dst, size_bytes = transfer.src, transfer.dst, transfer.size_bytes
        good = type(size_bytes) is int and size_bytes > 0 and 0 <= src < ranks and 0 <= dst < ranks and src != dst
        if not good or transfer.delay_s:
            _check_transfer(transfer, ranks, f"schedule '{name}', transfer {transfer.id}")
    for computation in schedule.computations:
        where = f"schedule '{name}', computation {computation.id}"
        _check_rank(computation.rank, ranks, where)
        if computation.duration_s != math.inf:
            _check_seconds("duration_s", computation.duration_s, where)
    items: Sequence[Transfer | Computation] = schedule.transfers
    if schedule.computations:
        items = sorted((*schedule.transfers, *schedule.computations), key=lambda item: item.id)
    ids, in_order = _ids_in_order(items)
    if len(ids) < len(items):
        counts = Counter(item.id for item in items)
        twice = next(item_id for item_id, count in counts.items() if count > 1)
        raise ScheduleError(f"schedule '{name}', transfer {twice}: this id is used twice; ids must be unique")
    if not in_order:
        _check_waits(name, items, ids)


def _ids_in_order(items: Iterable[Transfer | Computation]) -> tuple[set[int], bool]:
    """All ids, and whether everything is listed after what it waits for: then there is no cycle."""
    passed: set[int] = set()
    seen: set[int] = set()
    in_order = True
    for item in items:
        after = item.after
        # A barrier shares one long tuple among all transfers of a phase: looking at it once keeps this linear in them.
        if after and in_order and (len(after) < 4 or id(after) not in seen):
            in_order = passed.issuperset(after)
            seen.add(id(after))
        passed.add(item.id)
    return passed, in_order


def _check_transfer(transfer: Transfer, ranks: int, where: str) -> None:
    if isinstance(transfer.size_bytes, bool) or not isinstance(transfer.size_bytes, int) or transfer.size_bytes < 1:
        raise ScheduleError(f"{where}: size_bytes is {transfer.size_bytes!r}; it must be a whole number above 0")
    _check_rank(transfer.src, ranks, where)
    _check_rank(transfer.dst, ranks, where)
    if transfer.src == transfer.dst:
        raise ScheduleError(f"{where}: rank {transfer.src} sends to itself; source and destination must differ")
    _check_seconds("delay_s", transfer.delay_s, where)


def _check_rank(rank: int, ranks: int, where: str) -> None:
    if not 0 <= rank < ranks:
        raise ScheduleError(f"{where}: rank {rank} does not exist; the ranks are 0 to {ranks - 1}")


def _check_seconds(key: str, value: object, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ScheduleError(f"{where}: {key} is {value!r}; it must be a number of seconds, 0 or more")


def _check_waits(name: str, items: Iterable[Transfer | Computation], ids: set[int]) -> None:
    """Kahn's algorithm on items and gates, a gate being one shared tuple of dependencies."""
    gates: dict[int, tuple[int, ...]] = {}
    behind: dict[int, list[int]] = {}
    for item in items:
        gates[id(item.after)] = item.after
        behind.setdefault(id(item.after), []).append(item.id)
    open_count: dict[int, int] = {}
    opened_by: dict[int, list[int]] = {}
    for gate, after in gates.items():
        needed = set(after)
        if not needed <= ids:
            raise ScheduleError(f"schedule '{name}': a transfer waits for {min(needed - ids)}, which does not exist")
        open_count[gate] = len(needed)
        for dependency in needed:
            opened_by.setdefault(dependency, []).append(gate)
    ready = [gate for gate, count in open_count.items() if count == 0]
    while ready:
        for item_id in behind[ready.pop()]:
            for gate in opened_by.get(item_id, ()):
                open_count[gate] -= 1
                if open_count[gate] == 0:
                    ready.append(gate)
    stuck = [member for gate, count in open_count.items() if count for member in behind[gate]]
    if stuck:
        raise ScheduleError(
            f"schedule '{name}': transfer {min(stuck)} can never start, because the transfers it waits for "
            "wait for each other; remove the cycle"
        )
