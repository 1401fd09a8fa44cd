"""Bills of materials: the published tables row by row, and what must hold for every fabric."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.economics.bill import Comparison, compare, less_at_ratio, less_at_share, price_ratio
from simulator.economics.clos import Shape, boxes, folded_clos
from simulator.economics.errors import BillError, PriceBookError
from simulator.economics.materials import Materials, materials_of
from simulator.economics.price_book import default_price_book
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec, LinkKind, SwitchKind

RAIL_ONLY, RAIL_OPTIMIZED, SPINE_LEAF, IDEAL = (
    FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED, FabricKind.SPINE_LEAF, FabricKind.IDEAL
)  # fmt: skip
SWITCH_KINDS = {SwitchKind.RAIL, SwitchKind.RAIL_LEAF, SwitchKind.RAIL_SPINE, SwitchKind.LEAF, SwitchKind.SPINE}

# N, radix, rail-optimized switches and transceivers, rail-only switches and transceivers; K = 256.
TABLE = [
    (32_768, 64, 2_560, 196_608, 1_536, 131_072),
    (32_768, 128, 1_280, 196_608, 256, 65_536),
    (32_768, 256, 384, 131_072, 128, 65_536),
    (65_536, 64, 5_120, 393_216, 3_072, 262_144),
    (65_536, 128, 2_560, 393_216, 1_536, 262_144),
    (65_536, 256, 1_280, 393_216, 256, 131_072),
]

examples = settings(derandomize=True, deadline=None, max_examples=150)
radixes = st.integers(4, 130)
endpoint_counts = st.integers(1, 20_000)
ratios_1_to_4 = st.fractions(1, 4, max_denominator=10)


def materials(kind: FabricKind, gpus: int, rails: int, radix: int, **others: Any) -> Materials:
    assert gpus % rails == 0
    return materials_of(FabricSpec(kind, gpus // rails, rails, switch_ports=radix, **others))


def pair(gpus: int, rails: int, radix: int, **others: Any) -> tuple[Materials, Materials]:
    return materials(RAIL_ONLY, gpus, rails, radix, **others), materials(RAIL_OPTIMIZED, gpus, rails, radix, **others)


@pytest.mark.parametrize("row", TABLE)
def test_every_row_of_the_reference_table(row: tuple[int, ...]) -> None:
    gpus, radix, *expected = row
    rail_only, rail_optimized = pair(gpus, 256, radix)
    counted = [rail_optimized.switches, rail_optimized.transceivers, rail_only.switches, rail_only.transceivers]
    assert counted == expected


@pytest.mark.parametrize(("radix", "fewer"), [(64, 0.0), (128, 0.4), (256, 0.0)])
def test_domains_of_eight_save_only_where_a_rail_needs_fewer_tiers(radix: int, fewer: float) -> None:
    rail_only, rail_optimized = pair(32_768, 8, radix)
    assert 1 - rail_only.switches / rail_optimized.switches == pytest.approx(fewer, abs=1e-12)
    assert (len(rail_only.tiers) < len(rail_optimized.tiers)) is (fewer > 0)


@pytest.mark.parametrize(("switch_share", "low", "high"), [(0.75, 38, 77), (0.61, 37, 75)])
def test_the_stated_shares_give_the_published_ranges(switch_share: float, low: int, high: int) -> None:
    savings = []
    for gpus, radix, *_ in TABLE:
        saved = less_at_share(*pair(gpus, 256, radix), switch_share)
        assert saved is not None
        savings.append(100 * saved)
    assert (round(min(savings)), round(max(savings))) == (low, high)


def test_the_built_in_price_book_gives_the_published_ranges() -> None:
    template = FabricSpec(RAIL_ONLY, 1, 1)
    comparisons = compare(
        [RAIL_ONLY], RAIL_OPTIMIZED, template, default_price_book(), (32_768, 65_536), (256,), (64, 128, 256)
    )

    def savings(what: str) -> list[int]:
        return sorted({round(100 * (1 - getattr(case.bills[0], what).total / getattr(case.baseline, what).total))
                       for case in comparisons})  # fmt: skip

    assert savings("cost") == [38, 62, 77]
    assert savings("power_w") == [37, 60, 75]
    three_tiers = [case.baseline for case in comparisons if len(case.baseline.materials.tiers) == 3]
    assert {round(bill.cost.switch_share, 9) for bill in three_tiers} == {0.75}
    assert {round(bill.power_w.switch_share, 2) for bill in three_tiers} == {0.61}


@examples
@given(endpoint_counts, radixes, ratios_1_to_4)
def test_every_cable_between_tiers_has_two_ends_and_no_switch_too_many_ports(
    endpoints: int, radix: int, oversubscription: Fraction
) -> None:
    tiers = folded_clos(endpoints, radix, oversubscription)
    down = [sum(shape.down_ports * count for shape, count in tier.items()) for tier in tiers]
    up = [sum(shape.up_ports * count for shape, count in tier.items()) for tier in tiers]
    assert down == [endpoints, *up[:-1]]
    assert up[-1] == 0
    assert all(0 < shape.ports <= radix and count > 0 for tier in tiers for shape, count in tier.items())
    for tier in tiers:
        used = sum(shape.ports * count for shape, count in tier.items())
        assert math.ceil(used / radix) <= boxes(tier, radix) <= sum(tier.values())


@examples
@given(endpoint_counts, radixes)
def test_a_non_blocking_network_has_the_fewest_tiers_and_as_many_ports_up_as_down(endpoints: int, radix: int) -> None:
    tiers = folded_clos(endpoints, radix)
    assert all(shape.up_ports in (0, shape.down_ports) for tier in tiers for shape in tier)
    assert all(shape.up_ports for shape in tiers[0]) or len(tiers) == 1
    most, needed = radix, 1
    while most < endpoints:
        most *= radix // 2
        needed += 1
    assert len(tiers) == needed


@examples
@given(st.integers(2, 64), st.integers(1, 4), st.data())
def test_where_leaves_are_full_each_tier_has_a_link_for_every_endpoint(
    half: int, tiers: int, data: st.DataObject
) -> None:
    radix, top_ports = 2 * half, data.draw(st.integers(3, 2 * half))
    endpoints = half ** (tiers - 1) * top_ports
    network = folded_clos(endpoints, radix)
    full = Shape(half, half)
    assert network == [
        *(Counter({full: endpoints // half}) for _ in range(tiers - 1)),
        Counter({Shape(top_ports, 0): half ** (tiers - 1)}),
    ]


@pytest.mark.parametrize("radix", [4, 8, 64])
@pytest.mark.parametrize("tiers", [1, 2, 3, 4])
def test_the_largest_fat_tree_of_each_height(radix: int, tiers: int) -> None:
    endpoints = radix * (radix // 2) ** (tiers - 1)
    network = folded_clos(endpoints, radix)
    assert len(network) == tiers
    assert sum(boxes(tier, radix) for tier in network) == (2 * tiers - 1) * endpoints // radix
    assert len(folded_clos(endpoints + 1, radix)) == tiers + 1


@examples
@given(st.integers(1, 300), st.integers(1, 80), radixes, st.sampled_from([1, 2]))
def test_parts_add_up(domains: int, rails: int, radix: int, uplinks: int) -> None:
    bills = [materials(kind, domains * rails, rails, radix, uplinks=uplinks) for kind in (RAIL_ONLY, RAIL_OPTIMIZED)]
    for bill in bills:
        assert bill.nic_links == uplinks * domains * rails
        assert bill.transceivers == 2 * bill.cables
        assert bill.ports_used == 2 * bill.cables - bill.nic_links
        assert bill.ports_used <= bill.ports == bill.switches * radix
        assert bill.port_rate_gbps == 400 / uplinks
    rail_only, any_to_any = bills
    assert len(rail_only.tiers) <= len(any_to_any.tiers)
    assert rail_only.cables <= any_to_any.cables
    spine_leaf = materials(SPINE_LEAF, domains * rails, rails, radix, uplinks=uplinks)
    assert spine_leaf.tiers == any_to_any.tiers
    if rails == 1:
        assert rail_only.tiers == any_to_any.tiers


@pytest.mark.parametrize(
    ("spec", "radix", "leaves", "spines"),
    [
        (FabricSpec(RAIL_ONLY, 8, 4, domains_per_leaf=8), 8, 4, 0),
        (FabricSpec(RAIL_ONLY, 16, 4, domains_per_leaf=4, spines=2, parallel_links=2), 8, 16, 8),
        (FabricSpec(RAIL_OPTIMIZED, 8, 4, domains_per_leaf=4, spines=4), 8, 8, 4),
        (FabricSpec(SPINE_LEAF, 8, 4, domains_per_leaf=1, spines=4), 8, 8, 4),
        (FabricSpec(RAIL_OPTIMIZED, 6, 2, domains_per_leaf=6, oversubscription=3.0, spines=2), 8, 2, 1),
    ],
)
def test_the_bill_is_that_of_the_fabric_as_built(spec: FabricSpec, radix: int, leaves: int, spines: int) -> None:
    fabric = build(spec)
    counted = materials_of(
        FabricSpec(spec.kind, spec.domains, spec.rails, switch_ports=radix, oversubscription=spec.oversubscription)
    )
    links = [link for link in fabric.links if link.kind in (LinkKind.NIC, LinkKind.FABRIC)]
    assert counted.cables == len(links)
    assert [tier.switches for tier in counted.tiers] == ([leaves, spines] if spines else [leaves])
    built = sum(switch.kind in SWITCH_KINDS for switch in fabric.switches)
    # The last fabric has two spines with few ports in use, which the bill puts into one box.
    assert counted.switches == built or (built - counted.switches == 1 and spines == 1)


def test_rails_that_leave_ports_free_share_a_switch() -> None:
    assert materials(RAIL_ONLY, 16, 4, 8).switches == 2
    assert materials(RAIL_ONLY, 20, 4, 8).switches == 4
    assert materials(RAIL_ONLY, 24, 8, 64).switches == 1


def test_dual_homing_doubles_the_network_at_half_the_rate() -> None:
    single, dual = (materials(RAIL_OPTIMIZED, 4_096, 8, 64, uplinks=uplinks) for uplinks in (1, 2))
    assert [tier.switches for tier in dual.tiers] == [2 * tier.switches for tier in single.tiers]
    assert (dual.cables, dual.port_rate_gbps) == (2 * single.cables, 200)


def test_oversubscription_thins_the_network_above_the_leaves() -> None:
    full, thin = (materials(RAIL_OPTIMIZED, 3_072, 8, 64, oversubscription=ratio) for ratio in (1.0, 3.0))
    assert [tier.links_up for tier in full.tiers] == [3_072, 3_072, 0]
    assert [tier.links_up for tier in thin.tiers] == [1_024, 0]
    assert thin.switches == 64 + 16


def test_the_ideal_fabric_has_no_network() -> None:
    ideal = materials(IDEAL, 1_024, 8, 64)
    assert (ideal.switches, ideal.cables, ideal.ports, ideal.tiers) == (0, 0, 0, ())


@examples
@given(st.floats(0.01, 100), st.sampled_from(TABLE))
def test_the_saving_lies_between_that_in_optics_and_that_in_switches(ratio: float, row: tuple[int, ...]) -> None:
    rail_only, rail_optimized = pair(row[0], 256, row[1])
    saved = less_at_ratio(rail_only, rail_optimized, ratio)
    assert saved is not None
    assert 1 - row[5] / row[3] <= saved <= 1 - row[4] / row[2]
    dearer = less_at_ratio(rail_only, rail_optimized, 2 * ratio)
    assert dearer is not None
    assert dearer > saved


def test_the_price_books_own_ratio_gives_the_books_own_saving() -> None:
    book = default_price_book()
    (case,) = compare([RAIL_ONLY], RAIL_OPTIMIZED, FabricSpec(RAIL_ONLY, 1, 1), book, [1_024], [8], [16])
    assert isinstance(case, Comparison)
    ratio = price_ratio(book.prices(400), 16)
    assert ratio == pytest.approx(3.6)
    saved = 1 - case.bills[0].cost.total / case.baseline.cost.total
    assert less_at_ratio(case.bills[0].materials, case.baseline.materials, ratio) == pytest.approx(saved, rel=1e-12)


def test_a_million_gpus_are_counted_at_once() -> None:
    assert len(materials(RAIL_OPTIMIZED, 10**9, 8, 64).tiers) == 6


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"domains": 0}, "domains is 0"),
        ({"rails": 0}, "rails is 0"),
        ({"rails": True}, "rails is True"),
        ({"switch_ports": None}, "switch_ports is None"),
        ({"switch_ports": 3}, "switch_ports is 3: too few for 64 endpoints"),
        ({"switch_ports": 8, "oversubscription": 0.1}, "at 0.1:1 oversubscription"),
        ({"oversubscription": 0.0}, "oversubscription is 0.0"),
        ({"oversubscription": math.inf}, "oversubscription is inf"),
        ({"nic_rate_mbps": -1.0}, "nic_rate_mbps is -1.0"),
        ({"uplinks": 3}, "uplinks is 3"),
        ({"spines": 4}, "spines is 4; a bill sizes the tiers itself"),
        ({"parallel_links": 2}, "parallel_links is 2"),
        ({"domains_per_leaf": 2}, "domains_per_leaf is 2"),
    ],
)
def test_what_cannot_be_built_is_refused(changes: dict[str, Any], named: str) -> None:
    values = {"kind": RAIL_OPTIMIZED, "domains": 16, "rails": 4, "switch_ports": 8, **changes}
    with pytest.raises(BillError, match=named):
        materials_of(FabricSpec(**values))


def test_gpus_that_make_no_whole_domain_and_a_rate_without_prices_are_refused() -> None:
    book = default_price_book()
    with pytest.raises(BillError, match="100 GPUs are no whole number of domains of 8 GPUs"):
        compare([RAIL_ONLY], RAIL_OPTIMIZED, FabricSpec(RAIL_ONLY, 1, 1), book, [100], [8], [64])
    odd = FabricSpec(RAIL_ONLY, 1, 1, nic_rate_mbps=1_000.0)
    with pytest.raises(PriceBookError, match=r"built-in price book: rates\.1: this key is missing"):
        compare([RAIL_ONLY], RAIL_OPTIMIZED, odd, book, [64], [8], [64])
