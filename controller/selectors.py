"""Selectors: sets of GPUs that one masked address match can name.

A selector fixes some bits of the domain number plus one (as :mod:`topologies.addresses` numbers the domains in an
address) and some bits of the rail. The same selector is the key of the path hash and the match of a rule, so the two
cannot disagree.
"""

from __future__ import annotations

from typing import NamedTuple

from topologies.addresses import ipv4
from topologies.model import Gpu

ALL_BITS = 0xFFFFFFFF

HASH_DOMAINS = 64
"""Domains that the path hash tells apart. Beyond them, domains that are equal modulo 64 share their hash classes."""

COARSE_CLASSES = 4
"""Domains (and rails) of the source that a spine tells apart when it spreads over parallel links."""


class Selector(NamedTuple):
    """All GPUs with ``(domain + 1) & domain_mask == domain_bits`` and ``rail & rail_mask == rail_bits``."""

    domain_bits: int
    domain_mask: int
    rail_bits: int
    rail_mask: int

    def matches(self, gpu: Gpu) -> bool:
        """Whether ``gpu`` is selected."""
        return (gpu.domain + 1) & self.domain_mask == self.domain_bits and gpu.rail & self.rail_mask == self.rail_bits

    @property
    def address(self) -> str:
        """The IPv4 value of the match, dotted."""
        return ipv4((self.domain_bits & 0xFFFF) - 1, self.rail_bits)

    @property
    def address_mask(self) -> str:
        """The IPv4 mask of the match, dotted."""
        domain_mask = self.domain_mask & 0xFFFF
        return f"255.{domain_mask >> 8}.{domain_mask & 0xFF}.{self.rail_mask & 0xFF}"


EVERY_GPU = Selector(0, 0, 0, 0)


def exact(gpu: Gpu) -> Selector:
    """``gpu`` alone."""
    return Selector(gpu.domain + 1, ALL_BITS, gpu.rail, ALL_BITS)


def domain_of(gpu: Gpu) -> Selector:
    """All GPUs of the domain of ``gpu``."""
    return Selector(gpu.domain + 1, ALL_BITS, 0, 0)


def rail_of(gpu: Gpu) -> Selector:
    """All GPUs of the rail of ``gpu``."""
    return Selector(0, 0, gpu.rail, ALL_BITS)


def hash_class(gpu: Gpu, domains: int, whole_domain: bool = False) -> Selector:
    """The hash class of ``gpu`` in a fabric of ``domains``: itself, or its domain, with domains taken modulo 64."""
    mask = ALL_BITS if domains <= HASH_DOMAINS else HASH_DOMAINS - 1
    bits = (gpu.domain + 1) & mask
    return Selector(bits, mask, 0, 0) if whole_domain else Selector(bits, mask, gpu.rail, ALL_BITS)


def coarse_class(gpu: Gpu) -> Selector:
    """The source class that a spine uses: the domain and the rail modulo 4."""
    mask = COARSE_CLASSES - 1
    return Selector((gpu.domain + 1) & mask, mask, gpu.rail & mask, mask)


def with_plane_bit(selector: Selector, gpu: Gpu) -> Selector:
    """``selector`` narrowed to the domains whose number is even or odd like that of ``gpu``."""
    return selector._replace(domain_bits=(gpu.domain + 1) & 1, domain_mask=1)


def with_rail_bit(selector: Selector, rail: int) -> Selector:
    """``selector`` narrowed to the rails whose number is even or odd like ``rail``."""
    return selector._replace(rail_bits=rail & 1, rail_mask=1)


def domains_alike(gpu: Gpu) -> Selector:
    """The GPUs on the rail of ``gpu`` in all domains whose number is the same modulo 64."""
    mask = HASH_DOMAINS - 1
    return Selector((gpu.domain + 1) & mask, mask, gpu.rail, ALL_BITS)
