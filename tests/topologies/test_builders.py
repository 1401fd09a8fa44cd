import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.builders import build, preset_spec
from topologies.errors import FabricError
from topologies.model import (
    NIC_PORT,
    NVLINK_PORT,
    SECOND_NIC_PORT,
    Fabric,
    FabricKind,
    FabricSpec,
    LinkKind,
    SwitchKind,
)

SPECS = st.builds(
    FabricSpec,
    kind=st.sampled_from(FabricKind),
    domains=st.integers(1, 9),
    rails=st.integers(1, 9),
    parallel_links=st.integers(1, 3),
    oversubscription=st.sampled_from([1.0, 2.0, 4.0]),
    uplinks=st.sampled_from([1, 2]),
    domains_per_leaf=st.one_of(st.none(), st.integers(1, 9)),
)


def links_of_kind(fabric: Fabric, kind: LinkKind) -> list:
    return [link for link in fabric.links if link.kind is kind]


@settings(max_examples=200, derandomize=True, deadline=None)
@given(SPECS)
def test_every_fabric_is_consistent(spec):
    fabric = build(spec)
    gpus = spec.domains * spec.rails
    assert len(fabric.gpus) == gpus
    assert [fabric.rank(gpu) for gpu in fabric.gpus] == list(range(gpus))
    assert len({switch.id for switch in fabric.switches}) == len(fabric.switches)
    assert sorted(switch.dpid for switch in fabric.switches) == list(range(1, len(fabric.switches) + 1))
    assert len(fabric.link_by_id) == len(fabric.links)
    ends = Counter(end for link in fabric.links for end in ((link.a, link.a_port), (link.b, link.b_port)))
    assert max(ends.values()) == 1, "a port holds one link"
    for switch in fabric.switches:
        ports = sorted(link.port(switch.id) for link in fabric.links_of(switch.id))
        assert ports[0] >= 1
        if switch.kind is not SwitchKind.GPU:
            assert ports == list(range(1, len(ports) + 1))
    assert build(fabric.spec).links == fabric.links, "the normalised spec builds the same fabric"
    assert FabricSpec.from_dict(fabric.spec.to_dict()) == fabric.spec


@settings(max_examples=100, derandomize=True, deadline=None)
@given(SPECS)
def test_capacity_up_from_the_leaves_is_what_oversubscription_says(spec):
    fabric = build(spec)
    for switch in fabric.switches:
        if switch.kind not in (SwitchKind.LEAF, SwitchKind.RAIL_LEAF):
            continue
        links = fabric.links_of(switch.id)
        up_mbps = sum(link.rate_mbps for link in links if link.kind is LinkKind.FABRIC)
        if up_mbps:
            nics = fabric.spec.domains_per_leaf * (spec.rails if spec.kind is FabricKind.SPINE_LEAF else 1)
            down_mbps = nics * spec.nic_rate_mbps / spec.uplinks
            assert up_mbps == pytest.approx(down_mbps / spec.oversubscription)


def test_rail_only_joins_rail_switches_to_nothing_else():
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    assert len(fabric.switches) == 16 + 4 + 4
    assert not links_of_kind(fabric, LinkKind.FABRIC)
    for link in links_of_kind(fabric, LinkKind.NIC):
        assert fabric.switch_by_id[link.a].rail == fabric.switch_by_id[link.b].rail
    assert fabric.link("d3r1-rail1").a_port == NIC_PORT
    assert fabric.link("d3r1-nv3").a_port == NVLINK_PORT
    assert fabric.link("d3r1-nv3").b_port == 2


def test_a_rail_with_more_domains_than_ports_becomes_its_own_clos():
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 8, 2, switch_ports=4))
    assert {switch.id for switch in fabric.switches if switch.kind is SwitchKind.RAIL_LEAF} == {
        f"rail{rail}l{unit}" for rail in range(2) for unit in range(4)
    }
    for link in links_of_kind(fabric, LinkKind.FABRIC):
        assert fabric.switch_by_id[link.a].rail == fabric.switch_by_id[link.b].rail, "rails stay disjoint"
    for switch in fabric.switches:
        if switch.kind in (SwitchKind.RAIL_LEAF, SwitchKind.RAIL_SPINE):
            assert len(fabric.links_of(switch.id)) <= 4


def test_a_rail_that_fits_its_switch_stays_one_switch():
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 8, 2, switch_ports=8))
    assert [switch.id for switch in fabric.switches if switch.kind is SwitchKind.RAIL] == ["rail0", "rail1"]


def test_rail_optimized_has_rails_as_leaves_and_spines_above():
    fabric = build(FabricSpec(FabricKind.RAIL_OPTIMIZED, 4, 4))
    assert fabric.link("d2r3-leaf3")
    assert fabric.spec.spines == 4
    assert len(links_of_kind(fabric, LinkKind.FABRIC)) == 16
    assert {link.rate_mbps for link in links_of_kind(fabric, LinkKind.FABRIC)} == {400_000.0}


def test_spine_leaf_by_server_puts_a_domain_on_one_leaf():
    fabric = build(FabricSpec(FabricKind.SPINE_LEAF, 4, 4))
    for link in links_of_kind(fabric, LinkKind.NIC):
        assert fabric.switch_by_id[link.b].unit == fabric.switch_by_id[link.a].domain


def test_ideal_is_one_domain_of_all_gpus():
    fabric = build(FabricSpec(FabricKind.IDEAL, 4, 4))
    assert fabric.spec.domains == 1
    assert fabric.spec.rails == 16
    assert not links_of_kind(fabric, LinkKind.NIC)


def test_parallel_links_have_ids_of_their_own():
    fabric = build(FabricSpec(FabricKind.RAIL_OPTIMIZED, 4, 4, spines=2, parallel_links=2))
    assert fabric.link("leaf0-spine1#2").rate_mbps == fabric.link("leaf0-spine1").rate_mbps == 400_000.0


def test_dual_homed_nics_reach_two_switches_that_are_not_joined():
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4, uplinks=2))
    first, second = fabric.link("d1r2-rail2"), fabric.link("d1r2-rail2p1")
    assert (first.a_port, second.a_port) == (NIC_PORT, SECOND_NIC_PORT)
    assert first.rate_mbps == second.rate_mbps == 200_000.0
    assert not links_of_kind(fabric, LinkKind.FABRIC)


@pytest.mark.parametrize(
    ("name", "gpus_per_domain", "ratio"),
    [("DGX A100", 8, 12), ("dgx_h100", 8, 9), ("gh200-nvl256", 256, 9), ("GB200 NVL72", 72, 18)],
)
def test_presets_keep_the_data_sheets_ratios(name, gpus_per_domain, ratio):
    spec = preset_spec(name, FabricKind.RAIL_ONLY, 2)
    assert spec.rails == gpus_per_domain
    assert math.isclose(spec.nvlink_rate_mbps / spec.nic_rate_mbps, ratio)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"domains": 0}, "domains is 0"),
        ({"rails": 0}, "rails is 0"),
        ({"domains": True}, "domains is True"),
        ({"domains": 2.5}, "domains is 2.5"),
        ({"nic_rate_mbps": 0}, "nic_rate_mbps is 0"),
        ({"nic_rate_mbps": math.nan}, "nic_rate_mbps is nan"),
        ({"nvlink_rate_mbps": -1}, "nvlink_rate_mbps is -1"),
        ({"nvlink_rate_mbps": "fast"}, "nvlink_rate_mbps is 'fast'"),
        ({"oversubscription": 0}, "oversubscription is 0"),
        ({"uplinks": 3}, "uplinks is 3"),
        ({"parallel_links": 0}, "parallel_links is 0"),
        ({"spines": 0, "kind": FabricKind.RAIL_OPTIMIZED}, "spines is 0"),
        ({"spines": 2}, "only one switch to join"),
        ({"switch_ports": 1}, "switch_ports is 1"),
        ({"switch_ports": 4, "domains": 64}, "third tier"),
        ({"switch_ports": 4, "kind": FabricKind.SPINE_LEAF, "rails": 8}, "larger switches"),
        ({"switch_ports": 8, "domains_per_leaf": 8, "kind": FabricKind.RAIL_OPTIMIZED, "domains": 8}, "ports down"),
    ],
)
def test_impossible_values_are_refused_in_one_sentence(values, words):
    with pytest.raises(FabricError) as caught:
        build(FabricSpec(**{"kind": FabricKind.RAIL_ONLY, "domains": 4, "rails": 4, **values}))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
