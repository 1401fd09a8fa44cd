"""SimAI topologies: one line of counts, one of switch numbers, then a line per link.

GPUs are numbered first, then NVSwitches, then all other switches.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from topologies.importers.errors import CountMismatchError, MalformedFileError, TruncatedFileError
from topologies.importers.reading import FabricReading, NicCable, Pattern, find_rails
from topologies.model import FabricKind, FabricSpec

KIND = "simai-topology"
TITLE = "SimAI topology"

_FIRST = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s*$")
_RATE = re.compile(r"([\d.]+)([GMT])bps$")
_UNIT_MBPS = {"M": 1.0, "G": 1e3, "T": 1e6}
_LINK_FIELDS = 5


@dataclass(frozen=True)
class _Link:
    a: int
    b: int
    rate_mbps: float


def matches(text: str) -> bool:
    """Whether ``text``, the start of a file, can be that of such a topology."""
    lines = text.split("\n")
    return len(lines) > 1 and bool(_FIRST.match(lines[0])) and lines[1].replace(" ", "").strip().isdigit()


def parse(name: str, text: str) -> FabricReading:
    """The fabric in the topology called ``name``.

    Raises MalformedFileError and TruncatedFileError for lines that cannot be read, and CountMismatchError where the
    counts of the first line are not those of the file.
    """
    lines = text.rstrip("\n").split("\n")
    found = _FIRST.match(lines[0])
    assert found is not None
    nodes, per_server, nv_count, switch_count, link_count = (int(found.group(index)) for index in range(1, 6))
    links = [
        _link(name, number, line, number == len(lines) and not text.endswith("\n"))
        for number, line in enumerate(lines[2:], 3)
        if line.strip()
    ]
    gpus = nodes - nv_count - switch_count
    for what, stated, held in (
        ("links", link_count, len(links)),
        ("switches", nv_count + switch_count, len(lines[1].split())),
    ):
        if stated != held:
            raise CountMismatchError(
                f"{name}: line 1 states {stated} {what}, but the file has {held}; correct line 1 or make the file again"
            )
    highest = max((max(link.a, link.b) for link in links), default=0)
    if highest >= nodes or gpus < 1 or per_server < 1 or gpus % per_server:
        raise CountMismatchError(
            f"{name}: line 1 states {nodes} nodes with {per_server} GPUs per server, but the file has node {highest} "
            f"and {gpus} GPUs; correct line 1 or make the file again"
        )
    return _reading(name, gpus, per_server, nv_count, switch_count, links, found.group(6))


def _link(name: str, number: int, line: str, at_end: bool) -> _Link:
    words = line.split()
    rate = _RATE.match(words[2]) if len(words) == _LINK_FIELDS else None
    if rate is None or not (words[0].isdigit() and words[1].isdigit()):
        if at_end and len(words) < _LINK_FIELDS:
            raise TruncatedFileError(f"{name} is truncated: line {number}, its last, breaks off; make the file again")
        raise MalformedFileError(
            f"{name}, line {number}: '{line[:60]}' is no link (source, destination, rate as 400Gbps, latency, error "
            "rate); make the file again"
        )
    return _Link(int(words[0]), int(words[1]), float(rate.group(1)) * _UNIT_MBPS[rate.group(2)])


def _reading(
    name: str, gpus: int, per_server: int, nv_count: int, switch_count: int, links: Sequence[_Link], gpu_type: str
) -> FabricReading:
    nv = range(gpus, gpus + nv_count)
    nics: list[tuple[int, int, float]] = []
    nvlink_rates: Counter[float] = Counter()
    trunks: list[tuple[int, int, float]] = []
    for link in links:
        low, high = sorted((link.a, link.b))
        if low >= gpus:
            trunks.append((low, high, link.rate_mbps))
        elif high in nv:
            nvlink_rates[link.rate_mbps] += 1
        elif high >= gpus:
            nics.append((low, high, link.rate_mbps))
    cables = [
        NicCable(
            f"server {gpu // per_server}", f"{gpu % per_server}", str(leaf), f"GPU {gpu} on switch {leaf}"
        )
        for gpu, leaf, _ in nics
    ]  # fmt: skip
    rails = find_rails(cables, [(str(a), str(b)) for a, b, _ in trunks])
    leaves = {leaf for _, leaf, _ in nics}
    counts = {
        "gpus": gpus,
        "servers": gpus // per_server,
        "nvswitches": nv_count,
        "leaves": len(leaves),
        "spines": switch_count - len(leaves),
        "links": len(links),
        "nvlinks": sum(nvlink_rates.values()),
        "nic_links": len(nics),
        "switch_links": len(trunks),
    }
    uplinks = max(Counter(gpu for gpu, _, _ in nics).values(), default=1)
    spec = None
    warnings: list[str] = []
    kinds = {Pattern.RAIL_ONLY: FabricKind.RAIL_ONLY, Pattern.RAIL_OPTIMIZED: FabricKind.RAIL_OPTIMIZED}
    kind = FabricKind.SPINE_LEAF if rails.by_host else kinds.get(rails.pattern)
    if uplinks > 2:
        warnings.append(f"a GPU has {uplinks} uplinks; fabrics with more than 2 cannot be built")
    elif kind is not None:
        spec = _spec(kind, gpus // per_server, per_server, uplinks, nics, trunks, nvlink_rates, leaves)
    assumed = ("the latency of links, which is not modelled",) if spec else ()
    return FabricReading(
        KIND, TITLE, name, rails.pattern, rails.reason, counts, rails.odd, spec, _preset(gpu_type, per_server), assumed,
        tuple(warnings), {f"switch {leaf}": f"rail {rails.rail_of[leaf]}" for leaf in sorted(rails.rail_of, key=int)},
    )  # fmt: skip


def _spec(
    kind: FabricKind,
    domains: int,
    rails: int,
    uplinks: int,
    nics: Sequence[tuple[int, int, float]],
    trunks: Sequence[tuple[int, int, float]],
    nvlink_rates: Counter[float],
    leaves: set[int],
) -> FabricSpec:
    servers_of: dict[int, set[int]] = defaultdict(set)
    for gpu, leaf, _ in nics:
        servers_of[leaf].add(gpu // rails)
    per_leaf = max(len(servers) for servers in servers_of.values())
    spines_of: dict[int, set[int]] = defaultdict(set)
    for a, b, _ in trunks:
        for leaf, spine in ((a, b), (b, a)):
            if leaf in leaves and spine not in leaves:
                spines_of[leaf].add(spine)
    spines = max((len(found) for found in spines_of.values()), default=0)
    per_pair = Counter((a, b) for a, b, _ in trunks)
    parallel = max(per_pair.values(), default=1)
    nic_rate = Counter(rate for _, _, rate in nics).most_common(1)[0][0]
    down = per_leaf * (rails if kind is FabricKind.SPINE_LEAF else 1) * nic_rate
    up = spines * parallel * Counter(rate for _, _, rate in trunks).most_common(1)[0][0] if trunks else 0.0
    fast = nvlink_rates.most_common(1)[0][0] if nvlink_rates else nic_rate
    return FabricSpec(
        kind, domains, rails, nic_rate_mbps=nic_rate * uplinks, nvlink_rate_mbps=fast, spines=spines or None,
        parallel_links=parallel, oversubscription=down / up if up else 1.0, uplinks=uplinks, domains_per_leaf=per_leaf,
    )  # fmt: skip


def _preset(gpu_type: str, per_server: int) -> str | None:
    return {("A100", 8): "dgx-a100", ("H100", 8): "dgx-h100"}.get((gpu_type.upper(), per_server))
