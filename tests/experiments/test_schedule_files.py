"""Schedules from files in scenarios, of either kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.errors import ScenarioError
from experiments.plan import plan
from experiments.scenario import load_scenario
from workloads.collectives import ring_all_reduce
from workloads.families import Family
from workloads.operations import Call, Operation, OperationSchedule
from workloads.operations_file import operations_to_dict

RAILS = Family("rail", ((2, 2),), ((2, 1),))
MADE = OperationSchedule("two rings", 4, (Operation(0, "ring", (Call(RAILS, "all-reduce", 1 << 20),), repeat=3),))


def scenario(folder: Path, content: dict[str, object]) -> Path:
    (folder / "made.json").write_text(json.dumps(content))
    path = folder / "s.yaml"
    path.write_text(
        "name: from a file\nfabrics: [{kind: rail-only, preset: dgx-h100, domains: 2, rails: 2}]\n"
        "workload: [{schedule: made.json}]\nbackend: simulator\n"
    )
    return path


@pytest.mark.parametrize(
    ("content", "schedule"),
    [
        (operations_to_dict(MADE), MADE.to_schedule()),
        (ring_all_reduce({"all": range(4)}, 1 << 20, 4).to_dict(), ring_all_reduce({"all": range(4)}, 1 << 20, 4)),
    ],
)
def test_either_kind_of_file_is_a_workload(tmp_path: Path, content: dict[str, object], schedule: object) -> None:
    (run,) = plan(load_scenario(scenario(tmp_path, content)))
    assert run.schedule == schedule


def test_a_file_that_is_no_schedule_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"made\.json holds no schedule"):
        load_scenario(scenario(tmp_path, {"format": "something else"}))
