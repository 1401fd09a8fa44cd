"""The catalogue on live fabrics: two short ones always, all of it as a soak run that leaves a page in the docs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import pytest

from experiments.catalogue import NAMES, find_scenario
from experiments.emulated import emulator_backend
from experiments.files import write_file
from experiments.outcome import Outcome
from experiments.provenance import provenance
from experiments.run import run_scenario
from experiments.stored import read_result
from experiments.verdicts import Verdict, unexpected, verdicts
from tests.emulator.live import live

SHORT = ("parity", "flap-storm")
PAGES = Path(__file__).resolve().parents[2] / "docs" / "soak"
LONGEST_S = 900


@dataclass
class Soak:
    """What the experiments of this session gave, for the page."""

    rows: list[tuple[str, float, int, int, tuple[Verdict, ...]]] = field(default_factory=list)

    def add(self, name: str, took_s: float, outcomes: tuple[Outcome, ...], found: tuple[Verdict, ...]) -> None:
        faithful = sum(outcome.faithful for outcome in outcomes)
        self.rows.append((name, took_s, len(outcomes), faithful, found))

    def page(self, day: date) -> str:
        """The page of the run, in Markdown."""
        machine = provenance(0, [])
        bad = sum(not verdict.ok for *_, found in self.rows for verdict in found)
        whole = sum(len(found) for *_, found in self.rows)
        lines = [
            f"# The catalogue on the emulator, {day.isoformat()}",
            "",
            f"Written by `./railbed test --soak` on a machine with {machine['cpus']} processors, kernel "
            f"{machine['kernel']}, commit {machine['git_commit']}. {whole - bad} of {whole} expected values were met.",
            "",
            "| experiment | took (s) | runs | faithful | expected and measured |",
            "| --- | --- | --- | --- | --- |",
        ]
        for name, took_s, runs, faithful, found in self.rows:
            told = "<br>".join(verdict.sentence.replace("|", "/") for verdict in found)
            lines.append(f"| `{name}` | {took_s:.0f} | {runs} | {faithful} | {told} |")
        return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def soak() -> Iterator[Soak]:
    """Collects; writes the page if the whole catalogue was run."""
    found = Soak()
    yield found
    if {row[0] for row in found.rows} == set(NAMES):
        today = date.today()
        write_file(PAGES / f"{today.isoformat()}.md", found.page(today).encode())


def run(name: str, root: Path, soak: Soak) -> tuple[tuple[Outcome, ...], tuple[Verdict, ...]]:
    """Make an experiment live; the runs, and what became of the expected values, read back from its folder."""
    scenario = find_scenario(name)
    started_s = time.monotonic()
    with emulator_backend(lambda stage, share: None) as backend:
        folder = run_scenario(
            scenario, backend, lambda stage, share: None, results_root=root, report=False,
            extra_provenance=backend.provenance_now,
        ).folder  # fmt: skip
    stored = read_result(folder)
    assert stored.status == "complete"
    assert all(outcome.was_made for outcome in stored.outcomes)
    found = verdicts(scenario, stored.outcomes)
    soak.add(name, time.monotonic() - started_s, stored.outcomes, found)
    return stored.outcomes, found


@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=live if name in SHORT else [*live, pytest.mark.soak]) for name in NAMES]
)
def test_every_experiment_gives_its_expected_values_on_the_emulator(name: str, tmp_path: Path, soak: Soak) -> None:
    outcomes, found = run(name, tmp_path, soak)
    wrong = [verdict.sentence for verdict in unexpected(found)]
    overloaded = [note for outcome in outcomes if not outcome.faithful for note in outcome.notes]
    if wrong and overloaded:  # what a run shows that is marked so is not held against the model
        pytest.skip(f"this machine was too busy for {name} ({overloaded[0]}): {wrong[0]}")
    assert wrong == []


def test_the_page_of_a_soak_run_has_a_row_for_every_experiment() -> None:
    soak = Soak()
    verdict = Verdict("x: 1 +- 0.1", (0.9, 1.1), 1.5, (1.4, 1.6), False, "")
    for name in NAMES:
        soak.add(name, 12.3, (), (verdict,))
    page = soak.page(date(2026, 1, 2))
    assert page.startswith("# The catalogue on the emulator, 2026-01-02\n")
    assert page.count("NOT as expected: x: 1 +- 0.1; measured 1.5 (1.4 to 1.6)") == len(NAMES)
    assert f"0 of {len(NAMES)} expected values were met" in page
