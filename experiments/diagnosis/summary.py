"""What a diagnosis of a whole run came to: stored runs read back, and the summary of a watch."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from controller.diagnosis.network import Network
from controller.diagnosis.verdict import Diagnosis, Finding, Syndrome
from controller.diagnosis.watch import Alarm
from controller.routing import Routes
from experiments.columns import read_parquet
from experiments.diagnosis.watching import run_alarms
from experiments.errors import ResultsError
from experiments.outcome import FAILURE, Outcome
from experiments.plan import PlannedRun
from experiments.scenario import Scenario
from experiments.stored import StoredRun
from workloads.failures import FailureKind
from workloads.records import Progress, RunRecord, TransferRecord, TransferStatus


@dataclass(frozen=True)
class RunDiagnosis:
    """The alarms of a watched run, and what was found when it was looked at last (None: it was never looked at)."""

    name: str
    watched_s: float
    alarms: tuple[Alarm, ...]
    latest: Diagnosis | None

    @property
    def finding(self) -> Finding:
        """A fault if there was an alarm; what is not confirmed is none."""
        if self.alarms:
            return Finding.FAULT
        if self.latest is None or self.latest.finding is Finding.NOT_ENOUGH_DATA:
            return Finding.NOT_ENOUGH_DATA
        return Finding.HEALTHY

    @property
    def reason(self) -> str:
        """Why there is not enough data; else empty."""
        if self.finding is not Finding.NOT_ENOUGH_DATA:
            return ""
        return self.latest.reason if self.latest is not None else "no transfer was reported"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "run": self.name,
            "finding": self.finding.value,
            "reason": self.reason,
            "watched_s": self.watched_s,
            "alarms": [{"t_s": one.t_s, "verdict": one.verdict.to_dict()} for one in self.alarms],
            "latest": self.latest.to_dict() if self.latest is not None else None,
        }


def stored_record(run: StoredRun, scenario: Scenario) -> RunRecord:
    """The record of a stored run, with its schedule made anew from the scenario.

    Raises ResultsError for a run that was not made, or whose workload the scenario does not make any more.
    """
    outcome, fabric = run.outcome, run.fabric
    if not outcome.was_made:
        raise ResultsError(f"{run.path.name} was not made, so that there is nothing to diagnose")
    schedules = scenario.schedules_for(outcome.fabric, fabric)
    if outcome.condition == FAILURE:
        faulty = scenario.faulty_schedules_for(outcome.fabric, fabric)
        schedules = tuple(faulty.get(one.name, one) for one in schedules)
    schedule = next((one for one in schedules if one.name == outcome.collective), None)
    if schedule is None:
        raise ResultsError(f"the scenario of {run.path.name} does not make '{outcome.collective}': run it again")
    progress_path = run.path / "progress.parquet"
    progress = read_parquet(progress_path).to_pylist() if progress_path.exists() else []
    return RunRecord(
        backend=outcome.backend,
        fabric=run.spec,
        scale=run.scale,
        schedule=schedule,
        failures=(),
        seed=scenario.seed,
        transfers=tuple(_transfer(row) for row in run.transfers().to_pylist()),
        links=run.links(),
        events=(),
        progress=tuple(Progress(one["t_s"], one["id"], one["received_bytes"]) for one in progress),
    )


def _transfer(row: dict[str, Any]) -> TransferRecord:
    return TransferRecord(
        row["id"], TransferStatus(row["status"]), row["start_s"], row["end_s"], row["received_bytes"],
        row["size_bytes"], row["reason"],
    )  # fmt: skip


def diagnose_stored(run: StoredRun, scenario: Scenario) -> RunDiagnosis:
    """What a watch over a stored run would have told; paths are those of the whole fabric."""
    network = Network(Routes(run.fabric, policy=scenario.policy_of(run.outcome.fabric)), run.scale)
    return summed(run.path.name, list(run_alarms(stored_record(run, scenario), network)))


def summed(name: str, watched: Sequence[tuple[float, list[Alarm], Any]]) -> RunDiagnosis:
    """The summary of a watch: its reports' times, new alarms, and the watch itself."""
    if not watched:
        return RunDiagnosis(name, 0.0, (), None)
    t_s, _, watch = watched[-1]
    return RunDiagnosis(name, t_s, tuple(alarm for _, news, _ in watched for alarm in news), watch.latest)


def with_diagnosis(outcome: Outcome, run: PlannedRun, record: RunRecord) -> Outcome:
    """The outcome of a run with what a watch over it told, and whether that was right."""
    network = Network(Routes(run.fabric, policy=run.policy), run.scale)
    told = [alarm.verdict for _, news, _ in run_alarms(record, network) for alarm in news]
    failed = _failed_parts(run)
    first = told[0] if told else None
    if first is None or not failed:
        is_right = not told and not failed
    else:
        found = first.component.id in failed and first.syndrome in failed[first.component.id]
        is_right = found and not first.is_ambiguous and all(one.component.id in failed for one in told)
    return replace(outcome, verdicts=tuple(one.text for one in told), diagnosed=is_right)


_SYNDROMES = {
    FailureKind.DOWN: (Syndrome.COMMUNICATION_HANG,),
    FailureKind.BLACKHOLE: (Syndrome.COMMUNICATION_HANG,),
}
"""What a failure of a link shows as, where that is not slowness."""

_OF_RANKS = (Syndrome.NON_COMMUNICATION_HANG, Syndrome.NON_COMMUNICATION_SLOW)


def _failed_parts(run: PlannedRun) -> dict[str, tuple[Syndrome, ...]]:
    """What the links that fail, the switches all of whose links do, and the GPUs that go wrong show as, by id."""
    parts = {one.link_id: _SYNDROMES.get(one.kind, (Syndrome.COMMUNICATION_SLOW,)) for one in run.failures}
    for switch in run.fabric.switches:
        links = [link.id for link in run.fabric.links_of(switch.id)]
        if all(link_id in parts for link_id in links):
            parts[switch.id] = parts[links[0]]
    usual_s = statistics.median([one.duration_s for one in run.schedule.computations] or [0.0])
    late = {one.rank for one in run.schedule.computations if one.duration_s > usual_s}
    return parts | {run.fabric.gpu_of_rank(rank).id: _OF_RANKS for rank in sorted(late)}
