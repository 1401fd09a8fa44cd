from pathlib import Path

import pytest

from cli.main import main
from experiments.catalogue import FOLDER, LARGEST_EMULATED, NAMES, entries, find_scenario, scenario_path
from experiments.errors import UnknownExperimentError
from experiments.faithfulness import faithfulness
from experiments.outcome import HEALTHY
from experiments.plan import plan, simulator_backend
from experiments.reference.registry import GROUPS
from experiments.run import run_scenario
from experiments.tables import footnotes
from experiments.verdicts import unexpected, verdicts
from tests.experiments.cases import made

SIMULATED = (("backend", "simulator"),)


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_gives_its_expected_values_on_the_simulator(name: str) -> None:
    scenario = find_scenario(name, SIMULATED)
    outcomes = [outcome for _, _, outcome in made(scenario)]
    found = verdicts(scenario, outcomes)
    assert footnotes(outcomes)
    assert found, "an experiment without expected values can't fail"
    assert [verdict.sentence for verdict in unexpected(found)] == []
    if name != "silent-failure":
        assert {outcome.status for outcome in outcomes} == {"complete"}


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_says_what_it_asks_and_what_it_cannot_show(name: str) -> None:
    scenario = find_scenario(name)
    assert scenario.name == name
    assert scenario.question.endswith("?")
    assert scenario.method
    assert scenario.expected
    assert scenario.limits
    assert any(expected.backend in (None, "emulator") for expected in scenario.expect)
    for expected in scenario.expect:
        assert expected.source


@pytest.mark.parametrize("name", NAMES)
def test_every_scale_of_the_catalogue_holds(name: str) -> None:
    found = [faithfulness(run) for run in plan(find_scenario(name)) if run.condition == HEALTHY]
    assert [one.sentence for one in found if one is not None and not one.holds] == []


def test_the_catalogue_is_whole() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(NAMES)
    listed = entries()
    assert [entry.name for entry in listed] == [*NAMES, *GROUPS]
    assert all(entry.emulator == (entry.name in NAMES) for entry in listed)
    assert all(entry.gpus <= LARGEST_EMULATED for entry in listed if entry.emulator)


def test_the_same_seed_gives_the_same_transfers_and_paths_on_both_back_ends() -> None:
    for name in NAMES:
        emulated, simulated = plan(find_scenario(name)), plan(find_scenario(name, SIMULATED))
        for one, other in zip(emulated, simulated, strict=True):
            assert one.schedule == other.schedule
            assert (one.policy, one.fabric.spec, one.scale) == (other.policy, other.fabric.spec, other.scale)


def test_names_and_paths(tmp_path: Path) -> None:
    assert scenario_path("parity") == FOLDER / "parity.yaml"
    assert scenario_path("there/is-none.yaml") == Path("there/is-none.yaml")
    with pytest.raises(UnknownExperimentError, match="did you mean 'parity'"):
        scenario_path("parrity")


def test_the_list_and_one_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    for words, code in ((["experiments"], 0), (["experiments", "parity"], 0), (["experiments", "paper-tables"], 0),
                        (["experiments", "c4-replanning"], 0),
                        (["experiments", "--json"], 0), (["experiments", "parrity"], 2)):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == code
    told = capsys.readouterr()
    assert "moe-forwarding" in told.out
    assert "question: >-" in told.out
    assert "did you mean 'parity'" in told.err


@pytest.mark.parametrize("name", ["silent-failure", "moe-forwarding"])
def test_the_same_seed_gives_the_same_bytes_on_the_simulator(name: str, tmp_path: Path) -> None:
    scenario = find_scenario(name, SIMULATED)
    first, second = (
        run_scenario(scenario, simulator_backend, lambda stage, share: None, results_root=tmp_path, report=False).folder
        for _ in range(2)
    )
    files = [path.relative_to(first) for path in sorted(first.rglob("*")) if path.is_file()]
    assert [path.relative_to(second) for path in sorted(second.rglob("*")) if path.is_file()] == files
    different = [file.name for file in files if (first / file).read_bytes() != (second / file).read_bytes()]
    assert set(different) <= {"provenance.json", "journal.jsonl"}  # the moment, and how long it took
