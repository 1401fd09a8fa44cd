"""What a live run is asked to do, as it crosses the fabric's control socket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controller.planning.steering import Planning
from emulator.engines import Engine
from emulator.sampler import DEFAULT_INTERVAL_S
from workloads.failures import LinkFailure
from workloads.frontier import OnFailure
from workloads.schedule import Schedule

GIVE_UP_S = 15.0
"""A transfer of which no byte arrives for so long has failed."""


@dataclass(frozen=True)
class RunOrder:
    """What to run. ``engine`` None is the one that suits the schedule.

    ``give_up_s`` is for the agent: a transfer of which no byte arrives for so long has failed. Links are sampled every
    ``sample_s`` seconds; ``probe`` says whether a stream of datagrams watches the first failing link. ``planning``
    says how the connections are planned; it needs the agent. ``telemetry`` says whether the agent's run tells what a
    fault diagnosis looks at.
    """

    schedule: Schedule
    failures: tuple[LinkFailure, ...] = ()
    seed: int = 0
    engine: Engine | None = None
    on_failure: OnFailure = OnFailure.CONTINUE
    give_up_s: float = GIVE_UP_S
    sample_s: float = DEFAULT_INTERVAL_S
    probe: bool = True
    planning: Planning | None = None
    telemetry: bool = True

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form that :meth:`from_dict` reads back."""
        return {
            "schedule": self.schedule.to_dict(),
            "failures": [failure.to_dict() for failure in self.failures],
            "seed": self.seed,
            "engine": self.engine.value if self.engine else None,
            "on_failure": self.on_failure.value,
            "give_up_s": self.give_up_s,
            "sample_s": self.sample_s,
            "probe": self.probe,
            "planning": self.planning.to_dict() if self.planning else None,
            "telemetry": self.telemetry,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RunOrder:
        """Inverse of :meth:`to_dict`."""
        return cls(
            Schedule.from_dict(data["schedule"]),
            tuple(LinkFailure.from_dict(failure) for failure in data["failures"]),
            data["seed"],
            Engine(data["engine"]) if data["engine"] else None,
            OnFailure(data["on_failure"]),
            data["give_up_s"],
            data["sample_s"],
            data["probe"],
            Planning.from_dict(data["planning"]) if data["planning"] else None,
            data["telemetry"],
        )
