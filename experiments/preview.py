"""What a scenario would do: transfers, paths, loads of links, rules, predicted times, and whether its scale holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from controller.rules import families
from experiments.faithfulness import Faithfulness, faithfulness
from experiments.outcome import FAILURE, completion_s
from experiments.plan import PlannedRun
from simulator.paths import link_loads
from simulator.routes import controller_router
from topologies.model import NO_FAILURES, LinkKind
from workloads.failures import LinkFailure


@dataclass(frozen=True)
class LinkLoad:
    """Real bytes that a schedule puts on a link in the direction that carries more, and the time that takes alone.

    ``share`` is that time over the predicted completion time, on the real machine.
    """

    link_id: str
    real_bytes: float
    share: float | None


@dataclass(frozen=True)
class RunPreview:
    """One run as planned. Times are emulated seconds unless the name says real; the busiest links come first."""

    fabric: str
    workload: str
    condition: str
    transfers: int
    real_bytes: int
    phases: int | None
    predicted_s: float | None
    real_predicted_s: float | None
    collision_free_s: float | None
    problems: tuple[str, ...]
    failures: tuple[LinkFailure, ...]
    loads: tuple[LinkLoad, ...]
    paths: dict[tuple[str, str], tuple[str, ...] | None]
    faithfulness: Faithfulness | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        found = self.faithfulness
        return {
            **{name: getattr(self, name) for name in ("fabric", "workload", "condition", "transfers", "real_bytes",
               "phases", "predicted_s", "real_predicted_s", "collision_free_s", "problems")},
            "failures": [failure.to_dict() for failure in self.failures],
            "loads": [{"link": one.link_id, "real_bytes": one.real_bytes, "share": one.share} for one in self.loads],
            "paths": [{"src": src, "dst": dst, "links": links} for (src, dst), links in self.paths.items()],
            "faithful": None if found is None else found.holds,
            "round_trips": None if found is None else found.round_trips,
            "queues": None if found is None else found.queues,
            "scale_time_that_holds": None if found is None or found.holds else found.time,
        }  # fmt: skip


@dataclass(frozen=True)
class RulesPreview:
    """Rules and groups that each of ``switches`` switches of a kind holds on a fabric."""

    fabric: str
    kind: str
    switches: int
    rules: int
    groups: int


def preview_run(run: PlannedRun) -> RunPreview:
    """What is known of a run beforehand. Faithfulness is that of the healthy run, as a failure only prolongs it."""
    paths = controller_router(run.fabric, run.policy)(NO_FAILURES)
    fabric, schedule = run.fabric, run.schedule
    predicted_s = completion_s(run.predicted)
    real_s = None if predicted_s is None else run.scale.real_s(predicted_s)
    loads = link_loads(fabric, schedule, paths).reshape(-1, 2).max(axis=1)
    busiest = sorted(
        (
            LinkLoad(link.id, float(load), load * 8 / 1e6 / link.rate_mbps / real_s if real_s else None)
            for link, load in zip(fabric.links, loads, strict=True)
            if load > 0
        ),
        key=lambda one: (-(one.share or 0.0), one.link_id),
    )
    pairs = dict.fromkeys((transfer.src, transfer.dst) for transfer in schedule.transfers)
    routed = {}
    for src, dst in pairs:
        links = paths(src, dst)
        ends = fabric.gpu_of_rank(src).id, fabric.gpu_of_rank(dst).id
        routed[ends] = (
            None if links is None else tuple(one for one in links if fabric.link(one).kind is not LinkKind.HOST)
        )
    reasons = dict.fromkeys(one.reason for one in run.predicted.transfers if one.reason)
    return RunPreview(
        fabric=run.label,
        workload=schedule.name,
        condition=run.condition,
        transfers=len(schedule.transfers),
        real_bytes=schedule.total_bytes,
        phases=len(schedule.phases()) if schedule.is_phased else None,
        predicted_s=predicted_s,
        real_predicted_s=real_s,
        collision_free_s=run.collision_free_s,
        problems=tuple(reasons),
        failures=run.failures,
        loads=tuple(busiest),
        paths=routed,
        faithfulness=None if run.condition == FAILURE else faithfulness(run),
    )


def preview_rules(runs: Sequence[PlannedRun]) -> tuple[RulesPreview, ...]:
    """Healthy rules of every fabric among ``runs``, by kind of switch."""
    fabrics = {run.label: run for run in runs}
    return tuple(
        RulesPreview(label, family.kind.value, family.switches, family.rules, family.groups)
        for label, run in fabrics.items()
        for family in families(run.fabric, run.policy)
    )
