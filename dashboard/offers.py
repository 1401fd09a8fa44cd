"""What can be started from the page: the workloads of the catalogue that fit the fabrics that are shown. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dashboard.errors import ActionError
from experiments.catalogue import NAMES, find_scenario
from experiments.scenario import Scenario
from experiments.scenario.workloads import EntrySection
from topologies.errors import RailbedError
from topologies.model import Fabric
from topologies.near import did_you_mean
from workloads.schedule import Schedule


@dataclass(frozen=True)
class Offer:
    """One workload of an experiment of the catalogue: ``id`` is ``EXPERIMENT/WORKLOAD``."""

    id: str
    experiment: str
    workload: str
    question: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)


def offers(fabrics: Sequence[Fabric]) -> tuple[Offer, ...]:
    """The workloads that every one of ``fabrics`` can run, in the order of the catalogue.

    An entry that belongs to certain fabrics of its experiment is offered where a fabric has the size of one of them.
    """
    found = []
    for name in NAMES:
        scenario = find_scenario(name)
        question = " ".join(scenario.question.split())
        for entry in scenario.workload:
            if all(_fits(scenario, entry, fabric) for fabric in fabrics):
                found += [Offer(f"{name}/{label}", name, label, question) for label in entry.labels]
    return tuple(found)


def schedule_of(offer_id: str, fabric: Fabric) -> Schedule:
    """The schedule of an offer on a fabric; raises ActionError for an unknown one and one that does not fit."""
    known = {}
    for name in NAMES:
        if offer_id.startswith(f"{name}/"):
            scenario = find_scenario(name)
            for entry in scenario.workload:
                known.update({f"{name}/{label}": (scenario, entry, label) for label in entry.labels})
    if offer_id not in known:
        near = did_you_mean(offer_id, list(known)) if known else did_you_mean(offer_id.split("/")[0], NAMES)
        raise ActionError(f"the catalogue has no workload '{offer_id}': {near}choose one of those that are offered")
    scenario, entry, label = known[offer_id]
    if not _fits(scenario, entry, fabric):
        raise ActionError(f"the workload '{offer_id}' is not made for a fabric of {len(fabric.gpus)} GPUs like this")
    return entry.schedules(fabric, scenario.seed)[entry.labels.index(label)]


def _fits(scenario: Scenario, entry: EntrySection, fabric: Fabric) -> bool:
    if entry.fabrics is not None:
        sections = [section.spec() for section in scenario.fabrics if section.label in entry.fabrics]
        if (fabric.spec.domains, fabric.spec.rails) not in [(spec.domains, spec.rails) for spec in sections]:
            return False
    try:
        entry.check(fabric, scenario.seed)
    except RailbedError:
        return False
    return True
