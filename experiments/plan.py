"""The runs that a scenario means, with what the fluid model predicts for each; and the back ends that can make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from controller.diagnosis.replayed import REPORT_S
from controller.planning.steering import Planning
from controller.policy import RoutingPolicy
from emulator.engines import Engine, engine_for, start_delay_s
from experiments.outcome import FAILURE, HEALTHY, completion_s
from experiments.scenario import EMULATOR, Scenario
from experiments.scenario.model import MeasureSection
from simulator.fluid import REPAIR_DELAY_S, simulate
from simulator.paths import Router, detour_links
from simulator.routes import controller_router
from simulator.steered import simulate_steered
from topologies.capabilities import Capability
from topologies.model import Fabric, LinkKind
from topologies.scale import Scale
from workloads.failures import FailureKind, LinkFailure
from workloads.frontier import OnFailure
from workloads.records import RunRecord
from workloads.schedule import Schedule

SILENT_REPAIR_DELAY_S = 0.5
"""From a blackhole to new routes where links are watched by BFD, in emulated seconds (docs/controller.md)."""


@dataclass(frozen=True)
class PlannedRun:
    """One run to make: a schedule on a fabric, with what the fluid model predicts for it.

    ``bfd`` says whether links are watched by probes. ``collision_free_s`` is the predicted completion time if no two
    flows had to share a link between leaf and spine. ``condition`` is ``healthy``, or ``failure`` where links or ranks
    fail. ``engine`` replays it on live hosts, None: it is simulated. ``planning`` says how connections are planned,
    None: they are hashed as their pairs.
    """

    label: str
    fabric: Fabric
    policy: RoutingPolicy
    bfd: bool
    scale: Scale
    schedule: Schedule
    failures: tuple[LinkFailure, ...]
    predicted: RunRecord
    collision_free_s: float | None
    detours: Mapping[str, tuple[str, ...]]
    engine: Engine | None = None
    on_failure: OnFailure = OnFailure.CONTINUE
    measure: MeasureSection = field(default_factory=MeasureSection)
    planning: Planning | None = None
    condition: str = HEALTHY
    diagnosed: bool = False

    @property
    def wanted(self) -> tuple[str, ...]:
        """Capabilities of a machine that the run makes use of."""
        kinds = [kind.value for kind in (FailureKind.DELAY, FailureKind.LOSS) if kind in self._failure_kinds]
        return (*kinds, Capability.FAST_FAILOVER.value) if self.policy.local_repair else tuple(kinds)

    @property
    def _failure_kinds(self) -> set[FailureKind]:
        return {failure.kind for failure in self.failures}

    @property
    def start_delay_s(self) -> float:
        """What starting a transfer takes, in emulated seconds."""
        return start_delay_s(self.engine) if self.engine else 0.0

    @property
    def silent_repair_delay_s(self) -> float | None:
        """After how long a blackhole changes routes; None where nothing notices it."""
        return SILENT_REPAIR_DELAY_S if self.bfd else None


class Backend(Protocol):
    """Makes one planned run. Calls come grouped by fabric, so that a back end may keep one standing.

    ``progress`` is told the share of this run that is done.
    """

    def __call__(self, run: PlannedRun, seed: int, progress: Callable[[float], None]) -> RunRecord:
        """The record of the run; raises RailbedError where it can't be made at all."""


def simulator_backend(run: PlannedRun, seed: int, progress: Callable[[float], None]) -> RunRecord:
    """The fluid simulator as a back end."""
    if run.planning is not None:
        return simulate_steered(
            run.fabric, run.schedule, run.policy, run.planning, scale=run.scale, failures=run.failures,
            silent_repair_delay_s=run.silent_repair_delay_s, seed=seed, progress=progress,
        )  # fmt: skip
    router = controller_router(run.fabric, run.policy)
    return simulate(
        run.fabric, run.schedule, router, scale=run.scale, failures=run.failures,
        silent_repair_delay_s=run.silent_repair_delay_s, seed=seed,
        report_s=REPORT_S if run.diagnosed else None, progress=progress,
    )  # fmt: skip


def plan(scenario: Scenario, repair_delay_s: float = REPAIR_DELAY_S) -> tuple[PlannedRun, ...]:
    """All runs of a scenario in the order in which they are made, with their predictions.

    Grouped by fabric: first every schedule healthy, then every one with the failures. Raises RailbedError for what
    does not fit together.
    """
    runs: list[PlannedRun] = []
    for label, fabric in scenario.build_fabrics().items():
        scale = scenario.scale_for(fabric)
        policy, bfd = scenario.policy_of(label), bool(scenario.routing_of(label).bfd)
        planning = scenario.planning_of(label)
        router = controller_router(fabric, policy)
        healthy = []
        for schedule in scenario.schedules_for(label, fabric):
            engine = _engine(scenario, schedule, fabric, scale, planning)
            delay_s = start_delay_s(engine) if engine else 0.0
            if planning is not None:
                predicted = simulate_steered(fabric, schedule, policy, planning, scale=scale, seed=scenario.seed)
            else:
                predicted = simulate(fabric, schedule, router, scale=scale, start_delay_s=delay_s, seed=scenario.seed)
            free_s = _collision_free_s(fabric, schedule, router, scale)
            healthy.append(
                PlannedRun(
                    label=label, fabric=fabric, policy=policy, bfd=bfd, scale=scale, schedule=schedule, failures=(),
                    predicted=predicted, collision_free_s=free_s, detours={}, engine=engine,
                    on_failure=OnFailure(scenario.on_failure), measure=scenario.measure, planning=planning,
                    diagnosed=scenario.diagnose,
                )
            )  # fmt: skip
        runs.extend(healthy)
        faulty = scenario.faulty_schedules_for(label, fabric)
        fails = bool(scenario.failures_on(label))
        runs.extend(
            _with_failures(scenario, run, faulty.get(run.schedule.name, run.schedule), router, repair_delay_s)
            for run in healthy
            if fails or run.schedule.name in faulty
        )
    return tuple(runs)


def _engine(
    scenario: Scenario, schedule: Schedule, fabric: Fabric, scale: Scale, planning: Planning | None
) -> Engine | None:
    """What replays a schedule: as the scenario says, else what suits it; None on the simulator."""
    if scenario.backend != EMULATOR:
        return None
    if planning is not None:
        return Engine.AGENT
    return Engine(scenario.engine) if scenario.engine else engine_for(schedule, fabric, scale)


def _collision_free_s(fabric: Fabric, schedule: Schedule, router: Router, scale: Scale) -> float | None:
    """Completion time with links between leaf and spine so fast that sharing them costs nothing."""
    if all(link.kind is not LinkKind.FABRIC for link in fabric.links):
        return None
    links = tuple(
        replace(link, rate_mbps=link.rate_mbps * len(fabric.gpus)) if link.kind is LinkKind.FABRIC else link
        for link in fabric.links
    )
    return completion_s(simulate(replace(fabric, links=links), schedule, router, scale=scale))


def _with_failures(
    scenario: Scenario, healthy: PlannedRun, faulty: Schedule, router: Router, repair_delay_s: float
) -> PlannedRun:
    """The run with failures of links, and ``faulty`` as its schedule, in which a rank may go wrong."""
    fabric, schedule = healthy.fabric, healthy.schedule
    duration_s = max((transfer.end_s or 0.0 for transfer in healthy.predicted.transfers), default=0.0)
    failures = tuple(
        failure
        for section in scenario.failures_on(healthy.label)
        for failure in section.failures(fabric, schedule, router, duration_s)
    )
    if healthy.planning is not None:
        predicted = simulate_steered(
            fabric, faulty, healthy.policy, healthy.planning, scale=healthy.scale, failures=failures,
            repair_delay_s=repair_delay_s, silent_repair_delay_s=healthy.silent_repair_delay_s, seed=scenario.seed,
        )  # fmt: skip
    else:
        predicted = simulate(
            fabric, faulty, router, scale=healthy.scale, failures=failures, repair_delay_s=repair_delay_s,
            silent_repair_delay_s=healthy.silent_repair_delay_s, start_delay_s=healthy.start_delay_s,
            seed=scenario.seed,
        )  # fmt: skip
    failed = dict.fromkeys(failure.link_id for failure in failures)
    detours = {link_id: tuple(detour_links(fabric, schedule, router, link_id)) for link_id in failed}
    return replace(
        healthy, schedule=faulty, failures=failures, predicted=predicted, collision_free_s=None, detours=detours,
        condition=FAILURE,
    )  # fmt: skip
