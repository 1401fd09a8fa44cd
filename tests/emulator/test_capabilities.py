import os
from pathlib import Path

import pytest

from emulator.asking import Answer
from emulator.capabilities import probe, probed
from topologies.capabilities import Capability


def answering(qdiscs: Answer, failover: Answer):
    """Programs that answer so to what is tried on devices and on an Open vSwitch."""
    return lambda command: failover if "ovs-vswitchd" in command[-1] else qdiscs


@pytest.fixture
def controls(tmp_path: Path) -> Path:
    path = tmp_path / "available"
    path.write_text("reno cubic dctcp\n")
    return path


def test_everything_is_there(controls: Path) -> None:
    ask = answering(Answer(0, "shaping\ndelay\njitter\nloss"), Answer(0, " group_id=1,type=ff,bucket=..."))
    assert probed(ask, True, controls) == {*(one.value for one in Capability), "tcp-reno", "tcp-cubic", "tcp-dctcp"}


def test_nothing_is_there(tmp_path: Path) -> None:
    ask = answering(Answer(3, "Operation not permitted"), Answer(127, "unshare is not installed"))
    assert probed(ask, False, tmp_path / "none") == frozenset()


def test_a_kernel_without_netem_has_the_rest(controls: Path) -> None:
    ask = answering(Answer(0, "shaping"), Answer(0, "type=ff"))
    held = probed(ask, False, controls)
    assert {"shaping", "fast-failover", "tcp-cubic"} < held
    assert not held & {"delay", "jitter", "loss", "kernel-datapath"}


def test_an_open_vswitch_that_drops_the_group_has_no_fast_failover(controls: Path) -> None:
    assert "fast-failover" not in probed(answering(Answer(0, ""), Answer(0, "OFPST_GROUP_DESC reply")), True, controls)


@pytest.mark.live
@pytest.mark.skipif(os.geteuid() != 0, reason="live tests need root")
def test_this_machine_has_what_its_fabrics_use() -> None:
    assert {"shaping", "fast-failover", "tcp-cubic"} <= probe()
