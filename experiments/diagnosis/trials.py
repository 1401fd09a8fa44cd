"""Trials of the diagnosis: an injection, what was told of it, and the score over many of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from controller.diagnosis.localise import pattern_of
from controller.diagnosis.network import Lane, Network
from controller.diagnosis.replayed import REPORT_S
from controller.diagnosis.telemetry import Connection
from controller.diagnosis.verdict import Pattern, Verdict
from controller.diagnosis.watch import Alarm
from controller.policy import RoutingPolicy
from controller.routing import Routes
from experiments.diagnosis.injections import ITERATIONS, Injection, Setting, Truth, schedule_of
from experiments.diagnosis.watching import run_alarms
from simulator.fluid import simulate
from simulator.routes import controller_router
from topologies.model import Fabric
from topologies.scale import default_scale
from workloads.records import RunRecord
from workloads.schedule import Schedule, Transfer

AFTERWARDS_S = 3.0
"""How long a watch goes on after its first alarm for each fault that there is, for what else it may tell."""


@dataclass(frozen=True)
class Trial:
    """An injection and what came of it.

    ``result`` is ``correct`` (every truth was told, with syndrome and component), ``ambiguous`` (the component was
    among the suspects of a verdict that calls itself so), ``wrong`` or ``missed``. ``detected_s`` is from the injection
    to the first alarm, also in healthy iterations; ``extra`` are alarms beyond the truths, in words. ``pattern`` is
    whether the pattern (cell, row, column, paths, rank) is the one that the fault makes, None where it was not located.
    """

    number: int
    what: str
    fabric: str
    traffic: str
    background: bool
    guards: str
    truths: tuple[str, ...]
    told: tuple[str, ...]
    result: str
    pattern: bool | None
    expected_pattern: str
    detected_s: float | None
    detected_iterations: float | None
    extra: tuple[str, ...]


def network_of(fabric: Fabric) -> Network:
    """What the routing knows of a healthy fabric at its default scale."""
    return Network(Routes(fabric, policy=RoutingPolicy()), default_scale(fabric))


def iteration_s(fabric: Fabric, setting: Setting, seed: int = 0) -> float:
    """Emulated seconds of one healthy iteration of a setting, from the simulator."""
    schedule = schedule_of(fabric, setting, seed=seed)
    record = simulate(fabric, schedule, controller_router(fabric), scale=default_scale(fabric))
    own = {one.id for one in _own(schedule)}
    return max(one.end_s or 0.0 for one in record.transfers if one.transfer_id in own) / ITERATIONS


def _own(schedule: Schedule) -> list[Transfer]:
    """The transfers of the job that is diagnosed, in order of its iterations."""
    return [one for one in schedule.transfers if not one.tag.group.startswith("job1/")]


def simulated(injection: Injection, fabric: Fabric, seed: int, healthy_iteration_s: float) -> Trial:
    """Make an injection on the simulator; nothing is noticed there by probes, and nothing repaired."""
    schedule = schedule_of(fabric, injection.setting, injection.ranks, seed)
    record = simulate(
        fabric, schedule, controller_router(fabric), scale=default_scale(fabric),
        failures=injection.failures(healthy_iteration_s), report_s=REPORT_S,
    )  # fmt: skip
    network = network_of(fabric)
    alarms: list[Alarm] = []
    for t_s, news, _ in run_alarms(record, network):
        alarms += news
        if alarms and t_s > alarms[0].t_s + AFTERWARDS_S * len(injection.truths) ** 2:
            break
    began_s = onset_s(injection, record, healthy_iteration_s)
    return judged(injection, network, alarms, began_s, healthy_iteration_s, "BFD off, local repair off")


def onset_s(injection: Injection, record: RunRecord, healthy_iteration_s: float) -> float:
    """When the first thing went wrong: a link failed, or a rank left the iteration before the one it went wrong in."""
    onsets = [one.at_s for one in injection.failures(healthy_iteration_s)]
    own = _own(record.schedule)
    ends = {one.transfer_id: one.end_s for one in record.transfers}
    each = len(own) // ITERATIONS
    for fault in injection.ranks:
        before = own[(fault.iteration - 1) * each : fault.iteration * each]
        onsets.append(max(ends.get(one.id) or 0.0 for one in before if fault.rank in (one.src, one.dst)))
    return min(onsets)


def judged(
    injection: Injection,
    network: Network,
    alarms: Sequence[Alarm],
    began_s: float,
    healthy_iteration_s: float,
    guards: str,
) -> Trial:
    """The trial of an injection that was told of by ``alarms``."""
    expected = {(truth.syndrome, truth.component) for truth in injection.truths}
    told = {(one.verdict.syndrome, one.verdict.component.id): one.verdict for one in alarms}
    sure = {fault for fault, verdict in told.items() if not verdict.is_ambiguous}
    result = "missed"
    if alarms:
        result = "wrong"
        if expected <= sure:
            result = "correct"
        elif all(_is_suspect(truth, told.values()) for truth in injection.truths):
            result = "ambiguous"
    wanted = _expected_pattern(injection, network)
    located = (injection.truths[-1].syndrome, injection.truths[-1].component)  # of a link and a rank, the link
    found = told[located].pattern if located in sure else None
    detected_s = min(one.t_s for one in alarms) - began_s if alarms else None
    setting = injection.setting
    return Trial(
        injection.number, injection.what, setting.kind.value, setting.traffic.value, setting.background, guards,
        tuple(f"{truth.syndrome.value}: {truth.component}" for truth in injection.truths),
        tuple(one.verdict.text for one in alarms), result, found is wanted if found else None, wanted.value,
        detected_s, detected_s / healthy_iteration_s if detected_s is not None else None,
        tuple(one.verdict.text for one in alarms if not _belongs(one.verdict, injection)),
    )  # fmt: skip


def _is_suspect(truth: Truth, verdicts: Iterable[Verdict]) -> bool:
    return any(
        truth.component in {one.id for one in (verdict.component, *verdict.suspects)}
        and verdict.syndrome is truth.syndrome
        for verdict in verdicts
    )


def _belongs(verdict: Verdict, injection: Injection) -> bool:
    return any(_is_suspect(truth, [verdict]) for truth in injection.truths)


def _expected_pattern(injection: Injection, network: Network) -> Pattern:
    """How the connections lie in the matrix that a fault concerns."""
    if not injection.links:
        return Pattern.RANK
    schedule = schedule_of(network.fabric, injection.setting)
    pairs = {Connection(one.src, one.dst) for one in _own(schedule)}
    lanes = {
        Lane(one.link_id, direction)
        for one in injection.links
        for direction in (("out", "in") if one.direction == "both" else (one.direction,))
    }
    return pattern_of([pair for pair in pairs if lanes.intersection(network.lanes(pair))])


@dataclass(frozen=True)
class Score:
    """Over many trials. Shares are of all trials; ``detected`` ones have an alarm at or after the injection."""

    trials: int
    correct: float
    ambiguous: float
    wrong: float
    missed: float
    correct_of_located: float | None
    pattern_correct: float | None
    detected_median_s: float | None
    detected_p95_s: float | None
    detected_median_iterations: float | None
    detected_p95_iterations: float | None
    extra_alarms: int

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)


def score(trials: Sequence[Trial]) -> Score:
    """The score of at least one trial; accuracy is that of verdicts that are not ambiguous."""
    count = len(trials)
    results = {name: sum(one.result == name for one in trials) for name in ("correct", "ambiguous", "wrong", "missed")}
    located = count - results["ambiguous"]
    patterns = [one.pattern for one in trials if one.pattern is not None]
    seconds = sorted(one.detected_s for one in trials if one.detected_s is not None)
    iterations = sorted(one.detected_iterations for one in trials if one.detected_iterations is not None)
    return Score(
        trials=count,
        correct=results["correct"] / count,
        ambiguous=results["ambiguous"] / count,
        wrong=results["wrong"] / count,
        missed=results["missed"] / count,
        correct_of_located=results["correct"] / located if located else None,
        pattern_correct=statistics.fmean(patterns) if patterns else None,
        detected_median_s=statistics.median(seconds) if seconds else None,
        detected_p95_s=percentile(seconds, 0.95),
        detected_median_iterations=statistics.median(iterations) if iterations else None,
        detected_p95_iterations=percentile(iterations, 0.95),
        extra_alarms=sum(len(one.extra) for one in trials),
    )


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that at least ``share`` of them do not exceed; None of none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def by(trials: Iterable[Trial], key: str) -> dict[str, list[Trial]]:
    """The trials by one of their fields, in order of appearance."""
    found: dict[str, list[Trial]] = {}
    for one in trials:
        found.setdefault(str(getattr(one, key)), []).append(one)
    return found
