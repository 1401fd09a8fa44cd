"""What is decided about a job in trouble, and the timeline of what became of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from controller.diagnosis.verdict import ComponentKind, Verdict
from emulator.programs import RankExit
from topologies.model import Fabric, Gpu

SIGNALLED = 128
"""Exit codes above this say that a signal ended the program, as in a shell."""

TIME_OUT_S = 1800.0
"""After so long torch.distributed gives up a collective of gloo by default (``default_pg_timeout``)."""


class Step(str, Enum):
    """What happens to a job that is cared for, in this order."""

    STARTED = "started"
    FAILED = "failed"
    DETECTED = "detected"
    DIAGNOSED = "diagnosed"
    ISOLATED = "isolated"
    RESTARTED = "restarted"
    BACK = "back"
    GIVEN_UP = "given up"


@dataclass(frozen=True)
class JobEvent:
    """One step: ``t_s`` seconds after the job's start, in the ``restart``-th start again (0: the first start).

    ``gpu`` is the one concerned; ``details`` are JSON-ready.
    """

    step: Step
    t_s: float
    restart: int
    text: str
    gpu: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {**asdict(self), "step": self.step.value}

    @property
    def line(self) -> str:
        """To read."""
        return f"{self.t_s:8.2f} s  {self.step.value:<10} {self.text}"


@dataclass(frozen=True)
class Recovery:
    """Seconds that one failure cost, by part; None where the job never got there.

    The parts are those of the downtime model, but for the work done again, of which only the job itself knows.
    """

    detection_s: float
    diagnosis_s: float | None
    restart_s: float | None

    @property
    def total_s(self) -> float | None:
        """From the failure until the job is back."""
        if self.diagnosis_s is None or self.restart_s is None:
            return None
        return self.detection_s + self.diagnosis_s + self.restart_s


def recoveries(events: Iterable[JobEvent]) -> list[Recovery]:
    """What each failure of a job's timeline cost."""
    found = []
    by_restart: dict[int, dict[Step, float]] = {}
    for event in events:
        # A start again belongs to the failure before it.
        number = event.restart - (event.step in (Step.RESTARTED, Step.BACK))
        by_restart.setdefault(number, {}).setdefault(event.step, event.t_s)
    for steps in by_restart.values():
        if Step.FAILED not in steps or Step.DETECTED not in steps:
            continue
        isolated_s, back_s = steps.get(Step.ISOLATED), steps.get(Step.BACK)
        found.append(
            Recovery(
                steps[Step.DETECTED] - steps[Step.FAILED],
                None if isolated_s is None else isolated_s - steps[Step.DETECTED],
                None if isolated_s is None or back_s is None else back_s - isolated_s,
            )
        )
    return found


def culprit(exits: Sequence[RankExit]) -> RankExit | None:
    """The rank that a failed start is put down to: the first that a signal ended, else the first that failed.

    When a rank is killed the others fail by themselves, within milliseconds, because it has gone.
    """
    failed = [one for one in exits if one.code]
    return next((one for one in failed if one.code > SIGNALLED), failed[0] if failed else None)


def gpu_at_fault(verdict: Verdict, fabric: Fabric) -> Gpu | None:
    """The GPU to be replaced; None where none is at fault alone, but a part of the network that several share.

    Of a single connection neither end is known to be the one: the GPU that most of the hot connections have in common
    is taken, of two alike the receiver.
    """
    component = verdict.component
    if component.kind in (ComponentKind.RANK, ComponentKind.SENDER, ComponentKind.RECEIVER):
        return fabric.gpu_by_id.get(component.id)
    if component.kind is ComponentKind.LINK:
        link = fabric.link(component.id)
        return next((gpu for gpu in fabric.gpus if gpu.switch_id in (link.a, link.b)), None)
    if component.kind is ComponentKind.CONNECTION and verdict.evidence.cells:
        common = Counter(rank for src, dst in verdict.evidence.cells for rank in (dst, src))
        return fabric.gpu_of_rank(max(common, key=lambda rank: common[rank]))
    return None


def pick_spare(lost: Gpu, spares: Sequence[Gpu]) -> Gpu | None:
    """The spare that takes a rank over: on the lost GPU's rail if there is one, so that traffic keeps to its rails."""
    return next((one for one in spares if one.rail == lost.rail), spares[0] if spares else None)
