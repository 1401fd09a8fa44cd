"""What became of planned traffic in a stored run: load of the uplinks, and what every job got of the ideal. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from controller.errors import PlanningError
from controller.planning.optimum import least_busiest_s
from controller.planning.traffic import Demand
from controller.policy import RoutingPolicy
from experiments.outcome import FAILURE, HEALTHY
from simulator.fluid import TCP_GOODPUT
from topologies.model import Fabric, FabricKind, Failures, LinkKind
from topologies.scale import Scale
from workloads.records import LinkSeries

REFERENCES: Mapping[tuple[str, str], tuple[tuple[float, float], str]] = {
    ("hashed", HEALTHY): ((0.48, 0.73), "C7, recalled"),
    ("static", HEALTHY): ((0.98, 1.0), "C7, recalled"),
    ("dynamic", HEALTHY): ((0.98, 1.0), "C7, recalled"),
    ("static", FAILURE): ((0.52, 0.52), "C8, recalled"),
    ("dynamic", FAILURE): ((0.84, 0.84), "C8, recalled"),
}
"""By plan and condition, for :attr:`PlannedShares.is_eight_jobs`: published shares, and where they are from."""

EIGHT = 8


@dataclass(frozen=True)
class UplinkLoad:
    """Bytes (emulated, frames) that each link between leaf and spine carried towards the spine in one run."""

    label: str
    condition: str
    link_ids: tuple[str, ...]
    carried_bytes: tuple[float, ...]
    failed: frozenset[str]

    @property
    def mean_bytes(self) -> float:
        """Mean over the links that do not fail."""
        return mean(self._alive)

    @property
    def fullest(self) -> float:
        """Bytes of the fullest link that does not fail over their mean; 1 without any traffic."""
        return max(self._alive) / self.mean_bytes if self.mean_bytes else 1.0

    @property
    def _alive(self) -> list[float]:
        rows = zip(self.link_ids, self.carried_bytes, strict=True)
        return [carried for link_id, carried in rows if link_id not in self.failed]


def uplink_load(
    fabric: Fabric, links: LinkSeries, label: str, condition: str, failed: frozenset[str]
) -> UplinkLoad | None:
    """What the uplinks of a run carried; None for a fabric without spines and for a run without counters."""
    place = {link_id: at for at, link_id in enumerate(links.link_ids)}
    uplinks = [link for link in fabric.links if link.kind is LinkKind.FABRIC and link.id in place]
    if not uplinks or len(links.t_s) < 2:
        return None
    carried = links.a_to_b_bytes[-1] - links.a_to_b_bytes[0]
    return UplinkLoad(
        label, condition, tuple(link.id for link in uplinks), tuple(float(carried[place[link.id]]) for link in uplinks),
        failed,
    )  # fmt: skip


@dataclass(frozen=True)
class PlannedShares:
    """What the jobs of one run got of their NICs' rate, and the optimum of a linear program for the same demands.

    In a run with a failure only what started after it counts. ``mode`` is the plan's. ``is_eight_jobs``: eight jobs
    cross the spines of a classic 1:1 fabric, and what fails is one of eight uplinks, as in C7 and C8.
    """

    label: str
    condition: str
    mode: str
    jobs: tuple[float, ...]
    optimum: float
    is_eight_jobs: bool

    @property
    def reference(self) -> tuple[tuple[float, float], str] | None:
        """The published range that it is to be seen beside, and where that is from."""
        return REFERENCES.get((self.mode, self.condition)) if self.is_eight_jobs else None

    @property
    def mean(self) -> float:
        """Mean over the jobs."""
        return mean(self.jobs)

    @property
    def slowest(self) -> float:
        """The slowest job."""
        return min(self.jobs)

    @property
    def fastest(self) -> float:
        """The fastest job."""
        return max(self.jobs)


def planned_shares(
    fabric: Fabric,
    scale: Scale,
    transfers: Sequence[Mapping[str, Any]],
    label: str,
    condition: str,
    mode: str,
    failed: frozenset[str],
    since_s: float,
) -> PlannedShares | None:
    """Shares of one run from the rows of its transfers; None where not every job made a transfer after ``since_s``
    or somebody is cut off.

    A job is a group of the schedule. Its share is the time that its busiest pair of GPUs of different domains would
    need at the full rate of a NIC, over the time that the job took, from the first such transfer to the last.
    """
    by_job: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in transfers:
        if fabric.gpu_of_rank(row["src_rank"]).domain != fabric.gpu_of_rank(row["dst_rank"]).domain:
            by_job[row["group"]].append(row)
    bytes_per_s = scale.emulated_rate_mbps(fabric.spec.nic_rate_mbps) * 1e6 / 8 * TCP_GOODPUT
    jobs, demands = [], []
    for job, rows in by_job.items():
        counted = [row for row in rows if row["start_s"] is not None and row["start_s"] >= since_s]
        if not counted or any(row["end_s"] is None for row in counted):
            return None
        sent: dict[tuple[int, int], int] = defaultdict(int)
        for row in counted:
            sent[row["src_rank"], row["dst_rank"]] += row["size_bytes"]
        took_s = max(row["end_s"] for row in counted) - min(row["start_s"] for row in counted)
        jobs.append(max(sent.values()) / bytes_per_s / took_s)
        largest = max(sent.values())
        demands += [
            Demand(job, fabric.gpu_of_rank(src), fabric.gpu_of_rank(dst), size / largest, 1)
            for (src, dst), size in sent.items()
        ]
    if not jobs:
        return None
    try:
        best_s = least_busiest_s(fabric, demands, RoutingPolicy(), Failures(links=failed))
    except PlanningError:  # somebody is cut off: there is nothing to compare with
        return None
    optimum = 8e-6 / fabric.spec.nic_rate_mbps / best_s
    spec = fabric.spec
    is_case = spec.kind is FabricKind.SPINE_LEAF and spec.oversubscription == 1 and spec.spines == EIGHT == len(jobs)
    links = [fabric.link(link_id) for link_id in failed]
    is_case = is_case and len(links) <= 1 and all(link.kind is LinkKind.FABRIC for link in links)
    return PlannedShares(label, condition, mode, tuple(jobs), min(1.0, optimum), is_case)
