"""Dumps of ``ibnetdiscover``: every switch and channel adapter of an InfiniBand fabric with its cables.

Every cable is written at both of its ends, and the two must agree.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topologies.importers.errors import CountMismatchError, MalformedFileError, TruncatedFileError
from topologies.importers.reading import FabricReading, NicCable, Pattern, Rails, find_rails
from topologies.model import FabricKind, FabricSpec

KIND = "ibnetdiscover"
TITLE = "ibnetdiscover dump"

_NODE = re.compile(r'(Switch|Ca|Rt)\s+(\d+)\s+"([^"]+)"\s*#\s*"([^"]*)"')
_CABLE = re.compile(r'\[(\d+)\](?:\([^)]*\))?\s+"([^"]+)"\[(\d+)\](?:\([^)]*\))?\s*#(.*)$')
_RATE = re.compile(r"\b(\d+)x([A-Z]+\d*)\s*$")
_HOST = re.compile(r"(\S+)\s+(HCA-(\d+)|mlx\d+_(\d+))$")
_LANE_MBPS = {
    "SDR": 2_000.0, "DDR": 4_000.0, "QDR": 8_000.0, "FDR10": 10_000.0, "FDR": 14_000.0, "EDR": 25_000.0,
    "HDR": 50_000.0, "NDR": 100_000.0, "XDR": 200_000.0,
}  # fmt: skip
_NO_HOST = frozenset({"localhost", "ubuntu", "mt4129", "node", "host"})
_AGGREGATION = "Aggregation Node"


@dataclass(frozen=True)
class _End:
    node: str
    port: int


@dataclass(frozen=True)
class _Node:
    switch: bool
    name: str


def matches(text: str) -> bool:
    """Whether ``text``, the start of a file, can be that of such a dump."""
    return bool(re.search(r'^(?:Switch|Ca)\s+\d+\s+"[SH]-[0-9a-f]+"', text, re.MULTILINE))


def parse(name: str, text: str) -> FabricReading:
    """The fabric in the dump called ``name``.

    Raises MalformedFileError for a line that cannot be read, TruncatedFileError where the dump ends inside a line, and
    CountMismatchError for cables that are written at one end only.
    """
    nodes, cables, rates = _read(name, text)
    switches = {guid for guid, node in nodes.items() if node.switch}
    trunks = [(a, b) for a, b in cables if a.node in switches and b.node in switches]
    nics: list[NicCable] = []
    others: Counter[str] = Counter()
    for a, b in cables:
        leaf, adapter = (a, b) if a.node in switches else (b, a)
        if adapter.node in switches or leaf.node not in switches:
            continue
        named = _HOST.match(nodes[adapter.node].name)
        if named and named.group(1).lower() not in _NO_HOST:
            # mlx5_0 is the driver's name of what the vendor's tools call HCA-1.
            number = int(named.group(3)) if named.group(3) else int(named.group(4)) + 1
            leaf_name = nodes[leaf.node].name
            text_of = f"{nodes[adapter.node].name} on port {leaf.port} of {leaf_name}"
            nics.append(NicCable(named.group(1), f"HCA-{number}", leaf_name, text_of))
        else:
            others["aggregation nodes" if _AGGREGATION in nodes[adapter.node].name else "adapters without a host"] += 1
    names = [(nodes[a.node].name, nodes[b.node].name) for a, b in trunks]
    servers, management = _servers(nics)
    rails = find_rails(servers, names)
    leaves = {nic.leaf for nic in nics}
    warnings = []
    if others["adapters without a host"]:
        warnings.append(
            f"{others['adapters without a host']} adapters have no host name, so their rail cannot be judged"
        )
    counts = {
        "switches": len(switches),
        "leaves": len(leaves),
        "spines": len(switches - {guid for guid in switches if nodes[guid].name in leaves}),
        "adapters": len(nodes) - len(switches),
        "cables": len(cables),
        "switch_cables": len(trunks),
        "adapter_cables": len(cables) - len(trunks),
        "aggregation_nodes": others["aggregation nodes"],
        "adapters_without_host": others["adapters without a host"],
        "hosts": len({nic.host for nic in servers}),
        "host_cables": len(servers),
        "other_host_cables": management,
    }
    spec, assumed = _spec(servers, names, rails, counts, rates)
    return FabricReading(
        KIND, TITLE, name, rails.pattern, rails.reason, counts, rails.odd, spec, None, assumed, tuple(warnings),
        {leaf: rails.rail_of[leaf] for leaf in sorted(rails.rail_of)},
    )  # fmt: skip


def _read(name: str, text: str) -> tuple[dict[str, _Node], list[tuple[_End, _End]], Counter[float]]:
    nodes: dict[str, _Node] = {}
    seen: Counter[frozenset[_End]] = Counter()
    rates: Counter[float] = Counter()
    here = ""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if line.startswith(("Switch", "Ca", "Rt")):
            found = _NODE.match(line)
            if found is None:
                raise _broken(name, number, line, len(lines))
            here = found.group(3)
            label = found.group(4)
            # "MF0;NAME:MODEL/U1" is how managed switches describe themselves.
            label = label.split(";", 1)[-1].split(":", 1)[0] if found.group(1) == "Switch" else label
            nodes[here] = _Node(found.group(1) == "Switch", label or here)
        elif line.startswith("["):
            cable, rate = _CABLE.match(line), _RATE.search(line)
            if cable is None or rate is None or not here:
                raise _broken(name, number, line, len(lines))
            ends = frozenset({_End(here, int(cable.group(1))), _End(cable.group(2), int(cable.group(3)))})
            seen[ends] += 1
            rates[int(rate.group(1)) * _LANE_MBPS.get(rate.group(2), 0.0)] += 1
    once = [ends for ends, count in seen.items() if count != 2]
    missing = {end.node for ends in seen for end in ends} - set(nodes)
    if once or missing:
        end = min((end for ends in once for end in ends), key=lambda end: (end.node, end.port), default=None)
        where = f"the first at {nodes[end.node].name} port {end.port}" if end and end.node in nodes else "in no block"
        raise CountMismatchError(
            f"{name}: {len(once)} of {len(seen)} cables are not written at both ends ({where}); "
            "the dump is incomplete: run ibnetdiscover again"
        )
    pairs = [tuple(sorted(ends, key=lambda end: (end.node, end.port))) for ends in seen]
    return nodes, [(pair[0], pair[-1]) for pair in pairs], rates


def _broken(name: str, number: int, line: str, count: int) -> MalformedFileError | TruncatedFileError:
    if number == count:
        return TruncatedFileError(f"{name} is truncated: line {number}, its last, breaks off; run ibnetdiscover again")
    return MalformedFileError(f"{name}, line {number}: '{line[:60]}' cannot be read; run ibnetdiscover again")


def _servers(nics: Sequence[NicCable]) -> tuple[list[NicCable], int]:
    """The cables of the GPU servers, and how many the others have: hosts with less than half of the usual adapters."""
    adapters: dict[str, int] = Counter(nic.host for nic in nics)
    if not adapters:
        return [], 0
    usual = Counter(adapters.values()).most_common(1)[0][0]
    kept = [nic for nic in nics if adapters[nic.host] * 2 > usual]
    return kept, len(nics) - len(kept)


def _spec(
    servers: Sequence[NicCable],
    trunks: Sequence[tuple[str, str]],
    rails: Rails,
    counts: Mapping[str, int],
    rates: Counter[float],
) -> tuple[FabricSpec | None, tuple[str, ...]]:
    """The nearest regular fabric, and what in it is not from the dump."""
    if rails.pattern is Pattern.NEITHER:
        return None, ()
    domains, names = counts["hosts"], sorted(set(rails.rail_of.values()))
    leaves_of_rail = Counter(rails.rail_of.values())
    units = max(leaves_of_rail.values())
    per_leaf = math.ceil(domains / units)
    nic_rate_mbps = rates.most_common(1)[0][0]
    per_pair = Counter(frozenset(pair) for pair in trunks)
    parallel = Counter(per_pair.values()).most_common(1)[0][0] if per_pair else 1
    uplinks: dict[str, set[str]] = defaultdict(set)
    for a, b in trunks:
        for leaf, spine in ((a, b), (b, a)):
            if leaf in rails.rail_of and spine not in rails.rail_of:
                uplinks[leaf].add(spine)
    spines = max((len(found) for found in uplinks.values()), default=0) or None
    kind = FabricKind.RAIL_ONLY if rails.pattern is Pattern.RAIL_ONLY else FabricKind.RAIL_OPTIMIZED
    assumed = [
        "one GPU per adapter",
        "the NVLink rate, which no dump tells",
        f"equally many hosts per leaf ({per_leaf}), and the usual {parallel} cables per leaf and spine",
    ]
    spec = FabricSpec(
        kind, domains, len(names), nic_rate_mbps=nic_rate_mbps, spines=spines, parallel_links=parallel,
        oversubscription=per_leaf / (spines * parallel) if spines else 1.0, domains_per_leaf=per_leaf,
    )  # fmt: skip
    return spec, tuple(assumed)
