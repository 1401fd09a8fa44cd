"""The sections of a scenario that say what the GPUs send. Each makes the schedules of one entry of the workload."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from experiments.scenario.fields import FROM_LIST, NOT_EMPTY, Duration, OneOf, Section, Share, Size, Sizes
from experiments.units import size_text
from topologies.model import Fabric
from workloads.algorithms import ALGORITHMS, ALL_TO_ALL, BULK, DIRECT, FORMS, RING, find_algorithm
from workloads.collectives import (
    COLLECTIVES,
    GROUPINGS,
    by_domain,
    check_groups,
    collective,
    rail_aligned,
)
from workloads.errors import ScheduleError
from workloads.expert_load import PATTERNS as LOADS
from workloads.expert_load import ExpertLoad
from workloads.expert_traffic import expert_all_to_all
from workloads.jobs import at_once, in_rounds
from workloads.models import GPU_PEAK_TFLOPS, MODELS, find_model
from workloads.operations import OperationSchedule
from workloads.operations_file import read_schedule_file
from workloads.patterns import PATTERNS, pattern_on
from workloads.repeated import RankFault, RankFaultKind, posted_together, repeated
from workloads.schedule import Schedule
from workloads.training import Plan, training_iteration

ALIGNED, BY_RANK, SHUFFLED = "aligned", "rank", "shuffled"
MOST_ROUNDS = 1000
ORDERS = (ALIGNED, BY_RANK, SHUFFLED)

Form = Annotated[str, OneOf("form", FORMS)]


class EntrySection(Section):
    """An entry of the workload."""

    name: str | None = Field(default=None, min_length=1)
    """What results call it."""
    fabrics: Annotated[tuple[str, ...], FROM_LIST] | None = None
    """Names of the fabrics that it runs on; all where it is not given."""

    def on(self, label: str) -> bool:
        """Whether it runs on the fabric of that name."""
        return self.fabrics is None or label in self.fabrics

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of its schedules in results."""
        raise NotImplementedError

    def check(self, fabric: Fabric, seed: int) -> None:
        """Raise RailbedError for what cannot be made on ``fabric``."""
        self.schedules(fabric, seed)

    def schedules(self, fabric: Fabric, seed: int) -> tuple[Schedule, ...]:
        """Its schedules on ``fabric``."""
        raise NotImplementedError

    @property
    def has_rank_fault(self) -> bool:
        """Whether a rank goes wrong in the runs with failures."""
        return False

    def faulty_schedules(self, fabric: Fabric, seed: int) -> tuple[Schedule, ...]:
        """Its schedules in the runs with failures."""
        return self.schedules(fabric, seed)


class RankFaultSection(Section):
    """A rank that goes wrong in the runs with failures."""

    rank: int = Field(ge=0)
    kind: Annotated[str, OneOf("rank fault", [kind.value for kind in RankFaultKind])]
    """absent: it does not enter the collective. stops: it stops in the middle. slow: it computes longer after."""
    round: int = Field(ge=0)
    """The round in which it goes wrong, from 0."""
    factor: float = Field(default=3.0, gt=1)
    """How many times as long a slow one computes."""
    lasts: Duration | None = None
    """For how long, in seconds of the real machine, an absent or stopped one does nothing; for ever if not given."""

    def fault(self) -> RankFault:
        """The fault that it means."""
        lasts_s = math.inf if self.lasts is None else self.lasts
        return RankFault(self.rank, RankFaultKind(self.kind), self.round, self.factor, lasts_s)


class CollectiveSection(EntrySection):
    """A collective, in nccl-tests' meaning of size, by every group of ranks at the same time."""

    collective: Annotated[str, OneOf("collective", list(COLLECTIVES))]
    size: Sizes
    algorithm: str | None = None
    """How it is made; the first one of the collective where it is not given."""
    form: Form = BULK
    """``bulk``: a flow for each edge and stage. ``stepwise``: every send of the algorithm."""
    group: Annotated[str | None, OneOf("group", list(GROUPINGS))] = None
    groups: Annotated[tuple[Annotated[tuple[int, ...], FROM_LIST], ...], FROM_LIST, NOT_EMPTY] | None = None
    """Groups of ranks, in place of ``group``."""
    order: Annotated[str, OneOf("order", ORDERS)] = ALIGNED
    """The order of the ranks in a group: along the rails, by rank, or drawn with the scenario's seed."""
    rounds: int = Field(default=1, ge=1, le=MOST_ROUNDS)
    """How often it is made, one time after the other."""
    together: bool = False
    """Whether all transfers are posted at once, as a library does with grouped sends and receives."""
    computing: Duration | None = None
    """What every rank computes before each round, in seconds of the real machine."""
    rank_fault: RankFaultSection | None = None
    """A rank that goes wrong in the runs with failures."""

    @model_validator(mode="after")
    def _fault_is_in_a_round(self) -> CollectiveSection:
        if self.rank_fault is not None and self.rank_fault.round >= self.rounds:
            raise ValueError(
                f"the rank goes wrong in round {self.rank_fault.round}, but there are {self.rounds}, counted from 0"
            )
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the schedules in results."""
        named = self.name or (f"{self.collective} per rail" if self.group == "rails" else self.collective)
        return tuple(f"{named} {size_text(size)}" for size in self.size) if len(self.size) > 1 else (named,)

    def check(self, fabric: Fabric, seed: int) -> None:
        """Raise RailbedError for what cannot be made on ``fabric``."""
        groups, local = self._ordered(fabric, seed)
        for size in self.size:
            check_groups(groups, size, len(fabric.gpus), self.collective, self.algorithm, local)
        ranks = {rank for members in groups.values() for rank in members}
        if self.rank_fault is not None and self.rank_fault.rank not in ranks:
            raise ScheduleError(f"rank {self.rank_fault.rank} goes wrong, but does not take part in {self.collective}")

    @property
    def has_rank_fault(self) -> bool:
        """Whether a rank goes wrong in the runs with failures."""
        return self.rank_fault is not None

    def faulty_schedules(self, fabric: Fabric, seed: int) -> tuple[Schedule, ...]:
        """The same with the rank that goes wrong."""
        faults = (self.rank_fault.fault(),) if self.rank_fault is not None else ()
        return tuple(self._repeated(one, faults) for one in self._once(fabric, seed))

    def schedules(self, fabric: Fabric, seed: int) -> tuple[Schedule, ...]:
        """One schedule per size."""
        return tuple(self._repeated(one, ()) for one in self._once(fabric, seed))

    def _repeated(self, schedule: Schedule, faults: tuple[RankFault, ...]) -> Schedule:
        one = posted_together(schedule) if self.together else schedule
        if self.computing is None and not faults:
            return in_rounds(one, self.rounds)
        return repeated(one, self.rounds, self.computing or 0.0, faults, schedule.name)

    def _once(self, fabric: Fabric, seed: int) -> tuple[Schedule, ...]:
        groups, local = self._ordered(fabric, seed)
        return tuple(
            collective(
                self.collective, groups, size, len(fabric.gpus), algorithm=self.algorithm, form=self.form, local=local,
                name=label, seed=seed,
            )
            for label, size in zip(self.labels, self.size, strict=True)
        )  # fmt: skip

    def _ordered(self, fabric: Fabric, seed: int) -> tuple[dict[str, tuple[int, ...]], int]:
        if self.groups is not None:
            if self.group is not None:
                raise ScheduleError("give either 'group' or 'groups', not both")
            groups = {f"group{number}": members for number, members in enumerate(self.groups)}
        else:
            groups = GROUPINGS[self.group or "all"](fabric)
        chosen, found = find_algorithm(self.collective, self.algorithm)
        if self.order == SHUFFLED:
            rng = random.Random(f"order/{seed}")
            return {name: tuple(rng.sample(members, len(members))) for name, members in groups.items()}, 1
        if found.needs_local:
            return by_domain(fabric, groups)
        if self.order == ALIGNED and self.collective != ALL_TO_ALL and chosen != DIRECT:
            return rail_aligned(fabric, groups), 1
        return groups, 1


class LoadSection(Section):
    """How tokens spread over experts."""

    pattern: Annotated[str, OneOf("load", list(LOADS))] = "uniform"
    exponent: float = 1.0
    factor: float = 4.0
    burst: Share = 0.1

    def load(self, seed: int) -> ExpertLoad:
        """The load, drawn with the scenario's seed."""
        return ExpertLoad(self.pattern, seed, self.exponent, self.factor, self.burst)


class ExpertsSection(EntrySection):
    """One exchange of a mixture of experts: every rank sends tokens to the ranks of their experts."""

    experts: int = Field(ge=1)
    """Experts over all ranks."""
    size: Size
    """Bytes of the tokens of a rank, each counted as often as it is sent."""
    top_k: int = Field(default=1, ge=1)
    load: LoadSection = LoadSection()
    step: int = Field(default=0, ge=0)
    within_domains: bool = True
    """Whether tokens go to experts of their own domain too."""
    algorithm: Annotated[str | None, OneOf("algorithm", list(ALGORITHMS[ALL_TO_ALL]))] = None
    form: Form = BULK

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of the schedule in results."""
        return (self.name or f"experts, {self.load.pattern}",)

    def schedules(self, fabric: Fabric, seed: int) -> tuple[Schedule, ...]:
        """The one exchange."""
        made = expert_all_to_all(
            fabric, self.size, experts=self.experts, top_k=self.top_k, load=self.load.load(seed), step=self.step,
            within_domains=self.within_domains, algorithm=self.algorithm, form=self.form, name=self.labels[0],
            seed=seed,
        )  # fmt: skip
        return (made,)


class PlanSection(Section):
    """How a model is spread over GPUs: the fields of :class:`workloads.training.Plan`."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    micro_batch: int = 1
    micro_batches: int = 1
    sequence_parallel: bool = False
    chunks: int = 1
    zero: int = 0
    order: str = "tp-dp-pp"
    buckets: int = 1
    recompute: bool = False
    value_bytes: int = 2
    gradient_bytes: int = 2
    gpu_tflops: float = GPU_PEAK_TFLOPS["dgx-h100"]
    utilisation: Share = 0.5
    tp_algorithm: str = RING
    dp_algorithm: str = RING
    ep_algorithm: str = DIRECT


class IterationSection(EntrySection):
    """One training iteration of a model under a plan."""

    iteration: Annotated[str, OneOf("model", list(MODELS))]
    """The model: a preset of workloads/models.py."""
    layers: int | None = Field(default=None, ge=1)
    """Layers, where not all of the model's."""
    sequence: int | None = Field(default=None, ge=1)
    """Tokens of a sequence, where not the model's."""
    plan: PlanSection
    load: LoadSection = LoadSection()
    form: Form = BULK

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of the schedule in results."""
        return (self.name or f"{self.iteration} iteration",)

    def schedules(self, fabric: Fabric, seed: int) -> tuple[Schedule, ...]:
        """The iteration, expanded."""
        model = find_model(self.iteration)
        changed = {key: value for key in ("layers", "sequence") if (value := getattr(self, key)) is not None}
        operations = training_iteration(
            replace(model, **changed), Plan(**self.plan.model_dump()), ranks=len(fabric.gpus),
            domain_size=fabric.spec.rails, load=self.load.load(seed), form=self.form, seed=seed,
        )  # fmt: skip
        return (replace(operations.to_schedule(), name=self.labels[0]),)


class ScheduleSection(EntrySection):
    """A schedule from a file, such as ``railbed import`` and ``railbed iteration`` write."""

    schedule: str
    """Path of the file, from the scenario's folder."""

    @field_validator("schedule")
    @classmethod
    def _found(cls, value: str, info: ValidationInfo) -> str:
        folder = (info.context or {}).get("folder", Path())
        path = (Path(folder) / value).resolve()
        read_schedule(str(path))
        return str(path)

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of the schedule in results."""
        return (self.name or read_schedule(self.schedule).name,)

    def check(self, fabric: Fabric, seed: int) -> None:
        """Raise ScheduleError if it is for another number of GPUs."""
        ranks, path = read_schedule(self.schedule).ranks, self.schedule
        if ranks != len(fabric.gpus):
            raise ScheduleError(f"the schedule {path} is for {ranks} ranks, but the fabric has {len(fabric.gpus)} GPUs")

    def schedules(self, fabric: Fabric, seed: int) -> tuple[Schedule, ...]:
        """The schedule of the file."""
        return (replace(read_schedule(self.schedule), name=self.labels[0]),)


@lru_cache(maxsize=8)
def read_schedule(path: str) -> Schedule:
    """All transfers of the schedule in a file; raises ScheduleError for one that is missing or no schedule."""
    found = read_schedule_file(Path(path))
    return found.to_schedule() if isinstance(found, OperationSchedule) else found


class PatternSection(EntrySection):
    """Transfers that are no collective, all at once; see :func:`workloads.patterns.pattern_on`."""

    pattern: Annotated[str, OneOf("pattern", PATTERNS)]
    size: Sizes
    flows: int | None = Field(default=None, ge=1)
    target: int = Field(default=0, ge=0)
    shift: int | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the schedules in results."""
        named = self.name or self.pattern
        return tuple(f"{named} {size_text(size)}" for size in self.size) if len(self.size) > 1 else (named,)

    def schedules(self, fabric: Fabric, seed: int) -> tuple[Schedule, ...]:
        """One schedule per size."""
        return tuple(
            pattern_on(
                fabric, self.pattern, size, flows=self.flows, target=self.target, shift=self.shift, name=label,
                seed=seed,
            )
            for label, size in zip(self.labels, self.size, strict=True)
        )  # fmt: skip


_SINGLE: dict[str, type[EntrySection]] = {
    "collective": CollectiveSection,
    "experts": ExpertsSection,
    "iteration": IterationSection,
    "schedule": ScheduleSection,
    "pattern": PatternSection,
}


def _told_by(keys: dict[str, type[EntrySection]]) -> Callable[[Any], str | None]:
    def tag(value: Any) -> str | None:
        if isinstance(value, Section):
            return next((key for key, section in keys.items() if isinstance(value, section)), None)
        found = [key for key in keys if isinstance(value, dict) and key in value]
        return found[0] if found else None

    return tag


JobEntry = Annotated[
    Annotated[CollectiveSection, Tag("collective")]
    | Annotated[ExpertsSection, Tag("experts")]
    | Annotated[IterationSection, Tag("iteration")]
    | Annotated[ScheduleSection, Tag("schedule")]
    | Annotated[PatternSection, Tag("pattern")],
    Discriminator(_told_by(_SINGLE)),
]


class JobsSection(EntrySection):
    """Several jobs at once."""

    jobs: Annotated[tuple[JobEntry, ...], FROM_LIST, NOT_EMPTY]

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of the schedule in results."""
        return (self.name or f"{len(self.jobs)} jobs",)

    def schedules(self, fabric: Fabric, seed: int) -> tuple[Schedule, ...]:
        """All jobs as one schedule."""
        return (at_once([one for job in self.jobs for one in job.schedules(fabric, seed)], self.labels[0]),)


SECTIONS: dict[str, type[EntrySection]] = {**_SINGLE, "jobs": JobsSection}
"""By the key that tells what an entry is."""

WorkloadEntry = Annotated[
    Annotated[CollectiveSection, Tag("collective")]
    | Annotated[ExpertsSection, Tag("experts")]
    | Annotated[IterationSection, Tag("iteration")]
    | Annotated[ScheduleSection, Tag("schedule")]
    | Annotated[PatternSection, Tag("pattern")]
    | Annotated[JobsSection, Tag("jobs")],
    Discriminator(_told_by(SECTIONS)),
]
