"""What is wrong between sections of a scenario that are right in themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from experiments.errors import Problem
from experiments.scenario.expectations import ExpectSection
from experiments.scenario.model import EMULATOR, SIMULATOR, Scenario
from experiments.yaml_lines import KeyPath
from topologies.builders import build
from topologies.errors import RailbedError
from topologies.model import Fabric
from topologies.near import did_you_mean
from topologies.scale import check_scale

Tell = Callable[[KeyPath, object], Problem]
"""Makes a problem of the path of a key and a sentence."""


def misfits(scenario: Scenario, tell: Tell) -> Iterator[Problem]:
    """Everything that stops the scenario from running, as ``run`` and ``validate`` find it."""
    yield from _labels(scenario, tell)
    fabrics: dict[str, Fabric] = {}
    for index, section in enumerate(scenario.fabrics):
        try:
            fabric = build(section.spec())
            scale = scenario.scale_for(fabric)
            if scenario.backend == EMULATOR:
                check_scale(fabric, scale)
        except (RailbedError, ValueError) as error:
            yield tell(("fabrics", index), error)
        else:
            fabrics[section.label] = fabric
            yield from _planning(scenario, section.label, fabric, partial(tell, ("fabrics", index)))
    yield from _workload(scenario, fabrics, tell)
    yield from _failures(scenario, fabrics, tell)
    if scenario.backend == SIMULATOR:
        for entry, name in enumerate(scenario.essential):
            if name in ("delay", "jitter", "loss") or name.startswith("tcp-"):
                yield tell(("essential", entry), f"the simulator does not model {name}; take it off, or emulate")
    for entry, expected in enumerate(scenario.expect):
        yield from _expected(scenario, expected, entry, tell)


def _planning(scenario: Scenario, label: str, fabric: Fabric, tell: Callable[[object], Problem]) -> Iterator[Problem]:
    try:
        planning = scenario.planning_of(label)
        if planning is not None and planning.placement is not None:
            planning.placement.check(fabric)
    except RailbedError as error:
        yield tell(error)
        return
    if planning is not None and scenario.backend == EMULATOR and scenario.engine == "iperf3":
        yield tell("planned traffic is replayed by the agent: leave out 'engine: iperf3'")


def _labels(scenario: Scenario, tell: Tell) -> Iterator[Problem]:
    for index, section in enumerate(scenario.fabrics):
        if section.label in [other.label for other in scenario.fabrics[:index]]:
            yield tell(("fabrics", index), f"'{section.label}' occurs twice; give each a 'name' of its own")
    seen: list[str] = []
    for index, entry in enumerate(scenario.workload):
        for label in entry.labels:
            if label in seen:
                yield tell(("workload", index), f"'{label}' occurs twice; give each a 'name' of its own")
        seen.extend(entry.labels)
    labels = [section.label for section in scenario.fabrics]
    for key, sections in (("workload", scenario.workload), ("failures", scenario.failures)):
        for index, one in enumerate(sections):
            for position, label in enumerate(one.fabrics or ()):
                if label not in labels:
                    text = f"unknown fabric '{label}': {did_you_mean(label, labels)}The fabrics are {', '.join(labels)}"
                    yield tell((key, index, "fabrics", position), text)


def _workload(scenario: Scenario, fabrics: dict[str, Fabric], tell: Tell) -> Iterator[Problem]:
    for label, fabric in fabrics.items():
        entries = [(index, entry) for index, entry in enumerate(scenario.workload) if entry.on(label)]
        if not entries:
            position = [section.label for section in scenario.fabrics].index(label)
            yield tell(("fabrics", position), f"nothing runs on '{label}'; every entry of the workload leaves it out")
        for index, entry in entries:
            try:
                entry.check(fabric, scenario.seed)
            except (RailbedError, ValueError) as error:
                yield tell(("workload", index), f"on fabric '{label}': {error}")
    places: dict[KeyPath, set[int]] = {}
    for index, entry in enumerate(scenario.workload):
        where: KeyPath = ("fabrics",) if entry.fabrics is None else ("workload", index)
        places[where] = {len(fabric.gpus) for label, fabric in fabrics.items() if entry.on(label)}
    for where, sizes in places.items():
        if len(sizes) > 1:
            listed = ", ".join(str(size) for size in sorted(sizes))
            yield tell(where, f"the fabrics have {listed} GPUs; to carry the same flows they must have as many")


def _failures(scenario: Scenario, fabrics: dict[str, Fabric], tell: Tell) -> Iterator[Problem]:
    for label, fabric in fabrics.items():
        for index, failure in enumerate(scenario.failures):
            if not failure.on(label):
                continue
            try:
                failure.check(fabric)
            except RailbedError as error:
                target = next((key for key in ("link", "gpu", "switch", "rail", "nvswitch")
                               if getattr(failure, key) is not None), None)  # fmt: skip
                where: KeyPath = ("failures", index) if target is None else ("failures", index, target)
                text = str(error).replace("this fabric", f"fabric '{label}'")
                if target == "link" and len(fabrics) > 1:
                    text += "; use 'auto' where the fabrics have no link in common, or 'fabrics' to choose them"
                yield tell(where, text)


def _expected(scenario: Scenario, expected: ExpectSection, entry: int, tell: Tell) -> Iterator[Problem]:
    """Names in an expectation that nothing in the scenario has."""
    fabrics = [section.label for section in scenario.fabrics]
    workload = [label for one in scenario.workload for label in one.labels]
    here: KeyPath = ("expect", entry)
    named = [((*here, "fabric"), "fabric", expected.fabric, fabrics),
             ((*here, "workload"), "workload", expected.workload, workload),
             *(((*here, "fabrics", position), "fabric", name, fabrics)
               for position, name in enumerate(expected.fabrics or ()))]  # fmt: skip
    if expected.versus is not None:
        named += [((*here, "versus", "fabric"), "fabric", expected.versus.fabric, fabrics),
                  ((*here, "versus", "workload"), "workload", expected.versus.workload, workload)]  # fmt: skip
    for path, what, name, names in named:
        if name is not None and name not in names:
            yield tell(path, f"unknown {what} '{name}': {did_you_mean(name, names)}Those here are {', '.join(names)}")
    if expected.fabric is None and expected.fabrics is None and len(fabrics) > 1:
        yield tell(here, f"'fabric' is missing: it is one of {', '.join(fabrics)}")
    if expected.workload is None and len(workload) > 1:
        yield tell(here, f"'workload' is missing: it is one of {', '.join(workload)}")
    conditions = (expected.of_condition, expected.versus.condition if expected.versus else None)
    if "failure" in conditions and not scenario.failures:
        yield tell(here, "it expects something of failures, but the scenario has none")
