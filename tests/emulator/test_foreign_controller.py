from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.why import NOT_INSTALLED
from cli.why import command as why
from emulator.errors import ControllerChoiceError
from emulator.foreign_controller import ControllerKind, chosen_controller
from emulator.wire import RemoteError
from topologies.model import FabricKind, FabricSpec

EXAMPLE = Path(__file__).resolve().parents[2] / "docs/examples/first_controller.py"


def test_choices() -> None:
    assert chosen_controller(None).kind is ControllerKind.RAILBED
    assert not chosen_controller("railbed").foreign
    assert chosen_controller("none").kind is ControllerKind.NONE
    address = chosen_controller("10.0.0.1:6653")
    assert (address.kind, address.address) == (ControllerKind.ADDRESS, ("10.0.0.1", 6653))
    file = chosen_controller(os.path.relpath(EXAMPLE))
    assert (file.kind, file.text) == (ControllerKind.FILE, str(EXAMPLE))


@pytest.mark.parametrize("text", ["nobody", "host:", ":6653", "host:0", "host:x", "host:70000", "missing.py"])
def test_what_is_no_controller_is_refused(text: str) -> None:
    with pytest.raises(ControllerChoiceError) as error:
        chosen_controller(text)
    assert error.value.exit_code == 2


def test_the_example_is_short_enough_to_start_from() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 100


@pytest.mark.live
def test_a_students_application_runs_and_is_graded() -> None:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ovs-vswitchd") is None:
        pytest.skip("Open vSwitch is not installed")
    from emulator import manager

    name = f"guest{os.getpid() % 10000}"
    running = manager.up(FabricSpec(FabricKind.RAIL_ONLY, 2, 2), name=name, controller=str(EXAMPLE))
    try:
        status = running.status()
        assert status["controller_kind"] == "file"
        assert status["self_test"] == "12 of 12 ordered pairs reach each other"
        failed = running.fail("d0r0-rail0")
        assert (failed["expected_pairs"], failed["reached_pairs"]) == (12, 12)
        assert failed["traffic_back_s"] > 0
        path = running.path("d0r0", "d1r0")
        assert path["arrived"] == path["sent"]
        assert path["rules_end"] == ""
        told = CliRunner().invoke(why, ["d0r0", "d1r0", "--name", name])
        assert told.output.splitlines()[-1] == NOT_INSTALLED
        with pytest.raises(RemoteError, match=r"no switch 'd0r0'.*s0r0"):
            running.rules("d0r0")
    finally:
        manager.down(name)
