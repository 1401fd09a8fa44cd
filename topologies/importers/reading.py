"""What a reader of fabric files returns, and how it tells rails from the cables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from topologies.model import FabricSpec

RAIL_SHARE = 0.9
"""Share of the NIC cables that must fit for a fabric to have rails with wrong cables, rather than no rails."""


class Pattern(str, Enum):
    """How the NICs of a server are spread over the switches."""

    RAIL_ONLY = "rail-only"
    RAIL_OPTIMIZED = "rail-optimized"
    NEITHER = "neither rail-only nor rail-optimized"
    ONE_SERVER = "one server"


@dataclass(frozen=True)
class FabricReading:
    """A fabric as a file describes it.

    ``reason`` says in one clause why the pattern is what it is. ``odd_cables`` names the cables that break it. ``spec``
    is the nearest fabric that can be built, ``preset`` the nearest hardware preset; None where the file does not tell
    enough. ``assumed`` says what in them is not from the file.
    """

    kind: str
    title: str
    file: str
    pattern: Pattern
    reason: str
    counts: Mapping[str, int]
    odd_cables: tuple[str, ...] = ()
    spec: FabricSpec | None = None
    preset: str | None = None
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    rails: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form: the fields of this class."""
        return {
            "kind": self.kind,
            "title": self.title,
            "files": [self.file],
            "pattern": self.pattern.value,
            "reason": self.reason,
            "counts": dict(self.counts),
            "odd_cables": list(self.odd_cables),
            "spec": self.spec.to_dict() if self.spec else None,
            "preset": self.preset,
            "assumed": list(self.assumed),
            "warnings": list(self.warnings),
            "rails": dict(self.rails),
        }


@dataclass(frozen=True)
class NicCable:
    """A cable from adapter ``adapter`` of ``host`` to switch ``leaf``; ``text`` is what messages call it.

    The adapters of a host are told apart by ``adapter``, and the same one has the same name on every host.
    """

    host: str
    adapter: str
    leaf: str
    text: str


@dataclass(frozen=True)
class Rails:
    """What the NIC cables tell.

    ``rail_of`` gives the adapter that each leaf is for; ``odd`` the cables that go to a leaf of another one;
    ``by_host`` is True where all adapters of a host share their leaves.
    """

    pattern: Pattern
    reason: str
    rail_of: Mapping[str, str]
    odd: tuple[str, ...]
    by_host: bool


def find_rails(nics: Sequence[NicCable], trunks: Iterable[tuple[str, str]]) -> Rails:
    """Whether the fabric has rails. ``trunks`` are the switch-to-switch cables as pairs of switches.

    A leaf belongs to the adapter that most of its NIC cables come from. The fabric has rails if at least
    :data:`RAIL_SHARE` of the cables go to a leaf of their own adapter and hosts have more than one adapter. Rails whose
    switches are joined to those of other rails make it rail-optimized, else it is rail-only.
    """
    by_leaf: dict[str, Counter[str]] = defaultdict(Counter)
    leaves_of: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for nic in nics:
        by_leaf[nic.leaf][nic.adapter] += 1
        leaves_of[nic.host][nic.adapter].add(nic.leaf)
    if not nics:
        return Rails(Pattern.NEITHER, "no cable leads from a named adapter of a host to a switch", {}, (), False)
    several = [adapters for adapters in leaves_of.values() if len(adapters) > 1]
    by_host = bool(several) and all(len({frozenset(leaves) for leaves in found.values()}) == 1 for found in several)
    rail_of = {leaf: counted.most_common(1)[0][0] for leaf, counted in by_leaf.items()}
    odd = [nic for nic in nics if rail_of[nic.leaf] != nic.adapter]
    fitting = f"{len(nics) - len(odd)} of {len(nics)} NIC cables go to a switch of their own rail"
    if not several:
        return Rails(Pattern.NEITHER, "every host has a single adapter, so there are no rails", {}, (), False)
    if by_host:
        return Rails(Pattern.NEITHER, "all adapters of a host go to the same switches", {}, (), True)
    if len(nics) - len(odd) < RAIL_SHARE * len(nics):
        return Rails(Pattern.NEITHER, f"only {fitting}", {}, (), False)
    part_of = _parts(trunks)
    parts: dict[str, set[str]] = defaultdict(set)
    for leaf, rail in rail_of.items():
        parts[part_of.get(leaf, leaf)].add(rail)
    joined = any(len(rails) > 1 for rails in parts.values())
    reason = f"{fitting}, and the rails are {'joined by further switches' if joined else 'joined to nothing else'}"
    pattern = Pattern.RAIL_OPTIMIZED if joined else Pattern.RAIL_ONLY
    shown = tuple(f"{nic.text}, which is of rail {rail_of[nic.leaf]}" for nic in odd)
    return Rails(pattern, reason, rail_of, shown, False)


def _parts(trunks: Iterable[tuple[str, str]]) -> dict[str, str]:
    """A name of the connected part of each switch."""
    neighbours: dict[str, set[str]] = defaultdict(set)
    for a, b in trunks:
        neighbours[a].add(b)
        neighbours[b].add(a)
    part_of: dict[str, str] = {}
    for first in neighbours:
        waiting = [first] if first not in part_of else []
        while waiting:
            switch = waiting.pop()
            if switch not in part_of:
                part_of[switch] = first
                waiting.extend(neighbours[switch])
    return part_of
