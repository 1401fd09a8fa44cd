"""The published schema, judged by a validator that is not ours."""

import json
from pathlib import Path

import pytest
import yaml

from experiments.catalogue import FOLDER, NAMES
from experiments.scenario.schema import PUBLISHED

jsonschema = pytest.importorskip("jsonschema", reason="an environment from before jsonschema: run ./railbed setup")

ROOT = Path(__file__).resolve().parent.parent.parent
BAD = sorted((Path(__file__).parent / "bad").glob("*.yaml"))
ONLY_RAILBED_FINDS = [
    "collective-algorithm",
    "collective-group-and-groups",
    "collective-groups-overlap",
    "collective-rank-does-not-exist",
    "collective-rank-fault-round",
    "collective-rank-fault-stranger",
    "collective-size-too-small",
    "essential-on-the-simulator",
    "essential-unknown",
    "expectation-fabric",
    "expectation-of-failures-without-any",
    "expectation-says-nothing",
    "expectation-says-too-much",
    "expectation-slope-without-fabrics",
    "expectation-tolerance",
    "expectation-without-fabric",
    "expectation-workload",
    "experts-load-factor",
    "experts-not-divisible",
    "fabric-name-twice",
    "fabric-no-rails",
    "fabric-too-large-to-emulate",
    "fabric-two-nvlink-rates",
    "fabric-zero-domains",
    "fabrics-of-other-size",
    "failure-degrade-above-one",
    "failure-degrade-without-rate",
    "failure-flap-with-restore",
    "failure-flap-without-count",
    "failure-gpu-unknown",
    "failure-host-link",
    "failure-key-of-another-kind",
    "failure-loss-above-all",
    "failure-no-spine-link",
    "failure-nvswitch-unknown",
    "failure-on-unknown-fabric",
    "failure-rail-unknown",
    "failure-restore-before",
    "failure-switch-unknown",
    "failure-target-unknown",
    "failure-two-targets",
    "iteration-plan-product",
    "key-twice",
    "key-twice-inside",
    "nothing-runs-on-a-fabric",
    "pattern-shift-to-itself",
    "pattern-target",
    "pattern-too-many-senders",
    "plan-with-iperf3",
    "routing-placement-dynamic",
    "routing-placement-missing",
    "routing-placement-of-another-fabric",
    "scale-out-of-reach",
    "schedule-file-is-no-json",
    "schedule-file-missing",
    "workload-name-twice",
    "workload-on-unknown-fabric",
]
"""Mistakes that lie between values, which a schema does not see."""

NO_DATA = ("not-yaml", "empty")


@pytest.fixture(scope="module")
def judge() -> "jsonschema.Draft202012Validator":
    schema = json.loads((ROOT / PUBLISHED).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", NAMES)
def test_the_catalogue_is_right(judge: "jsonschema.Draft202012Validator", name: str) -> None:
    data = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert [error.message for error in judge.iter_errors(data)] == []


@pytest.mark.parametrize("path", [path for path in BAD if path.stem not in NO_DATA], ids=lambda path: path.stem)
def test_an_editor_sees_what_a_schema_can_see(judge: "jsonschema.Draft202012Validator", path: Path) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert bool(list(judge.iter_errors(data))) != (path.stem in ONLY_RAILBED_FINDS)
