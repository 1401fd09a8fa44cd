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

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from simulator.economics.errors import PriceBookError
from topologies.near import did_you_mean

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
class Figure:
    """One price or one power, and where it is from."""

    value: float
    source: str


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
    try:
        return parse_price_book(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise PriceBookError(f"{path}: the price book cannot be read: {error.strerror}; check the path") from None
    except UnicodeDecodeError:
        raise PriceBookError(f"{path}: this is no text in UTF-8; a price book is a YAML file") from None


def parse_price_book(text: str, name: str) -> PriceBook:
    """The price book in a YAML text; ``name`` is what errors call it."""
    try:
        data = yaml.load(text, _UniqueKeys)  # a subclass of the safe loader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or " ".join(str(error).split())
        raise PriceBookError(f"{name}: this is no YAML{where}: {what}; correct it") from None
    except (RecursionError, ValueError) as error:
        raise PriceBookError(f"{name}: this is no YAML: {' '.join(str(error).split())}; correct it") from None
    reader = _Reader(name)
    top = reader.section(data, "", ("currency", "rates"))
    currency = top["currency"]
    if not isinstance(currency, str) or not currency.strip():
        raise reader.wrong("currency", "the name of a currency like 'USD'", currency)
    rates = reader.by_number(top["rates"], "rates", "the rate of a port in Gbit/s")
    return PriceBook(name, currency.strip(), {rate: _prices(reader, value, f"rates.{rate:g}") for rate, value in rates})


def _prices(reader: _Reader, data: object, key: str) -> Prices:
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


class _Reader:
    """Checks the parts of a book; every error names the file, the key and what was expected there."""

    def __init__(self, name: str) -> None:
        self.name = name

    def wrong(self, key: str, expected: str, found: object) -> PriceBookError:
        shown = " ".join(repr(found).split())
        where = f"{self.name}: {key}" if key else self.name
        return PriceBookError(
            f"{where}: expected {expected}, found {shown if len(shown) <= 60 else shown[:57] + '...'}"
        )

    def section(self, data: object, key: str, needed: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Any]:
        """A mapping with all keys of ``needed`` and no others than those of ``optional``."""
        needed, optional = tuple(needed), tuple(optional)
        if not isinstance(data, dict):
            raise self.wrong(key, f"the keys {', '.join(needed)}", data)
        prefix = f"{key}." if key else ""
        for name in data:
            if name not in (*needed, *optional):
                known = (*needed, *optional)
                hint = did_you_mean(name, known).rstrip("? ") or f"the keys here are {', '.join(known)}"
                raise PriceBookError(f"{self.name}: {prefix}{name}: this key is unknown; {hint}")
        for name in needed:
            if name not in data:
                what = FIGURES.get(name) or _SWITCH_FIGURES.get(name)
                expected = f"; expected {what}" if what else ""
                raise PriceBookError(f"{self.name}: {prefix}{name}: this key is missing{expected}")
        return data

    def by_number(self, data: object, key: str, what: str) -> list[tuple[float, Any]]:
        """The entries of a mapping whose keys are numbers above 0; there is at least one."""
        if not isinstance(data, dict) or not data:
            raise self.wrong(key, f"entries whose key is {what}", data)
        for number in data:
            if not _is_number(number) or number <= 0:
                raise self.wrong(f"{key}.{number}", f"{what}, above 0, as the key", number)
        return list(data.items())

    def figure(self, data: Any, key: str, what: str) -> Figure:
        """A number of at least 0, bare or with its source."""
        source = f"given in {self.name}"
        if isinstance(data, dict):
            section = self.section(data, key, ("value",), ("source",))
            data, key = section["value"], f"{key}.value"
            if "source" in section:
                source = section["source"]
                if not isinstance(source, str) or not source.strip():
                    raise self.wrong(
                        f"{key.removesuffix('.value')}.source", "a text that says where it is from", source
                    )
        if not _is_number(data) or data < 0:
            raise self.wrong(key, f"a number of at least 0 ({what})", data)
        return Figure(float(data), source.strip())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


class _UniqueKeys(yaml.SafeLoader):
    """The safe loader, which also refuses a key that occurs twice: the first value would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                key = self.construct_object(key_node)
                if key in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key '{key}' occurs twice", problem_mark=key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)
