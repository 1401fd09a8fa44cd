"""The bill of materials of a fabric's network: switches by tier, ports, transceivers and cables, as exact integers.

Counted is the network of the NICs: rail, leaf and spine switches, and the links from the NICs upwards, each a cable
with a transceiver at both ends. NVLink is the same on every fabric of one domain size and is not counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from simulator.economics.clos import Tier, add_tiers, boxes, folded_clos
from simulator.economics.errors import BillError
from topologies.model import FabricKind, FabricSpec

TRANSCEIVERS_PER_LINK = 2


@dataclass(frozen=True)
class TierMaterials:
    """One tier of switches, and the links from it to the next tier."""

    switches: int
    ports_used: int
    links_up: int


@dataclass(frozen=True)
class Materials:
    """What the network of a fabric consists of. ``tiers`` begins at the NICs; it is empty on the ideal fabric."""

    spec: FabricSpec
    radix: int
    tiers: tuple[TierMaterials, ...]
    nic_links: int

    @property
    def gpus(self) -> int:
        """GPUs that the network joins."""
        return self.spec.domains * self.spec.rails

    @property
    def port_rate_gbps(self) -> float:
        """Rate of a switch port, which is that of one uplink of a NIC, in Gbit/s."""
        return self.spec.nic_rate_mbps / self.spec.uplinks / 1000

    @property
    def switches(self) -> int:
        """Switches of all tiers."""
        return sum(tier.switches for tier in self.tiers)

    @property
    def ports(self) -> int:
        """Switch ports bought, used or not."""
        return self.switches * self.radix

    @property
    def ports_used(self) -> int:
        """Switch ports with a cable in them."""
        return sum(tier.ports_used for tier in self.tiers)

    @property
    def cables(self) -> int:
        """Cables: one for each link, NIC links included."""
        return self.nic_links + sum(tier.links_up for tier in self.tiers)

    @property
    def transceivers(self) -> int:
        """Transceivers: one at each end of every cable."""
        return TRANSCEIVERS_PER_LINK * self.cables


def materials_of(spec: FabricSpec) -> Materials:
    """The bill of materials of the fabric that ``spec`` describes, with as many tiers as its ``switch_ports`` need.

    Rail-only has one folded Clos for each rail; rail-optimized and spine-leaf have one for all GPUs, which differ in
    what is plugged in where and not in what is bought. Rails that leave ports free share switches. Dual-homed NICs have
    two such networks, each of half the rate, without a switch in common. Raises BillError for a spec without
    ``switch_ports``, with a fixed number of spines or links, or with values that no network can have.
    """
    radix = _checked(spec)
    if spec.kind is FabricKind.IDEAL:
        return Materials(spec, radix, (), 0)
    oversubscription = Fraction(repr(float(spec.oversubscription)))
    tiers: list[Tier] = []
    if spec.kind is FabricKind.RAIL_ONLY:
        add_tiers(tiers, folded_clos(spec.domains, radix, oversubscription), spec.rails)
    else:
        add_tiers(tiers, folded_clos(spec.domains * spec.rails, radix, oversubscription), 1)
    return Materials(
        spec,
        radix,
        tuple(
            TierMaterials(
                switches=spec.uplinks * boxes(tier, radix),
                ports_used=spec.uplinks * sum(shape.ports * count for shape, count in tier.items()),
                links_up=spec.uplinks * sum(shape.up_ports * count for shape, count in tier.items()),
            )
            for tier in tiers
        ),
        nic_links=spec.uplinks * spec.domains * spec.rails,
    )


def _checked(spec: FabricSpec) -> int:
    """The radix of a spec whose values are right."""
    for name, minimum in (("domains", 1), ("rails", 1), ("switch_ports", 2)):
        value = getattr(spec, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise BillError(f"{name} is {value!r}; a bill needs a whole number of at least {minimum}")
    for name in ("nic_rate_mbps", "oversubscription"):
        value = getattr(spec, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            raise BillError(f"{name} is {value!r}; it must be a number above 0")
    if spec.uplinks not in (1, 2):
        raise BillError(f"uplinks is {spec.uplinks!r}; a NIC has 1 uplink, or 2 (dual-homed)")
    for name, free in (("spines", None), ("domains_per_leaf", None), ("parallel_links", 1)):
        if getattr(spec, name) != free:
            raise BillError(f"{name} is {getattr(spec, name)!r}; a bill sizes the tiers itself: leave {name} out")
    assert spec.switch_ports is not None
    return spec.switch_ports
