"""From hot connections to the parts at fault: the rules of the matrix, and the paths that hot connections share.

Every part that could be at fault makes certain connections hot: a cell, a row, a column, or all whose paths cross a
link or a switch. The set of parts is looked for that makes what was seen likeliest.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from controller.diagnosis.network import Lane, Network
from controller.diagnosis.telemetry import Connection
from controller.diagnosis.thresholds import Thresholds
from controller.diagnosis.verdict import Component, ComponentKind, Pattern
from topologies.model import Gpu, LinkKind, SwitchKind

HIT = math.log(0.95 / 0.01)
"""What a hot connection adds that a part explains: it is hot with 0.95 if the part is at fault, with 0.01 if not."""

MISS = math.log(0.05 / 0.99)
"""What a connection adds that crosses the part and is not hot."""

COST = 3.0
"""What naming a part costs: a connection that is hot by chance is as likely as that (e^-3 = 5 %)."""

FASTER = 1.2
"""A sound connection speaks against a part if it is so much faster than the hot ones that cross the part."""

MOST_CANDIDATES = 36
MOST_TOGETHER = 3
"""Sets of so many parts are looked through in full; beyond, parts are added one by one."""


@dataclass(frozen=True)
class Located:
    """A part at fault, the connections that it explains, and all parts that would explain the same."""

    component: Component
    pattern: Pattern
    explains: tuple[Connection, ...]
    against: int
    suspects: tuple[Component, ...]
    is_ambiguous: bool


@dataclass(frozen=True)
class _Candidate:
    """Parts of equal effect: masks of the hot connections that they explain, and of those that speak against them."""

    hits: int
    misses: int
    components: tuple[Component, ...]


def locate(
    hot: Sequence[Connection],
    sound: Sequence[Connection],
    network: Network | None,
    limits: Thresholds,
    rates: Mapping[Connection, float],
    observed: Iterable[Connection],
    with_answers: bool = False,
) -> list[Located]:
    """The parts that explain ``hot`` connections best, given the ``sound`` ones; empty if ``hot`` is.

    ``rates`` are those of the connections, none where all stand still; ``observed`` are all connections of the window.
    ``with_answers``: a part may also be at fault on
    the way back (acknowledgements), as in a hang. Without ``network`` only cells, rows and columns are known.
    """
    if not hot:
        return []
    units = list(dict.fromkeys((*hot, *sound)))
    bit = {unit: 1 << number for number, unit in enumerate(units)}
    hot_mask = _mask(hot, bit)
    found, observed = [], tuple(observed)
    for one in _best(_candidates(units, bit, hot_mask, network, rates, with_answers)):
        explains = tuple(unit for unit in units if bit[unit] & one.hits)
        found.append(
            Located(
                one.components[0], pattern_of(explains), explains, one.misses.bit_count(), one.components,
                _is_ambiguous(one.components, explains, observed, network, limits),
            )
        )  # fmt: skip
    return found


def _mask(units: Iterable[Connection], bit: Mapping[Connection, int]) -> int:
    mask = 0
    for unit in units:
        mask |= bit[unit]
    return mask


def _candidates(
    units: Sequence[Connection],
    bit: Mapping[Connection, int],
    hot: int,
    network: Network | None,
    rates: Mapping[Connection, float],
    with_answers: bool,
) -> list[_Candidate]:
    """Parts by what they would make hot, those of equal effect together, the best ones first."""
    by_mask: dict[int, set[Component]] = {}
    for component, mask in _parts(units, bit, network, with_answers):
        if mask & hot:
            by_mask.setdefault(mask, set()).add(component)
    made = [
        _Candidate(mask & hot, _against(mask, hot, units, bit, rates), tuple(_merged(components)))
        for mask, components in by_mask.items()
    ]
    by_effect: dict[tuple[int, int], set[Component]] = {}
    for one in made:
        by_effect.setdefault((one.hits, one.misses), set()).update(one.components)
    made = [_Candidate(*effect, tuple(_merged(components))) for effect, components in by_effect.items()]
    made.sort(key=lambda one: (-_gain([one]), one.components))
    return made[:MOST_CANDIDATES]


def _against(
    mask: int, hot: int, units: Sequence[Connection], bit: Mapping[Connection, int], rates: Mapping[Connection, float]
) -> int:
    """The sound connections that speak against a part: faster than the hot ones that cross it.

    Where rates are max-min fair, those that a part holds up are the fastest of all that cross it; slower ones are held
    up elsewhere.
    """
    held = statistics.median(rates.get(unit, 0.0) for unit in units if bit[unit] & mask & hot)
    return _mask((one for one in units if bit[one] & mask & ~hot and rates.get(one, 1.0) > FASTER * held), bit)


_ORDER = (ComponentKind.LINK, ComponentKind.SWITCH, ComponentKind.SENDER, ComponentKind.RECEIVER, ComponentKind.RANK,
          ComponentKind.CONNECTION)  # fmt: skip
"""Which name is given first to what can't be told apart: parts that break on their own before those that hold them."""


def _merged(components: Iterable[Component]) -> list[Component]:
    """Sorted; a link that is suspect in both directions and in one is named once, in both."""
    both = {one.id for one in components if one.direction == "both"}
    kept = {one for one in components if one.direction in ("", "both") or one.id not in both}
    return sorted(kept, key=lambda one: (_ORDER.index(one.kind), one))


def _parts(
    units: Sequence[Connection], bit: Mapping[Connection, int], network: Network | None, with_answers: bool
) -> Iterator[tuple[Component, int]]:
    """All parts with the connections that each would make hot."""
    name = network.name if network else str
    rows: dict[int, int] = {}
    columns: dict[int, int] = {}
    for unit in units:
        rows[unit.src] = rows.get(unit.src, 0) | bit[unit]
        columns[unit.dst] = columns.get(unit.dst, 0) | bit[unit]
        yield Component(ComponentKind.CONNECTION, f"{name(unit.src)}->{name(unit.dst)}"), bit[unit]
    for rank, mask in rows.items():
        yield Component(ComponentKind.SENDER, name(rank)), mask
    for rank, mask in columns.items():
        yield Component(ComponentKind.RECEIVER, name(rank)), mask
    for rank in rows.keys() & columns.keys():
        yield Component(ComponentKind.RANK, name(rank)), rows[rank] | columns[rank]
    if network is not None:
        yield from _network_parts(units, bit, network, answers=False)
        if with_answers:
            yield from _network_parts(units, bit, network, answers=True)


def _network_parts(
    units: Sequence[Connection], bit: Mapping[Connection, int], network: Network, answers: bool
) -> Iterator[tuple[Component, int]]:
    crossing: dict[Lane, int] = {}
    for unit in units:
        back = network.lanes(Connection(unit.dst, unit.src, unit.channel)) if answers else ()
        for lane in (*network.lanes(unit), *back):
            crossing[lane] = crossing.get(lane, 0) | bit[unit]
    switches: dict[str, int] = {}
    for link_id in dict.fromkeys(lane.link_id for lane in crossing):
        link = network.fabric.link(link_id)
        if link.kind is LinkKind.HOST:
            continue
        out, back_in = crossing.get(Lane(link_id, "out"), 0), crossing.get(Lane(link_id, "in"), 0)
        yield Component(ComponentKind.LINK, link_id, "both"), out | back_in
        for direction, mask in (("out", out), ("in", back_in)):
            if mask and mask != out | back_in:
                yield Component(ComponentKind.LINK, link_id, direction), mask
        for end in (link.a, link.b):
            if network.fabric.switch_by_id[end].kind is not SwitchKind.GPU:
                switches[end] = switches.get(end, 0) | out | back_in
    for switch_id, mask in switches.items():
        yield Component(ComponentKind.SWITCH, switch_id), mask


def _gain(chosen: Sequence[_Candidate]) -> float:
    """Log-likelihood of what was seen with these parts at fault, over that with none, less the cost of naming them."""
    hits = misses = 0
    for one in chosen:
        hits |= one.hits
        misses |= one.misses
    return HIT * hits.bit_count() + MISS * misses.bit_count() - COST * len(chosen)


def _best(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """The set of candidates with the highest gain; empty where none is better than no part at all."""
    best: list[_Candidate] = []
    best_gain = 0.0
    for size in range(1, MOST_TOGETHER + 1):
        for chosen in combinations(candidates, size):
            gain = _gain(chosen)
            if gain > best_gain + 1e-9:
                best, best_gain = list(chosen), gain
    while True:
        more = max(candidates, key=lambda one: _gain([*best, one]), default=None)
        if more is None or _gain([*best, more]) <= best_gain + 1e-9:
            return best
        best, best_gain = [*best, more], _gain([*best, more])


def pattern_of(explains: Sequence[Connection]) -> Pattern:
    """How the hot connections lie in the matrix."""
    senders, receivers = {one.src for one in explains}, {one.dst for one in explains}
    if len(senders) == len(receivers) == 1:
        return Pattern.CELL
    if len(senders) == 1:
        return Pattern.ROW
    if len(receivers) == 1:
        return Pattern.COLUMN
    return Pattern.PATHS


def _is_ambiguous(
    suspects: Sequence[Component],
    explains: Sequence[Connection],
    observed: Iterable[Connection],
    network: Network | None,
    limits: Thresholds,
) -> bool:
    """Whether the suspects are in several places, or a rank of the hot connections has too few peers for the rules.

    A switch that several senders share is found by their paths, however few peers each has.
    """
    places = {_place(one, network) for one in suspects if one.kind is not ComponentKind.CONNECTION}
    if len(places) > 1:
        return True
    if suspects[0].kind is ComponentKind.SWITCH and len({one.src for one in explains}) >= limits.least_cells:
        return False
    receivers_of: dict[int, set[int]] = {}
    senders_to: dict[int, set[int]] = {}
    for one in observed:
        receivers_of.setdefault(one.src, set()).add(one.dst)
        senders_to.setdefault(one.dst, set()).add(one.src)
    return min(min(len(receivers_of[one.src]), len(senders_to[one.dst])) for one in explains) < limits.peers


def _place(component: Component, network: Network | None) -> str:
    """What a component is part of: the links of a GPU are its own, all others stand for themselves."""
    if component.kind is ComponentKind.LINK and network is not None:
        end = network.fabric.switch_by_id[network.fabric.link(component.id).a]
        if end.kind is SwitchKind.GPU:
            return Gpu(end.domain, end.rail).id
    return component.id
