"""A scenario: which fabrics, at which scale, with which workload and failures, measured how often and how."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import yaml
from pydantic import BeforeValidator, Field

from controller.planning.steering import Planning
from controller.policy import RoutingPolicy
from experiments.scenario.expectations import ExpectSection
from experiments.scenario.fabrics import FabricSection, RoutingSection, ScaleSection
from experiments.scenario.failures import FailureSection
from experiments.scenario.fields import FROM_LIST, NOT_EMPTY, Duration, Section
from experiments.scenario.workloads import WorkloadEntry
from topologies.builders import build
from topologies.capabilities import check_capability
from topologies.errors import RailbedError
from topologies.model import Fabric
from topologies.scale import Scale, default_scale
from workloads.schedule import Schedule

EMULATOR: Final = "emulator"
SIMULATOR: Final = "simulator"

MOST_REPETITIONS = 1000

CapabilityName = Annotated[str, BeforeValidator(lambda value: check_capability(str(value)))]


class MeasureSection(Section):
    """What is measured on live fabrics beside the transfers."""

    sample_interval: Duration = Field(default=0.2, ge=0.02, le=60)
    """How often the counters of all links are read."""
    probe: bool = True
    """Whether a stream of datagrams watches the first failing link."""
    give_up: Duration = 15.0
    """The agent calls a transfer failed of which no byte arrives for so long."""


class Scenario(Section):
    """A whole experiment. Every workload runs healthy on every fabric and, where failures are given, with them."""

    name: str = Field(default="run", min_length=1, max_length=60)
    question: str = ""
    method: str = ""
    expected: str = ""
    """What should come out, in words."""
    limits: str = ""
    """What the experiment cannot show."""
    fabrics: Annotated[tuple[FabricSection, ...], FROM_LIST, NOT_EMPTY]
    routing: RoutingSection = RoutingSection()
    scale: ScaleSection = ScaleSection()
    workload: Annotated[tuple[WorkloadEntry, ...], FROM_LIST, NOT_EMPTY]
    failures: Annotated[tuple[FailureSection, ...], FROM_LIST] = ()
    essential: Annotated[tuple[CapabilityName, ...], FROM_LIST] = ()
    """Capabilities without which the run is refused; others that are missing are marked as not emulated."""
    backend: Literal["emulator", "simulator"] = EMULATOR
    engine: Literal["iperf3", "agent"] | None = None
    """What replays the traffic on live hosts; not given, it is what suits each schedule."""
    on_failure: Literal["continue", "stop"] = "continue"
    """What becomes of what does not wait for a transfer that failed."""
    measure: MeasureSection = MeasureSection()
    diagnose: bool = False
    """Whether every run is diagnosed: its report shows the delay matrix, and 'diagnosed' can be expected."""
    report: bool = True
    """Whether figures and a report are drawn at the end."""
    check: bool = False
    """Whether the results are held against the expected values at the end."""
    results: str = "results"
    """Folder that the results are written below, from where the command is run."""
    repetitions: int = Field(default=1, ge=1, le=MOST_REPETITIONS)
    """How often every run is made."""
    seed: int = Field(default=0, ge=0)
    expect: Annotated[tuple[ExpectSection, ...], FROM_LIST] = ()
    """Values that ``railbed run --check`` holds the results against."""

    def build_fabrics(self) -> dict[str, Fabric]:
        """The fabrics by label, in order."""
        return {section.label: build(section.spec()) for section in self.fabrics}

    def routing_of(self, label: str) -> RoutingSection:
        """The routing of the fabric of that name."""
        section = next(section for section in self.fabrics if section.label == label)
        return section.routing.over(self.routing)

    def planning_of(self, label: str) -> Planning | None:
        """How the traffic is planned on the fabric of that name."""
        return self.routing_of(label).planning

    def policy_of(self, label: str) -> RoutingPolicy:
        """The routing policy of the fabric of that name."""
        return self.routing_of(label).policy(self.seed)

    def scale_for(self, fabric: Fabric) -> Scale:
        """The scale as given, else the default of the fabric's size.

        A fabric too large to emulate has no default: the simulator then computes in units of the real machine. Raises
        ScaleError for the emulator.
        """
        try:
            default = default_scale(fabric)
        except RailbedError:
            if self.backend == EMULATOR and self.scale.rate is None:
                raise
            default = Scale(1.0, 1.0)
        return Scale(self.scale.rate or default.rate, self.scale.time or default.time)

    def schedules_for(self, label: str, fabric: Fabric) -> tuple[Schedule, ...]:
        """The schedules that run on the fabric of that name; the same on every fabric of equal domains and rails."""
        entries = [entry for entry in self.workload if entry.on(label)]
        return tuple(schedule for entry in entries for schedule in entry.schedules(fabric, self.seed))

    def faulty_schedules_for(self, label: str, fabric: Fabric) -> dict[str, Schedule]:
        """By name, the schedules of the fabric of that name in which a rank goes wrong, as they run with failures."""
        entries = [entry for entry in self.workload if entry.on(label) and entry.has_rank_fault]
        return {one.name: one for entry in entries for one in entry.faulty_schedules(fabric, self.seed)}

    def failures_on(self, label: str) -> tuple[FailureSection, ...]:
        """What fails on the fabric of that name."""
        return tuple(section for section in self.failures if section.on(label))

    def to_yaml(self) -> str:
        """The scenario with every default filled in, as a file that :func:`load_scenario` reads back."""
        data = self.model_dump(mode="json", exclude_none=True)
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
