"""Who talks to whom, and over what: figures of the bytes per pair of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Pairs = Mapping[tuple[int, int], int]
"""Real bytes by (source rank, destination rank)."""


@dataclass(frozen=True)
class Ways:
    """Bytes by the way they take on a fabric with rails."""

    in_domain: int
    on_rail: int
    across_rails: int


def ways(pairs: Pairs, rails: int) -> Ways:
    """What stays in a domain of ``rails`` GPUs, what stays on a rail, and what must change both."""
    in_domain = on_rail = across_rails = 0
    for (src, dst), size_bytes in pairs.items():
        if src // rails == dst // rails:
            in_domain += size_bytes
        elif src % rails == dst % rails:
            on_rail += size_bytes
        else:
            across_rails += size_bytes
    return Ways(in_domain, on_rail, across_rails)


def active_share(pairs: Iterable[tuple[int, int]], ranks: int) -> float:
    """Share of all unordered pairs of ranks that talk in either direction."""
    return len({(min(pair), max(pair)) for pair in pairs}) / (ranks * (ranks - 1) / 2)
