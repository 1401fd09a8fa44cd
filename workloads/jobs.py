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
