"""The catalogue: experiments with a name, one file each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.errors import UnknownExperimentError
from experiments.reference.registry import GROUPS, PAPER_TABLES, REFERENCES
from experiments.scenario import Scenario, Setting, load_scenario
from topologies.near import did_you_mean

FOLDER = Path(__file__).parent

NAMES = (
    "first-light",
    "parity",
    "moe-forwarding",
    "failure-nic",
    "failure-rail",
    "failure-nvlink",
    "failure-spine",
    "flap-storm",
    "silent-failure",
    "oversubscription",
    "hash-collisions",
    "placement",
    "incast",
    "moe-skew",
    "scale",
    "c4-planning",
    "c4-replanning",
    "rail-only-with-planning",
    "c4-diagnosis",
)
"""The scenarios, in the order in which they are best read."""


@dataclass(frozen=True)
class Entry:
    """An experiment as the list of them shows it; ``gpus`` is the largest number on one of its fabrics."""

    name: str
    question: str
    gpus: int
    emulator: bool


def scenario_path(name_or_path: str) -> Path:
    """The file of a scenario: of the catalogue by its name, or any other by its path.

    Raises UnknownExperimentError for what is neither.
    """
    path = Path(name_or_path)
    if name_or_path in NAMES and not path.is_file():
        return FOLDER / f"{name_or_path}.yaml"
    if path.exists() or path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        return path
    near = did_you_mean(name_or_path, (*NAMES, *GROUPS))
    raise UnknownExperimentError(
        f"'{name_or_path}' is no file and no experiment of the catalogue: {near}'railbed experiments' lists them"
    )


def find_scenario(name_or_path: str, settings: tuple[Setting, ...] = ()) -> Scenario:
    """The scenario of that name or path; raises UnknownExperimentError and ScenarioError."""
    return load_scenario(scenario_path(name_or_path), settings)


def entries() -> tuple[Entry, ...]:
    """All experiments, the tables of the papers last."""
    found = []
    for name in NAMES:
        scenario = find_scenario(name)
        gpus = max(len(fabric.gpus) for fabric in scenario.build_fabrics().values())
        found.append(Entry(name, " ".join(scenario.question.split()), gpus, gpus <= LARGEST_EMULATED))
    found += [Entry(name, question, gpus, False) for name, (question, gpus) in TABLES.items()]
    tables = f"Which published numbers does Railbed reproduce ({', '.join(REFERENCES)})?"
    return (*found, Entry(PAPER_TABLES, tables, 0, False))


TABLES = {
    "c4-downtime": ("How much of a job's time do failures take without and with automatic diagnosis?", 0),
    "planning-tables": ("What is traffic planning worth beside the numbers that papers give (C7 to C11)?", 512),
}
"""Tables of published numbers by name, but for the papers' own: the question, and the GPUs of the largest fabric."""

LARGEST_EMULATED = 64
"""GPUs up to which the experiments of the catalogue also run on the emulator."""
