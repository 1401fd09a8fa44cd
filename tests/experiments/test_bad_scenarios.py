"""Every file in ``bad/`` has one mistake; its first line says which: line, key and words of the sentence."""

from pathlib import Path

import pytest

from experiments.errors import ScenarioError
from experiments.scenario import load_scenario

FILES = sorted((Path(__file__).parent / "bad").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_mistake_is_told_with_its_place(path: Path) -> None:
    line, key, words = path.read_text().split("\n", 1)[0].removeprefix("# ").split(" | ", 2)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    found = [(problem.line, problem.key, problem.text) for problem in caught.value.problems]
    assert [one for one in found if one[:2] == (int(line), key) and words in one[2]], found
    # A misspelt key may be a missing one too, and a mistake may be one on each of two fabrics.
    assert len(found) <= 2
    assert caught.value.exit_code == 2


def test_there_are_many() -> None:
    assert len(FILES) >= 80
