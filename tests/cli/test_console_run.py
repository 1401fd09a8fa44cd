"""A workload on the console's own fabric: what is asked of the fabric, and what is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.console_run import names_a_workload, run_workload, workloads_of
from cli.errors import ConsoleError
from controller.policy import RoutingPolicy
from emulator.engines import Engine
from simulator.fluid import simulate
from simulator.routes import controller_router
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec
from topologies.scale import default_scale
from workloads.records import RunRecord
from workloads.schedule import Schedule


class Running:
    """A fabric whose runs are the fluid model's."""

    name = "lab"

    def __init__(self) -> None:
        self.fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
        self.scale = default_scale(self.fabric)
        self.ran: list[str] = []

    def policy(self) -> RoutingPolicy:
        return RoutingPolicy()

    def impairments(self) -> list[dict[str, Any]]:
        return [{"link": "d3r3-nv3", "down": True, "blackhole": [], "rate_mbps": None, "delay_ms": 0, "loss_share": 0}]

    def run(self, schedule: Schedule, *, seed: int, progress: Any, engine: Engine) -> RunRecord:
        assert engine is Engine.AGENT
        self.ran.append(schedule.name)
        progress(0.5)
        router = controller_router(self.fabric, self.policy())
        return simulate(self.fabric, schedule, router, scale=self.scale, seed=seed)


def test_a_workload_runs_on_this_fabric_beside_what_is_expected(capsys: pytest.CaptureFixture[str]) -> None:
    running = Running()
    assert run_workload(running, "first-light/all-reduce-per-rail") == 0  # type: ignore[arg-type]
    out = capsys.readouterr().out
    assert len(running.ran) == 1
    row = next(line for line in out.splitlines() if line.strip().startswith("all-reduce"))
    measured, expected = row.split("healthy")[1].split()[:2]
    assert measured == expected
    assert "wrong with the fabric when it began: d3r3-nv3 down" in out


def test_names_that_do_not_fit_are_refused_before_anything_runs() -> None:
    running = Running()
    with pytest.raises(ConsoleError, match="did you mean 'first-light/all-reduce'"):
        run_workload(running, "first-light/all-reduced")  # type: ignore[arg-type]
    assert running.ran == []


def test_workloads_are_single_words_and_those_that_fit() -> None:
    words = workloads_of(build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4)))
    assert "first-light/all-reduce-per-rail" in words
    assert not any(" " in word for word in words)
    assert "incast/12-to-1" not in workloads_of(build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2)))


@pytest.mark.parametrize(
    ("word", "is_one"),
    [
        ("first-light/all-reduce", True), ("first-light", False), ("./mine/a.yaml", False), ("/tmp/a.yaml", False),
        ("mine/a.yaml", False),
    ],
)  # fmt: skip
def test_files_are_no_workloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, is_one: bool) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.yaml").touch()
    assert names_a_workload(word) == is_one
