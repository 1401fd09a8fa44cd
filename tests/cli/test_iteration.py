"""`railbed iteration`: what it prints and writes, and how it refuses."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from cli.iteration import command
from tests.cli.typed import typed
from workloads.operations import OperationSchedule
from workloads.operations_file import read_schedule_file
from workloads.training import Plan


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    return typed(capsys, "iteration", *words)


def test_every_field_of_a_plan_is_an_option() -> None:
    assert {field.name for field in fields(Plan)} <= {parameter.name for parameter in command.params}


def test_an_iteration_is_told_written_and_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    schedule, matrix = tmp_path / "it.json", tmp_path / "it.svg"
    code, out, err = run(
        capsys, "gpt3-13b", "--tp", 4, "--pp", 2, "--dp", 4, "--micro-batches", 2, "--sequence-parallel",
        "--domain-size", 4, "-o", schedule, "--matrix", matrix,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "gpt3-13b iteration: 32 GPUs" in out
    assert "across rails 0.000 GB" in out
    made = read_schedule_file(schedule)
    assert isinstance(made, OperationSchedule)
    assert made.ranks == 32
    assert "<svg" in matrix.read_text()


def test_json_has_the_totals(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "llama2-7b", "--dp", 8, "--zero", 3, "--json")
    found = json.loads(out)
    assert code == 0
    assert {total["collective"] for total in found["totals"]} == {"all-gather", "reduce-scatter"}
    assert found["in_domain_bytes"] == sum(total["sent_bytes"] for total in found["totals"])
    assert found["on_rail_bytes"] == found["across_rails_bytes"] == 0


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["gpt3-17b"], 2, "unknown model 'gpt3-17b': did you mean 'gpt3-175b'?"),
        (["gpt3-175b", "--tp", "8", "--gpus", "16"], 2, "TP 8 x PP 1 x DP 1 = 8 GPUs, but the fabric has 16"),
        (["gpt3-175b", "--tp", "16"], 2, "TP 16 is larger than an HB domain of 8 GPUs"),
        (["gpt3-175b", "--matrix", "who.txt"], 2, "must end in .svg, .png, .pdf"),
        (["llama2-7b", "-o", "/proc/no/x.json"], 1, "/proc/no/x.json cannot be written"),
        (["llama2-7b", "--load", "odd"], 2, "'odd' is not one of"),
    ],
)
def test_wrong_use_is_one_sentence(
    capsys: pytest.CaptureFixture[str], words: list[str], code: int, sentence: str
) -> None:
    found, _, err = run(capsys, *words)
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert found == code
