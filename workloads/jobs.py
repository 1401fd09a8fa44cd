"""Several jobs at once: the schedules of jobs on the same fabric as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workloads.errors import ScheduleError
from workloads.schedule import Computation, Schedule, Transfer

JOBS = "jobs"


def at_once(schedules: Sequence[Schedule], name: str) -> Schedule:
    """All ``schedules`` started together; they share nothing but the fabric.

    Groups are told apart by ``job0/``, ``job1/``, ... before their names. Where all jobs run the same collective of
    one size in groups of one size, the result has these too; else it is called ``jobs`` and has the sum of the sizes.
    Raises ScheduleError for no schedule, and for schedules of different numbers of ranks.
    """
    if not schedules:
        raise ScheduleError(f"'{name}' has no jobs; it needs at least one")
    first = schedules[0]
    if {schedule.ranks for schedule in schedules} != {first.ranks}:
        counts = ", ".join(str(schedule.ranks) for schedule in schedules)
        raise ScheduleError(f"the jobs of '{name}' are for {counts} ranks; they must be for the same fabric")
    transfers: list[Transfer] = []
    computations: list[Computation] = []
    offset = 0
    for number, schedule in enumerate(schedules):
        shifted: dict[int, tuple[int, ...]] = {}  # long tuples of dependencies are shared, and must stay so

        def moved(after: tuple[int, ...], by: int = offset, known: dict[int, tuple[int, ...]] = shifted
                  ) -> tuple[int, ...]:  # fmt: skip
            if id(after) not in known:
                known[id(after)] = tuple(one + by for one in after)
            return known[id(after)]

        for transfer in schedule.transfers:
            tag = replace(transfer.tag, group=f"job{number}/{transfer.tag.group}")
            transfers.append(replace(transfer, id=transfer.id + offset, after=moved(transfer.after), tag=tag))
        for computation in schedule.computations:
            computations.append(replace(computation, id=computation.id + offset, after=moved(computation.after)))
        offset = 1 + max(*(one.id for one in transfers), *(one.id for one in computations))
    kinds = {(one.collective, one.group_size, one.size_bytes, one.size_meaning) for one in schedules}
    if len(kinds) == 1:
        collective, group_size, size_bytes, meaning = kinds.pop()
    else:
        collective, group_size = JOBS, max(one.group_size for one in schedules)
        size_bytes, meaning = sum(one.size_bytes for one in schedules), "sum over the jobs"
    algorithms = ", ".join(dict.fromkeys(one.algorithm for one in schedules))
    return Schedule(
        name, collective, f"{len(schedules)} jobs, {algorithms}", first.ranks, group_size, size_bytes, meaning,
        first.seed, tuple(transfers), tuple(computations),
    )  # fmt: skip


def in_rounds(schedule: Schedule, rounds: int) -> Schedule:
    """``schedule`` made ``rounds`` times in a row: every group starts its next round when its own last one has ended.

    Groups wait for each other only as they do in ``schedule``. The phases of round r are numbered behind those of the
    rounds before it. Raises ScheduleError for a schedule with computations, whose groups are not known.
    """
    if rounds < 1:
        raise ScheduleError(f"'{schedule.name}': rounds is {rounds}; it must be 1 or more")
    if rounds == 1:
        return schedule
    if schedule.computations:
        raise ScheduleError(f"'{schedule.name}' has computations, which belong to no group: it cannot go in rounds")
    phases = 1 + max((transfer.tag.phase for transfer in schedule.transfers), default=0)
    step = 1 + max((transfer.id for transfer in schedule.transfers), default=0)
    of_group: dict[str, list[int]] = {}
    for transfer in schedule.transfers:
        of_group.setdefault(transfer.tag.group, []).append(transfer.id)
    transfers = list(schedule.transfers)
    for number in range(1, rounds):
        before = {group: tuple(one + (number - 1) * step for one in ids) for group, ids in of_group.items()}
        shared: dict[tuple[str, int], tuple[int, ...]] = {}  # long tuples of dependencies are shared, and must stay so
        for transfer in schedule.transfers:
            group = transfer.tag.group
            key = group, id(transfer.after)
            if key not in shared:
                shared[key] = tuple(one + number * step for one in transfer.after) or before[group]
            tag = replace(transfer.tag, phase=transfer.tag.phase + number * phases)
            transfers.append(replace(transfer, id=transfer.id + number * step, after=shared[key], tag=tag))
    algorithm = f"{schedule.algorithm}, {rounds} rounds"
    meaning = f"{schedule.size_meaning}, sum of {rounds} rounds"
    return replace(
        schedule, algorithm=algorithm, size_bytes=rounds * schedule.size_bytes, size_meaning=meaning,
        transfers=tuple(transfers),
    )  # fmt: skip
