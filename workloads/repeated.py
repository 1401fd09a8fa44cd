"""A collective made again and again with computing in between, as in training; and ranks that go wrong. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
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

    ``factor`` is how many times as long a SLOW rank computes. Raises ScheduleError for values that mean nothing.
    """

    rank: int
    kind: RankFaultKind
    iteration: int
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.iteration < 0:
            raise ScheduleError(f"rank {self.rank} goes wrong in iteration {self.iteration}; they count from 0")
        if self.kind is RankFaultKind.SLOW and not 1 < self.factor < math.inf:
            raise ScheduleError(f"rank {self.rank} computes slower by {self.factor:g}; the factor must be above 1")


def at_once(schedule: Schedule) -> Schedule:
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
    span = 1 + max(one.id for one in schedule.transfers)
    stride = span + 2 * schedule.ranks
    transfers: list[Transfer] = []
    computations: list[Computation] = []
    for iteration in range(iterations):
        base = iteration * stride
        for rank in ranks:
            after = tuple(one.id + base - stride for one in schedule.transfers if rank in (one.src, one.dst))
            duration_s = _computing_s(rank, iteration, computing_s, faults)
            computations.append(
                Computation(base + span + rank, rank, duration_s, after if iteration else (), "computing")
            )
        stopped = {one.rank for one in faults if one.kind is RankFaultKind.STOPS and one.iteration == iteration}
        for rank in sorted(stopped):
            stop = base + span + schedule.ranks + rank
            computations.append(Computation(stop, rank, math.inf, (base + span + rank,), "stopped"))
        late = _in_second_half(schedule, stopped)
        for one in schedule.transfers:
            ends = (base + span + one.src, base + span + one.dst)
            held = tuple(base + span + schedule.ranks + rank for rank in late.get(one.id, ()))
            after = (*(before + base for before in one.after), *ends, *held)
            transfers.append(replace(one, id=one.id + base, after=after))
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
            duration_s = math.inf
    return duration_s


def _in_second_half(schedule: Schedule, stopped: set[int]) -> dict[int, list[int]]:
    """By transfer, the stopped ranks that no longer take part in it: in the second half of a rank's own transfers."""
    held: dict[int, list[int]] = {}
    for rank in sorted(stopped):
        own = [one.id for one in schedule.transfers if rank in (one.src, one.dst)]
        for transfer_id in own[len(own) // 2 :]:
            held.setdefault(transfer_id, []).append(rank)
    return held
