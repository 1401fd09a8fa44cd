import pytest

from emulator.openvswitch import MOST_INSTANCES, deal_out, instances_for
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec, SwitchKind


@pytest.mark.parametrize("kind", list(FabricKind))
@pytest.mark.parametrize("instances", [1, 2, 3, 4])
def test_switches_of_every_kind_are_dealt_out_evenly_and_once(kind, instances):
    fabric = build(FabricSpec(kind, 4, 4))
    parts = deal_out(fabric.switches, instances)
    assert sorted(switch.id for part in parts for switch in part) == sorted(switch.id for switch in fabric.switches)
    for switch_kind in SwitchKind:
        counts = [sum(switch.kind is switch_kind for switch in part) for part in parts]
        assert max(counts) - min(counts) <= 1


def test_the_kernel_datapath_needs_one_process(monkeypatch):
    assert instances_for(kernel_datapath=True) == 1
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert instances_for(kernel_datapath=False) == MOST_INSTANCES
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert instances_for(kernel_datapath=False) == 1
