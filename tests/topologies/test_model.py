import pytest

from topologies.addresses import MAX_DOMAINS, check_addressable, ipv4, mac, parse_ipv4
from topologies.builders import build
from topologies.errors import FabricError, UnknownElementError, UnknownPresetError
from topologies.model import FabricKind, FabricSpec, Failures, Gpu, fabric_kind, parse_gpu_id
from topologies.presets import preset


@pytest.fixture(scope="module")
def fabric():
    return build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))


def test_an_unknown_link_is_refused_with_the_nearest_name(fabric):
    with pytest.raises(UnknownElementError, match="no link 'd3r1-rail7': did you mean 'd3r1-rail1'"):
        fabric.link("d3r1-rail7")


def test_an_unknown_gpu_or_node_is_refused(fabric):
    with pytest.raises(UnknownElementError, match="no GPU 'd9r9'"):
        fabric.gpu("d9r9")
    with pytest.raises(UnknownElementError, match="no node 'spine0'"):
        fabric.links_of("spine0")
    with pytest.raises(UnknownElementError, match="no switch 'd0r0': did you mean 's0r0'"):
        fabric.switch("d0r0")


def test_a_rank_outside_is_refused(fabric):
    assert fabric.gpu_of_rank(7) == Gpu(1, 3)
    with pytest.raises(FabricError, match="rank 16 does not exist"):
        fabric.gpu_of_rank(16)


def test_a_node_failure_takes_all_its_links(fabric):
    assert fabric.links_down(Failures(nodes=frozenset({"d1r2"}))) == {"d1r2-rail2", "d1r2-nv1", "d1r2-s1r2"}
    assert len(fabric.links_down(Failures(nodes=frozenset({"rail0"})))) == 4
    assert not Failures()
    with pytest.raises(UnknownElementError):
        fabric.links_down(Failures(links=frozenset({"nowhere"})))


@pytest.mark.parametrize("text", ["d3r1x", "r1d3", "", "d3", "D3R1"])
def test_gpu_names_are_checked(text):
    with pytest.raises(UnknownElementError):
        parse_gpu_id(text)


def test_gpu_names_are_read():
    assert parse_gpu_id("d12r3") == Gpu(12, 3)


def test_unknown_kinds_presets_and_keys_name_the_known_ones():
    with pytest.raises(FabricError, match="did you mean 'rail-only'"):
        fabric_kind("rail-onyl")
    with pytest.raises(UnknownPresetError, match="did you mean 'dgx-h100'"):
        preset("dgx-h10")
    with pytest.raises(FabricError, match="unknown fabric key 'domain'"):
        FabricSpec.from_dict({"kind": "rail-only", "domain": 4, "rails": 4})
    with pytest.raises(FabricError, match="needs the keys"):
        FabricSpec.from_dict({"kind": "rail-only", "rails": 4})


@pytest.mark.parametrize("domain", [0, 1, 254, 255, 256, 65_534])
@pytest.mark.parametrize("rail", [0, 1, 255])
def test_addresses_are_reversible_and_share_their_bytes(domain, rail):
    address = ipv4(domain, rail)
    assert parse_ipv4(address) == (domain, rail)
    numbers = [int(part) for part in address.split(".")]
    octets = [int(part, 16) for part in mac(domain, rail).split(":")]
    assert octets[:2] == [0x02, 0x72]
    assert octets[2:4] == numbers[1:3]
    assert octets[5] == numbers[3]


@pytest.mark.parametrize("text", ["10.0.0.1", "11.0.1.1", "10.0.1", "10.0.1.256", "ten"])
def test_foreign_addresses_are_refused(text):
    with pytest.raises(FabricError):
        parse_ipv4(text)


def test_the_address_plan_has_limits():
    check_addressable(MAX_DOMAINS, 256)
    with pytest.raises(FabricError, match="257 GPUs per domain"):
        check_addressable(1, 257)
    with pytest.raises(FabricError, match="limit is 65535"):
        check_addressable(65_536, 1)
