from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workloads.collectives import ring_all_reduce
from workloads.errors import ScheduleError
from workloads.expert_load import ExpertLoad
from workloads.families import Family, ListedFamily
from workloads.models import find_model
from workloads.operations import Call, Operation, OperationSchedule
from workloads.operations_file import operations_from_dict, operations_to_dict, read_schedule_file
from workloads.training import Plan, training_iteration

PAIRS = Family("pairs", ((2, 1),), ((2, 2),))


def saved_and_loaded(schedule: OperationSchedule) -> OperationSchedule:
    return operations_from_dict(json.loads(json.dumps(operations_to_dict(schedule))))


@pytest.mark.parametrize(
    ("model", "plan", "load"),
    [
        ("gpt3-175b", Plan(tp=8, pp=4, dp=2, micro_batches=4, sequence_parallel=True, zero=1), "uniform"),
        ("gpt3-13b", Plan(tp=4, pp=2, dp=2, micro_batches=4, chunks=2, buckets=2, recompute=True), "uniform"),
        ("llama2-7b", Plan(dp=8, zero=3), "uniform"),
        ("mixtral-8x7b", Plan(tp=2, dp=8, ep=8, sequence_parallel=True), "zipf"),
    ],
)
def test_an_iteration_is_saved_and_loaded_as_it_is(model: str, plan: Plan, load: str) -> None:
    made = training_iteration(find_model(model), plan, ranks=plan.ranks, domain_size=8, load=ExpertLoad(load, 3))
    assert saved_and_loaded(made) == made


def test_groups_off_the_grid_and_every_field_survive() -> None:
    odd = ListedFamily("odd", ((3, 1), (0, 2)))
    calls = (
        Call(odd, "send-recv", 10, posted=True),
        Call(PAIRS, "all-to-all", splits=((0, 2), (3, 0)), local=2, algorithm="two-phase"),
        Call(PAIRS, delay_s=0.25),
    )
    made = OperationSchedule(
        "all", 4, (Operation(5, "a", calls), Operation(7, "b", calls, (5,), 3)), form="stepwise", seed=9
    )
    assert saved_and_loaded(made) == made


def test_an_iteration_of_32768_gpus_is_a_small_file() -> None:
    plan = Plan(tp=8, pp=8, dp=512, micro_batches=16, sequence_parallel=True)
    made = training_iteration(find_model("gpt3-175b"), plan, ranks=plan.ranks, domain_size=8)
    assert len(json.dumps(operations_to_dict(made))) < 250_000


def test_the_example_of_the_documents_can_be_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    example = page.split("```json\n")[1].split("```")[0]
    found = operations_from_dict(json.loads(example))
    assert found.operations[0].calls[0].family == Family("tp", ((8, 1),), ((2, 8),))
    assert list(found.operations[1].calls[0].family.groups()) == [(0, 9), (3, 12)]
    assert found.to_schedule().transfers


def good() -> dict[str, Any]:
    made = OperationSchedule("x", 4, (Operation(0, "a", (Call(PAIRS, "all-reduce", 80),)),))
    return json.loads(json.dumps(operations_to_dict(made)))


def without(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != key}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({**good(), "version": 9}, "expected format 'railbed-operations' version 1, found .* version 9"),
        (without(good(), "ranks"), "the schedule lacks the key 'ranks'"),
        ({**good(), "families": [{"name": "x"}]}, "family 0 of the schedule lacks the key 'inside'"),
        ({**good(), "families": [{"name": "x", "groups": [[0], [1, 2]]}]}, "family 0 .* must be equally large"),
        (
            {**good(), "families": [{"name": "x", "first": 0, "inside": [[2, 0]], "between": []}]},
            "family 0 .*: an axis needs a count",
        ),
        ({**good(), "families": []}, "operation 0 of the schedule has a missing, unknown or wrong value"),
        ({**good(), "operations": [{"id": 0, "calls": [], "colour": 1}]}, "operation 0 .*'colour'"),
        ({**good(), "operations": [{"id": 0, "label": "a", "calls": []}]}, "it makes no call"),
        ({**good(), "ranks": 2}, "has ranks 0 to 3; the ranks are 0 to 1"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ScheduleError, match=sentence) as refused:
        operations_from_dict(wrong)
    assert "\n" not in str(refused.value)


def test_either_kind_of_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(good()))
    assert read_schedule_file(path) == operations_from_dict(good())
    transfers = ring_all_reduce({"all": range(4)}, 80, 4)
    path.write_text(json.dumps(transfers.to_dict()))
    assert read_schedule_file(path) == transfers


@pytest.mark.parametrize(
    ("text", "sentence"), [(None, "cannot be read"), ("{", "is no JSON"), ("[]", "holds no schedule")]
)
def test_what_is_no_schedule_file_is_refused(tmp_path: Path, text: str | None, sentence: str) -> None:
    path = tmp_path / "schedule.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ScheduleError, match=sentence):
        read_schedule_file(path)
