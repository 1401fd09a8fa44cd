"""Addresses of the emulated GPUs, and the masks that select a whole domain or a whole rail.

IPv4 is ``10.X.X.R``: X.X is the domain number plus one as two bytes, R the rail. The MAC address is
``02:72:X:X:00:R`` with the same three bytes, so that a switch can answer ARP by copying bits of the address.
"""

from __future__ import annotations

from topologies.errors import FabricError

NETWORK_PREFIX_BITS = 8
DOMAIN_PREFIX_BITS = 24
NETWORK_MASK = "255.0.0.0"
DOMAIN_MASK = "255.255.255.0"
RAIL_MASK = "255.0.0.255"
EXACT_MASK = "255.255.255.255"
MAC_PREFIX = "02:72:00:00:00:00"

MAX_DOMAINS = 65535
MAX_RAILS = 256


def check_addressable(domains: int, rails: int) -> None:
    """Raise FabricError unless every GPU of a ``domains`` x ``rails`` fabric has an address of its own."""
    if rails > MAX_RAILS:
        raise FabricError(
            f"{rails} GPUs per domain cannot be addressed for emulation: the limit is {MAX_RAILS}; "
            "use the simulator for larger domains"
        )
    if domains > MAX_DOMAINS:
        raise FabricError(f"{domains} domains cannot be addressed for emulation: the limit is {MAX_DOMAINS}")


def ipv4(domain: int, rail: int) -> str:
    """IPv4 address of GPU ``rail`` of ``domain``."""
    high, low = divmod(domain + 1, 256)
    return f"10.{high}.{low}.{rail}"


def mac(domain: int, rail: int) -> str:
    """MAC address of GPU ``rail`` of ``domain``."""
    high, low = divmod(domain + 1, 256)
    return f"02:72:{high:02x}:{low:02x}:00:{rail:02x}"


def parse_ipv4(address: str) -> tuple[int, int]:
    """(domain, rail) of an address made by :func:`ipv4`; raises FabricError for any other text."""
    parts = address.split(".")
    if len(parts) != 4 or not all(part.isdigit() and int(part) < 256 for part in parts) or parts[0] != "10":
        raise FabricError(f"'{address}' is not the address of an emulated GPU (10.X.X.R)")
    domain = int(parts[1]) * 256 + int(parts[2]) - 1
    if domain < 0:
        raise FabricError(f"'{address}' is not the address of an emulated GPU: domains start at 10.0.1.0")
    return domain, int(parts[3])
