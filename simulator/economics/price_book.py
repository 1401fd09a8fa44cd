"""The price book: what a switch port, a transceiver and a cable cost and draw, by rate; a YAML file a user can edit.

currency: USD
rates:
  400:                          # Gbit/s of a port
    switch_port_price: 900      # a number, or ...
    switch_port_power_w: {value: 17, source: "data sheet of ..."}   # ... with where it is from
    transceiver_price: 230
    transceiver_power_w: 9
    cable_price: 40
    switches:                   # optional: the price of a whole switch, by its number of ports
      64: {price: 57600, power_w: 1088}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from simulator.economics.errors import PriceBookError
from simulator.economics.reading import Figure, Reader, read_text, read_yaml

BUILT_IN = "the built-in price book"
FIGURES = {
    "switch_port_price": "the price of a switch for each of its ports",
    "switch_port_power_w": "the watts of a switch for each of its ports",
    "transceiver_price": "the price of one transceiver",
    "transceiver_power_w": "the watts of one transceiver",
    "cable_price": "the price of one cable without its transceivers",
}
_SWITCH_FIGURES = {"price": "the price of the whole switch", "power_w": "the watts of the whole switch"}


@dataclass(frozen=True)
class SwitchPrice:
    """Price and watts of a whole switch without transceivers."""

    price: Figure
    power_w: Figure


@dataclass(frozen=True)
class Prices:
    """The figures for ports of one rate. ``switches`` has the switches priced as a whole, by number of ports."""

    switch_port_price: Figure
    switch_port_power_w: Figure
    transceiver_price: Figure
    transceiver_power_w: Figure
    cable_price: Figure
    switches: Mapping[int, SwitchPrice]

    def switch_price(self, radix: int) -> float:
        """Price of one switch of ``radix`` ports: its own where the book has it, else by the port."""
        own = self.switches.get(radix)
        return own.price.value if own else self.switch_port_price.value * radix

    def switch_power_w(self, radix: int) -> float:
        """Watts of one switch of ``radix`` ports without transceivers, found in the same way."""
        own = self.switches.get(radix)
        return own.power_w.value if own else self.switch_port_power_w.value * radix


@dataclass(frozen=True)
class PriceBook:
    """All figures of one file: prices in ``currency`` by the rate of the ports in Gbit/s."""

    name: str
    currency: str
    rates: Mapping[float, Prices]

    def prices(self, rate_gbps: float) -> Prices:
        """The figures for ports of that rate; raises PriceBookError naming the key to add."""
        try:
            return self.rates[rate_gbps]
        except KeyError:
            known = ", ".join(f"{rate:g}" for rate in sorted(self.rates))
            raise PriceBookError(
                f"{self.name}: rates.{rate_gbps:g}: this key is missing; expected the figures for ports of "
                f"{rate_gbps:g} Gbit/s (the book has {known})"
            ) from None


def default_text() -> str:
    """The text of the built-in price book, to be saved and edited."""
    return files(__package__).joinpath("default_prices.yaml").read_text(encoding="utf-8")


def default_price_book() -> PriceBook:
    """The price book that is used when none is given; its file says of each figure where it is from."""
    return parse_price_book(default_text(), BUILT_IN)


def load_price_book(path: Path) -> PriceBook:
    """The price book in a YAML file; raises PriceBookError for a file that is missing, not readable or wrong."""
    return parse_price_book(read_text(path, "price book", PriceBookError), str(path))


def parse_price_book(text: str, name: str) -> PriceBook:
    """The price book in a YAML text; ``name`` is what errors call it."""
    reader = Reader(name, PriceBookError, {**FIGURES, **_SWITCH_FIGURES})
    top = reader.section(read_yaml(text, name, PriceBookError), "", ("currency", "rates"))
    currency = top["currency"]
    if not isinstance(currency, str) or not currency.strip():
        raise reader.wrong("currency", "the name of a currency like 'USD'", currency)
    rates = reader.by_number(top["rates"], "rates", "the rate of a port in Gbit/s")
    return PriceBook(name, currency.strip(), {rate: _prices(reader, value, f"rates.{rate:g}") for rate, value in rates})


def _prices(reader: Reader, data: object, key: str) -> Prices:
    section = reader.section(data, key, FIGURES, optional=("switches",))
    figures = {name: reader.figure(section[name], f"{key}.{name}", what) for name, what in FIGURES.items()}
    switches = {}
    if "switches" in section:
        for ports, value in reader.by_number(section["switches"], f"{key}.switches", "a number of ports"):
            where = f"{key}.switches.{ports:g}"
            own = reader.section(value, where, _SWITCH_FIGURES)
            if ports != int(ports):
                raise reader.wrong(where, "a whole number of ports as the key", ports)
            switches[int(ports)] = SwitchPrice(
                **{name: reader.figure(own[name], f"{where}.{name}", what) for name, what in _SWITCH_FIGURES.items()}
            )
    return Prices(**figures, switches=switches)
