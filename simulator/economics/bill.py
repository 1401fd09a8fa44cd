"""Money and watts of a bill of materials, what it saves against another, and how far that hangs on the prices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from simulator.economics.errors import BillError
from simulator.economics.materials import Materials, materials_of
from simulator.economics.price_book import PriceBook, Prices
from topologies.model import FabricKind, FabricSpec


@dataclass(frozen=True)
class Sum:
    """A total by its parts, in the currency of the price book or in watts."""

    switches: float
    transceivers: float
    cables: float = 0.0

    @property
    def total(self) -> float:
        """The whole."""
        return self.switches + self.transceivers + self.cables

    @property
    def switch_share(self) -> float:
        """Share of the switches in the whole, 0 to 1; 0 where there is nothing to share."""
        return self.switches / self.total if self.total else 0.0


@dataclass(frozen=True)
class Bill:
    """A bill of materials with its cost (in the book's currency) and its power (in watts)."""

    materials: Materials
    cost: Sum
    power_w: Sum


def priced(materials: Materials, prices: Prices) -> Bill:
    """The bill at the given prices."""
    return Bill(
        materials,
        Sum(
            materials.switches * prices.switch_price(materials.radix),
            materials.transceivers * prices.transceiver_price.value,
            materials.cables * prices.cable_price.value,
        ),
        Sum(
            materials.switches * prices.switch_power_w(materials.radix),
            materials.transceivers * prices.transceiver_power_w.value,
        ),
    )


def less(value: float, baseline: float) -> float | None:
    """How much less ``value`` is than ``baseline``, as a share of it; None where the baseline is 0."""
    return 1 - value / baseline if baseline else None


@dataclass(frozen=True)
class Comparison:
    """The bills of several fabrics for the same GPUs and the same switches, and the one they are measured against."""

    gpus: int
    rails: int
    radix: int
    baseline: Bill
    bills: tuple[Bill, ...]


def compare(
    kinds: Sequence[FabricKind], baseline: FabricKind, template: FabricSpec, book: PriceBook,
    gpus: Iterable[int], rails: Iterable[int], radixes: Iterable[int],
) -> list[Comparison]:  # fmt: skip
    """The bills of all ``kinds`` for every combination of GPUs, GPUs a domain and switch ports.

    ``template`` gives the rest: rate and uplinks of the NICs, oversubscription. Raises BillError where the GPUs are no
    whole number of domains, and PriceBookError where the book lacks the rate.
    """
    comparisons = []
    for count, rail_count, radix in product(gpus, rails, radixes):
        if rail_count < 1 or count % rail_count:
            raise BillError(
                f"{count} GPUs are no whole number of domains of {rail_count} GPUs; choose a multiple of {rail_count}"
            )
        bills = {
            kind: _bill(template, kind, count // rail_count, rail_count, radix, book) for kind in {*kinds, baseline}
        }
        chosen = tuple(bills[kind] for kind in kinds)
        comparisons.append(Comparison(count, rail_count, radix, bills[baseline], chosen))
    return comparisons


def _bill(template: FabricSpec, kind: FabricKind, domains: int, rails: int, radix: int, book: PriceBook) -> Bill:
    spec = FabricSpec(
        kind=kind, domains=domains, rails=rails, switch_ports=radix, nic_rate_mbps=template.nic_rate_mbps,
        nvlink_rate_mbps=template.nvlink_rate_mbps, uplinks=template.uplinks,
        oversubscription=template.oversubscription,
    )  # fmt: skip
    materials = materials_of(spec)
    return priced(materials, book.prices(materials.port_rate_gbps))


def price_ratio(prices: Prices, radix: int) -> float | None:
    """Price of a switch port over that of a transceiver with its half of a cable; None where the latter are free."""
    link_end = prices.transceiver_price.value + prices.cable_price.value / 2
    return prices.switch_price(radix) / radix / link_end if link_end else None


def can_differ(bill: Bill, baseline: Bill) -> bool:
    """Whether two fabrics of the same GPUs can differ in their bills, as rail-only does from the any-to-any ones.

    Rail-optimized and spine-leaf never differ from each other, and the ideal fabric has no bill.
    """
    kind, other = bill.materials.spec.kind, baseline.materials.spec.kind
    return FabricKind.IDEAL not in (kind, other) and (kind is FabricKind.RAIL_ONLY) != (other is FabricKind.RAIL_ONLY)


def less_at_ratio(materials: Materials, baseline: Materials, ratio: float) -> float | None:
    """Share by which a bill is below the baseline's when a switch port costs ``ratio`` transceivers.

    A transceiver counts with its half of a cable. None where the baseline has no network.
    """
    return less(_in_transceivers(materials, ratio), _in_transceivers(baseline, ratio))


def switch_share_at_ratio(materials: Materials, ratio: float) -> float:
    """Share of the switches in a bill when a switch port costs ``ratio`` transceivers."""
    total = _in_transceivers(materials, ratio)
    return ratio * materials.ports / total if total else 0.0


def less_at_share(materials: Materials, baseline: Materials, switch_share: float) -> float | None:
    """Share by which a bill is below the baseline's when switches make up ``switch_share`` of the baseline's.

    The rest are transceivers (with their cables): the saving is the mean of both savings, weighted by their shares.
    """
    switches = less(materials.switches, baseline.switches)
    transceivers = less(materials.transceivers, baseline.transceivers)
    if switches is None or transceivers is None:
        return None
    return switch_share * switches + (1 - switch_share) * transceivers


def _in_transceivers(materials: Materials, ratio: float) -> float:
    return ratio * materials.ports + materials.transceivers
