"""Price books: what is read, and how every mistake in one is reported."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from simulator.economics.bill import priced
from simulator.economics.errors import PriceBookError
from simulator.economics.materials import materials_of
from simulator.economics.price_book import (
    FIGURES,
    default_price_book,
    default_text,
    load_price_book,
    parse_price_book,
)
from topologies.model import FabricKind, FabricSpec
from topologies.presets import PRESETS

RATE = """\
    switch_port_price: 100
    switch_port_power_w: 10
    transceiver_price: {value: 50, source: an offer}
    transceiver_power_w: 5
    cable_price: 2
"""
BOOK = f"currency: EUR\nrates:\n  400:\n{RATE}"


def test_bare_figures_and_figures_with_a_source() -> None:
    prices = parse_price_book(BOOK, "mine.yaml").prices(400.0)
    assert (prices.transceiver_price.value, prices.transceiver_price.source) == (50, "an offer")
    assert (prices.cable_price.value, prices.cable_price.source) == (2, "given in mine.yaml")


def test_a_bill_by_hand() -> None:
    materials = materials_of(FabricSpec(FabricKind.RAIL_OPTIMIZED, 8, 4, switch_ports=8))
    bill = priced(materials, parse_price_book(BOOK, "mine.yaml").prices(400))
    # 8 leaves and 4 spines of 8 ports, 64 links.
    assert (bill.cost.switches, bill.cost.transceivers, bill.cost.cables) == (12 * 8 * 100, 128 * 50, 64 * 2)
    assert bill.cost.total == 9_600 + 6_400 + 128
    assert (bill.power_w.switches, bill.power_w.transceivers, bill.power_w.cables) == (960, 640, 0)
    assert bill.power_w.switch_share == 0.6


def test_a_switch_priced_as_a_whole_goes_before_the_price_by_the_port() -> None:
    prices = parse_price_book(f"{BOOK}    switches:\n      8: {{price: 700, power_w: 60}}\n", "mine.yaml").prices(400)
    assert (prices.switch_price(8), prices.switch_power_w(8)) == (700, 60)
    assert (prices.switch_price(16), prices.switch_power_w(16)) == (1_600, 160)


def test_the_built_in_book_has_a_source_for_every_figure_and_every_presets_rate() -> None:
    book = default_price_book()
    for hardware in PRESETS.values():
        for uplinks in (1, 2):
            prices = book.prices(hardware.nic_rate_mbps / uplinks / 1000)
            for name in FIGURES:
                figure = getattr(prices, name)
                assert figure.value > 0
                assert figure.source.startswith(("assumed: ", "NVIDIA ")), figure


def test_the_built_in_book_can_be_saved_edited_and_read(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(default_text().replace("value: 900", "value: 450"))
    changed, built_in = load_price_book(path).prices(400), default_price_book().prices(400)
    assert changed.switch_port_price.value == 450
    assert changed.transceiver_price == built_in.transceiver_price


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("currency: EUR\n", "", "mine.yaml: currency: this key is missing"),
        ("currency: EUR", "currency: 7", "mine.yaml: currency: expected the name of a currency like 'USD', found 7"),
        ("currency: EUR", "curency: EUR", "mine.yaml: curency: this key is unknown; did you mean 'currency'"),
        ("  400:", "  fast:", "mine.yaml: rates.fast: expected the rate of a port in Gbit/s, above 0, as the key"),
        ("  400:", "  -1:", "mine.yaml: rates.-1: expected the rate of a port in Gbit/s, above 0"),
        (
            "switch_port_price: 100", "switch_port_price: -3",
            "mine.yaml: rates.400.switch_port_price: expected a number of at least 0 (the price of a switch for each",
        ),
        ("switch_port_price: 100", "switch_port_price: cheap", "expected a number of at least 0"),
        ("switch_port_price: 100", "switch_port_price: true", "found True"),
        ("switch_port_price: 100", "switch_port_price: .inf", "found inf"),
        ("switch_port_price: 100", "switch_port_price:", "found None"),
        ("value: 50", "value: [1]", "mine.yaml: rates.400.transceiver_price.value: expected a number"),
        ("value: 50, ", "", "mine.yaml: rates.400.transceiver_price.value: this key is missing"),
        ("source: an offer", "source: 3", "mine.yaml: rates.400.transceiver_price.source: expected a text"),
        ("source: an", "sauce: an", "mine.yaml: rates.400.transceiver_price.sauce: this key is unknown; did you mean"),
        ("    cable_price: 2\n", "", "rates.400.cable_price: this key is missing; expected the price of one cable"),
        ("cable_price: 2", "cable_price: 2\n    cable_price: 3", "at line 9: the key 'cable_price' occurs twice"),
        ("cable_price: 2", "cable_price: 2\n    switches: 3", "rates.400.switches: expected entries whose key is"),
        (
            "cable_price: 2", "cable_price: 2\n    switches: {8.5: {price: 1, power_w: 1}}",
            "rates.400.switches.8.5: expected a whole number of ports",
        ),
        (
            "cable_price: 2", "cable_price: 2\n    switches: {8: {price: 1}}",
            "rates.400.switches.8.power_w: this key is missing; expected the watts of the whole switch",
        ),
        (BOOK, "", "mine.yaml: expected the keys currency, rates, found None"),
        (BOOK, "- 1\n", "mine.yaml: expected the keys currency, rates, found [1]"),
        (BOOK, "a: [", "mine.yaml: this is no YAML at line"),
        (BOOK, "currency: EUR\nrates: {}\n", "mine.yaml: rates: expected entries whose key is the rate of a port"),
        (BOOK, "currency: EUR\nrates: {? [1] : 2}\n", "mine.yaml: "),
        (BOOK, "\x00", "mine.yaml: this is no YAML"),
        (BOOK, "[" * 5_000, "mine.yaml: this is no YAML"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_by_file_key_and_what_was_expected(old: str, new: str, message: str) -> None:
    assert old in BOOK
    with pytest.raises(PriceBookError) as caught:
        parse_price_book(BOOK.replace(old, new), "mine.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PriceBookError, match="No such file or directory; check the path"):
        load_price_book(tmp_path / "none.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PriceBookError, match="no text in UTF-8"):
        load_price_book(binary)


def test_the_built_in_book_is_plain_yaml() -> None:
    assert set(yaml.safe_load(default_text())) == {"currency", "rates"}
