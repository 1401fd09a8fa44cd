"""The commands about running fabrics, against a stand-in for the emulator's manager."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from controller.placement import Placement
from emulator.errors import NoSuchFabricError
from emulator.manager import DownReport
from tests.cli.typed import typed as run
from topologies.model import FabricKind, FabricSpec
from topologies.scale import Scale


@dataclass
class FakeState:
    name: str
    spec: dict[str, Any] = field(default_factory=lambda: FabricSpec(FabricKind.RAIL_ONLY, 4, 4).to_dict())
    alive: bool = True
    ready: bool = True
    supervisor_pid: int = 77
    created_s: float = 0.0
    datapath: str = "userspace"


class FakeFabric:
    def __init__(self, name: str, calls: list[Any]) -> None:
        self.name = name
        self.calls = calls

    def status(self) -> dict[str, Any]:
        return {"datapath": "userspace", "switches": 24, "switches_connected": 23, "links_down": ["d0r0-rail0"]}

    def fail(self, link_id: str) -> dict[str, Any]:
        self.calls.append(("fail", self.name, link_id))
        return {"link": link_id, "up": False, "changed": True, "links": 1, "detected_s": 0.003, "repaired_s": 0.026}

    def restore(self, link_id: str) -> dict[str, Any]:
        self.calls.append(("restore", self.name, link_id))
        return {"link": link_id, "up": True}


@dataclass
class FakeManager:
    states: list[FakeState] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = types.ModuleType("emulator.manager")
        for name in ("up", "down", "running", "attach"):
            setattr(module, name, getattr(self, name))
        monkeypatch.setitem(sys.modules, "emulator.manager", module)
        monkeypatch.setattr("os.geteuid", lambda: 0)

    def up(self, spec: FabricSpec, scale: Scale | None, name: str, **options: Any) -> FakeFabric:
        self.calls.append(("up", spec, scale, name, options))
        return FakeFabric(name, self.calls)

    def down(self, name: str | None) -> Any:
        self.calls.append(("down", name))
        chosen = [state for state in self.states if name in (None, state.name)]
        return DownReport(
            removed=[state.name for state in chosen if state.alive],
            stale=[state.name for state in chosen if not state.alive],
        )

    def running(self) -> list[FakeState]:
        return self.states

    def attach(self, name: str) -> FakeFabric:
        if name not in [state.name for state in self.states]:
            raise NoSuchFabricError(f"no fabric called '{name}' is up")
        return FakeFabric(name, self.calls)


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> FakeManager:
    fake = FakeManager()
    fake.install(monkeypatch)
    return fake


def test_up_passes_on_what_was_asked_for(capsys: pytest.CaptureFixture[str], manager: FakeManager) -> None:
    code, out, err = run(
        capsys, "up", "rail-optimized", "--domains", "2", "--rails", "3", "--preset", "dgx-a100", "--spines", "2",
        "--parallel-links", "2", "--oversubscription", "2", "--uplinks", "2", "--domains-per-leaf", "1",
        "--name", "lab", "--rate-factor", "10000", "--time-factor", "500", "--openflow-port", "7000", "--json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    [(_, spec, scale, name, options)] = manager.calls
    assert spec == FabricSpec(
        FabricKind.RAIL_OPTIMIZED, 2, 3, nic_rate_mbps=200_000.0, nvlink_rate_mbps=2_400_000.0, spines=2,
        parallel_links=2, oversubscription=2.0, uplinks=2, domains_per_leaf=1,
    )  # fmt: skip
    assert scale == Scale(10_000.0, 500.0)
    assert name == "lab"
    assert options["openflow_port"] == 7000
    printed = json.loads(out)
    assert printed["name"] == "lab"
    assert printed["scale"] == {"rate": 10_000.0, "time": 500.0}


def test_up_reads_a_placement_and_refuses_a_wrong_one(
    capsys: pytest.CaptureFixture[str], manager: FakeManager, tmp_path: Path
) -> None:
    path = tmp_path / "placement.json"
    way = {"src": "d0r0", "dst": "d1r1", "channel": 0, "links": ["d0r0-rail0"]}
    path.write_text(json.dumps({"connections": [way]}))
    assert run(capsys, "up", "--placement", str(path))[0] == 0
    assert manager.calls[0][4]["placement"] == Placement.from_dict({"connections": [way]})
    code, _, err = run(capsys, "up", "--placement", str(path), "--controller", "none")
    assert (code, "--placement is for Railbed's own controller" in err) == (2, True)
    path.write_text(json.dumps({"connections": [{**way, "links": ["d0r0-rail7"]}]}))
    code, out, err = run(capsys, "up", "--placement", str(path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "d0r0-rail7" in err
    code, _, err = run(capsys, "up", "--placement", str(tmp_path / "none.json"))
    assert (code, err.count("\n")) == (2, 1)
    assert "cannot read the placement file" in err
    assert len(manager.calls) == 1


def test_up_uses_the_default_scale_of_the_size(capsys: pytest.CaptureFixture[str], manager: FakeManager) -> None:
    code, out, _ = run(capsys, "up")
    assert code == 0
    assert "rail-only with 16 GPUs is up on the userspace datapath" in out
    assert manager.calls[0][2] == Scale(20_000.0)


def test_up_needs_root(
    capsys: pytest.CaptureFixture[str], manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert run(capsys, "up") == (2, "", "railbed: 'up' needs root: run sudo ./railbed up\n")
    assert manager.calls == []


@pytest.mark.parametrize("word", ["fail", "restore"])
def test_the_only_fabric_need_not_be_named(capsys: pytest.CaptureFixture[str], manager: FakeManager, word: str) -> None:
    manager.states = [FakeState("lab")]
    code, out, _ = run(capsys, word, "d0r0-rail0")
    assert code == 0
    assert "d0r0-rail0 is" in out
    assert manager.calls == [(word, "lab", "d0r0-rail0")]


def test_several_fabrics_must_be_named(capsys: pytest.CaptureFixture[str], manager: FakeManager) -> None:
    manager.states = [FakeState("b"), FakeState("a")]
    code, _, err = run(capsys, "fail", "d0r0-rail0")
    assert (code, err) == (2, "railbed: several fabrics are up (a, b): choose one with --name\n")
    assert run(capsys, "fail", "d0r0-rail0", "--name", "b", "--json")[0] == 0
    assert manager.calls == [("fail", "b", "d0r0-rail0")]


def test_the_environment_names_the_fabric(
    capsys: pytest.CaptureFixture[str], manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAILBED_FABRIC", "lab")
    assert run(capsys, "up")[0] == 0
    manager.states = [FakeState("default"), FakeState("lab")]
    assert run(capsys, "fail", "d0r0-rail0")[0] == 0
    assert run(capsys, "fail", "d0r0-rail0", "--name", "default")[0] == 0
    assert [call[3] if call[0] == "up" else call[1] for call in manager.calls] == ["lab", "lab", "default"]


def test_no_fabric_is_an_error(capsys: pytest.CaptureFixture[str], manager: FakeManager) -> None:
    code, _, err = run(capsys, "fail", "d0r0-rail0")
    assert (code, err) == (2, "railbed: no fabric called 'default' is up\n")


def test_status_shows_every_fabric(capsys: pytest.CaptureFixture[str], manager: FakeManager) -> None:
    assert run(capsys, "status")[1] == "no fabric is up; 'railbed up' starts one\n"
    manager.states = [FakeState("lab"), FakeState("old", alive=False)]
    code, out, _ = run(capsys, "status")
    assert code == 0
    lab, old = out.splitlines()[1:]
    assert "23/24" in lab
    assert "d0r0-rail0" in lab
    assert "stale: run 'railbed down'" in old
    printed = json.loads(run(capsys, "status", "--json")[1])
    assert [(fabric["name"], fabric["state"]) for fabric in printed] == [("lab", "up"), ("old", "stale")]


def test_down_says_what_it_removed(capsys: pytest.CaptureFixture[str], manager: FakeManager) -> None:
    assert "nothing to do" in run(capsys, "down")[1]
    manager.states = [FakeState("lab"), FakeState("old", alive=False)]
    assert run(capsys, "down", "lab")[1] == "taken down: lab\n"
    assert run(capsys, "down")[1] == "taken down: lab\ncleared away after a crash: old\n"
    assert json.loads(run(capsys, "down", "--json")[1]) == {"removed": ["lab"], "stale": ["old"]}
    assert manager.calls == [("down", None), ("down", "lab"), ("down", None), ("down", None)]


def test_status_without_root_shows_what_the_state_files_say(
    capsys: pytest.CaptureFixture[str], manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    manager.states = [FakeState("lab")]
    code, out, _ = run(capsys, "status")
    assert code == 0
    assert "lab" in out
    assert "23/24" not in out
