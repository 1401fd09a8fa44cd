import pytest

from emulator.errors import FabricNameError, NameTooLongError
from emulator.names import check_names, interface_name, link_interfaces
from emulator.rundir import MAX_NAME_LENGTH, NAMESPACE_PREFIX, check_name
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec


def test_interfaces_are_named_after_switch_and_port():
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    assert link_interfaces(fabric.link("d3r1-rail1")) == ("s3r1-eth2", "rail1-eth4")
    check_names(fabric)


def test_a_name_that_the_kernel_would_cut_is_refused():
    with pytest.raises(NameTooLongError, match="17 characters, the kernel takes 15"):
        interface_name("s12345r255", 512)


@pytest.mark.parametrize("name", ["a", "class-1", "0", "x" * MAX_NAME_LENGTH])
def test_usable_fabric_names(name):
    check_name(name)
    assert len(NAMESPACE_PREFIX + name) <= 15


@pytest.mark.parametrize("name", ["", "-a", "A", "a b", "../x", "a/b", "ä", "a_b", "x\n", "x" * (MAX_NAME_LENGTH + 1)])
def test_other_fabric_names_are_refused(name):
    with pytest.raises(FabricNameError):
        check_name(name)
