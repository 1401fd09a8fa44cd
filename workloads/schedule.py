"""One schedule of transfers: who sends how many bytes to whom, and what each transfer waits for.

Sizes are bytes of the real machine; :mod:`topologies.scale` makes emulated ones of them. Both back ends take the same
schedule, on every fabric.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from workloads.errors import ScheduleError

FORMAT = "railbed-schedule"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Tag:
    """Where a transfer comes from.

    ``operation`` is the step (``reduce-scatter``), ``collective`` the whole (``all-reduce``), ``group`` the ranks that
    take part (``all``, ``rail2``), ``phase`` the number of the bulk phase, from 0.
    """

    operation: str
    collective: str
    group: str
    phase: int


@dataclass(frozen=True)
class Transfer:
    """``size_bytes`` real bytes from global rank ``src`` to ``dst``, once all in ``after`` have ended, well or not."""

    id: int
    src: int
    dst: int
    size_bytes: int
    after: tuple[int, ...]
    tag: Tag


@dataclass(frozen=True)
class Schedule:
    """Transfers and what they mean; checked when it is made (raises ScheduleError).

    ``ranks`` is the number of GPUs of the fabric. ``group_size`` is the number of ranks in a group of the collective,
    the n of the bandwidth formulas. ``size_bytes`` is the size of the collective in the sense of nccl-tests, as
    ``size_meaning`` spells out. ``algorithm`` says how the collective is replayed (``pipelined ring``).
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
    def _phases(self) -> tuple[tuple[Transfer, ...], ...] | None:
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
        """Whether the transfers form phases with a barrier between each and the next."""
        return self._phases is not None

    def phases(self) -> tuple[tuple[Transfer, ...], ...]:
        """The phases in order: every transfer of one waits for all transfers of the phase before.

        Raises ScheduleError for a schedule with finer dependencies.
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
        ``src``, ``dst``, ``size_bytes``, ``after``, ``operation``, ``collective``, ``group`` and ``phase``.
        """
        fields = ("name", "collective", "algorithm", "ranks", "group_size", "size_bytes", "size_meaning", "seed")
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            **{name: getattr(self, name) for name in fields},
            "transfers": [
                {
                    "id": transfer.id, "src": transfer.src, "dst": transfer.dst, "size_bytes": transfer.size_bytes,
                    "after": list(transfer.after), "operation": transfer.tag.operation,
                    "collective": transfer.tag.collective, "group": transfer.tag.group, "phase": transfer.tag.phase,
                }
                for transfer in self.transfers
            ],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schedule:
        """Inverse of :meth:`to_dict`; raises ScheduleError for another format, and for missing or unknown keys."""
        if data.get("format") != FORMAT or data.get("version") != FORMAT_VERSION:
            raise ScheduleError(
                f"this is not a schedule that can be read: expected format '{FORMAT}' version {FORMAT_VERSION}, "
                f"found {data.get('format')!r} version {data.get('version')!r}"
            )
        shared: dict[tuple[int, ...], tuple[int, ...]] = {}
        try:
            transfers = []
            for row in data["transfers"]:
                after = tuple(row["after"])
                tag = Tag(row["operation"], row["collective"], row["group"], row["phase"])
                transfers.append(
                    Transfer(row["id"], row["src"], row["dst"], row["size_bytes"], shared.setdefault(after, after), tag)
                )
            rest = {key: value for key, value in data.items() if key not in ("format", "version", "transfers")}
            return cls(**rest, transfers=tuple(transfers))
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
    name = schedule.name
    ids = set()
    for transfer in schedule.transfers:
        where = f"schedule '{name}', transfer {transfer.id}"
        if transfer.id in ids:
            raise ScheduleError(f"{where}: this id is used twice; ids must be unique")
        ids.add(transfer.id)
        if isinstance(transfer.size_bytes, bool) or not isinstance(transfer.size_bytes, int) or transfer.size_bytes < 1:
            raise ScheduleError(f"{where}: size_bytes is {transfer.size_bytes!r}; it must be a whole number above 0")
        for end in (transfer.src, transfer.dst):
            if not 0 <= end < schedule.ranks:
                raise ScheduleError(f"{where}: rank {end} does not exist; the ranks are 0 to {schedule.ranks - 1}")
        if transfer.src == transfer.dst:
            raise ScheduleError(f"{where}: rank {transfer.src} sends to itself; source and destination must differ")
    # A barrier shares one tuple among all transfers of a phase; looking at each tuple once keeps this linear in them.
    gates: dict[int, tuple[int, ...]] = {id(transfer.after): transfer.after for transfer in schedule.transfers}
    for after in gates.values():
        for dependency in after:
            if dependency not in ids:
                raise ScheduleError(f"schedule '{name}': a transfer waits for {dependency}, which does not exist")
    _check_acyclic(schedule, gates)


def _check_acyclic(schedule: Schedule, gates: Mapping[int, tuple[int, ...]]) -> None:
    """Kahn's algorithm on transfers and gates, a gate being one shared tuple of dependencies."""
    open_count = {gate: len(set(after)) for gate, after in gates.items()}
    opened_by: dict[int, list[int]] = {}
    for gate, after in gates.items():
        for dependency in set(after):
            opened_by.setdefault(dependency, []).append(gate)
    behind: dict[int, list[int]] = {gate: [] for gate in gates}
    for transfer in schedule.transfers:
        behind[id(transfer.after)].append(transfer.id)
    ready = [gate for gate, count in open_count.items() if count == 0]
    reached = 0
    while ready:
        for transfer_id in behind[ready.pop()]:
            reached += 1
            for gate in opened_by.get(transfer_id, ()):
                open_count[gate] -= 1
                if open_count[gate] == 0:
                    ready.append(gate)
    if reached < len(schedule.transfers):
        stuck = min(member for gate, count in open_count.items() if count for member in behind[gate])
        raise ScheduleError(
            f"schedule '{schedule.name}': transfer {stuck} can never start, because the transfers it waits for "
            "wait for each other; remove the cycle"
        )
