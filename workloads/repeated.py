"""A collective made again and again with computing in between, as in training; and ranks that go wrong. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from workloads.errors import ScheduleError
from workloads.schedule import Computation, Schedule, Transfer


class RankFaultKind(str, Enum):
    """ABSENT: the rank never enters the collective. STOPS: it stops in the middle. SLOW: it computes for longer."""

    ABSENT = "absent"
    STOPS = "stops"
    SLOW = "slow"


@dataclass(frozen=True)
class RankFault:
    """What is wrong with a rank from an iteration on (counted from 0).

    ``factor`` is how many times as long a SLOW rank computes, ``lasts_s`` for how many real seconds an ABSENT or
    stopped one does nothing. Raises ScheduleError for values that mean nothing.
    """

    rank: int
    kind: RankFaultKind
    iteration: int
    factor: float = 1.0
    lasts_s: float = math.inf

    def __post_init__(self) -> None:
        if self.iteration < 0:
            raise ScheduleError(f"rank {self.rank} goes wrong in iteration {self.iteration}; they count from 0")
        if self.kind is RankFaultKind.SLOW and not 1 < self.factor < math.inf:
            raise ScheduleError(f"rank {self.rank} computes slower by {self.factor:g}; the factor must be above 1")
        if not self.lasts_s > 0:
            raise ScheduleError(f"rank {self.rank} does nothing for {self.lasts_s:g} s; it must be above 0")


def posted_together(schedule: Schedule) -> Schedule:
    """``schedule`` with all its transfers posted together, as a library does with grouped sends and receives."""
    return replace(
        schedule, algorithm="all at once", transfers=tuple(replace(one, after=()) for one in schedule.transfers)
    )


def repeated(
    schedule: Schedule, iterations: int, computing_s: float, faults: Sequence[RankFault] = (), name: str = ""
) -> Schedule:
    """``schedule`` made ``iterations`` times; before each, every rank computes for ``computing_s`` real seconds.

    A rank computes when all its own transfers of the iteration before have ended. No transfer starts before both its
    ends have computed: the receiver must be there too. Raises ScheduleError for numbers that mean nothing, a schedule
    that computes itself, and faults of ranks that it does not have.
    """
    if iterations < 1 or not 0 <= computing_s < math.inf:
        raise ScheduleError(f"{iterations} iterations with {computing_s:g} s of computing: at least 1, and 0 s or more")
    if schedule.has_computing:
        raise ScheduleError(f"'{schedule.name}' has computing of its own and can't be repeated with more of it")
    ranks = sorted({rank for one in schedule.transfers for rank in (one.src, one.dst)})
    for fault in faults:
        if fault.rank not in ranks:
            raise ScheduleError(f"rank {fault.rank} goes wrong, but '{schedule.name}' has no transfer of it")
    first = 2 * schedule.ranks  # ids of an iteration: its computing, those who stop, its transfers
    stride = first + 1 + max(one.id for one in schedule.transfers)
    transfers: list[Transfer] = []
    computations: list[Computation] = []
    for iteration in range(iterations):
        base = iteration * stride
        for rank in ranks:
            after = tuple(one.id + base - stride + first for one in schedule.transfers if rank in (one.src, one.dst))
            duration_s = _computing_s(rank, iteration, computing_s, faults)
            computations.append(Computation(base + rank, rank, duration_s, after if iteration else (), "computing"))
        stopped = {
            one.rank: one.lasts_s for one in faults if one.kind is RankFaultKind.STOPS and one.iteration == iteration
        }
        for rank, lasts_s in sorted(stopped.items()):
            stop = base + schedule.ranks + rank
            computations.append(Computation(stop, rank, lasts_s, (base + rank,), "stopped"))
        late = _in_second_half(schedule, stopped)
        for one in schedule.transfers:
            held = tuple(base + schedule.ranks + rank for rank in late.get(one.id, ()))
            waits = (*(before + base + first for before in one.after), base + one.src, base + one.dst, *held)
            transfers.append(replace(one, id=one.id + base + first, after=waits))
    return replace(
        schedule, name=name or f"{schedule.name}, {iterations} iterations", transfers=tuple(transfers),
        computations=tuple(computations),
    )  # fmt: skip


def _computing_s(rank: int, iteration: int, computing_s: float, faults: Sequence[RankFault]) -> float:
    duration_s = computing_s
    for fault in faults:
        if fault.rank != rank or iteration < fault.iteration:
            continue
        if fault.kind is RankFaultKind.SLOW:
            duration_s *= fault.factor
        elif fault.kind is RankFaultKind.ABSENT and iteration == fault.iteration:
            duration_s += fault.lasts_s
    return duration_s


def _in_second_half(schedule: Schedule, stopped: Iterable[int]) -> dict[int, list[int]]:
    """By transfer, the stopped ranks that no longer take part in it: in the second half of a rank's own transfers."""
    held: dict[int, list[int]] = {}
    for rank in sorted(stopped):
        own = [one.id for one in schedule.transfers if rank in (one.src, one.dst)]
        for transfer_id in own[len(own) // 2 :]:
            held.setdefault(transfer_id, []).append(rank)
    return held
