"""A fabric as one would draw it on a board: domains as boxes of GPUs, rail switches above them, spines on top.

Pure: a drawing is made from the model alone. Positions are in units of the page's own plane, y downwards.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from emulator.shape import shape
from topologies.model import Fabric, Link, LinkKind, Switch, SwitchKind
from topologies.scale import Scale, link_rate_mbps

SUMMARY_ABOVE_GPUS = 128
"""With more GPUs than this a domain is drawn as one node, in place of its GPUs."""

STEP = 64
"""Distance between neighbours."""

MOST_COLUMNS = 4
"""GPUs side by side in a box."""

_TIER = {
    SwitchKind.RAIL: 0,
    SwitchKind.RAIL_LEAF: 0,
    SwitchKind.LEAF: 0,
    SwitchKind.RAIL_SPINE: 1,
    SwitchKind.SPINE: 1,
}


@dataclass(frozen=True)
class Node:
    """One shape: ``kind`` is ``domain`` (a box, or with ``gpus`` a summary), ``gpu`` or the kind of a switch.

    ``box`` is the id of the domain's box that it stands in, or empty. ``rail`` is -1 and ``width`` 0 where they mean
    nothing.
    """

    id: str
    kind: str
    label: str
    x: float
    y: float
    rail: int = -1
    box: str = ""
    gpus: int = 0
    width: float = 0.0


@dataclass(frozen=True)
class Line:
    """One link between two shapes; ``rate_mbps`` is the emulated one. In a summary several NVLinks are no lines."""

    id: str
    kind: str
    a: str
    b: str
    rail: int
    rate_mbps: float


@dataclass(frozen=True)
class Drawing:
    """All shapes and lines, the ids of all links that may fail with what each end is shaped to, and the GPUs.

    All in the order of the fabric.
    """

    kind: str
    summary: bool
    nodes: tuple[Node, ...]
    lines: tuple[Line, ...]
    link_ids: tuple[str, ...]
    rates_mbps: tuple[float, ...]
    bursts_bytes: tuple[int, ...]
    queues_bytes: tuple[int, ...]
    gpu_ids: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)


def draw(fabric: Fabric, scale: Scale, narrow: bool = False) -> Drawing:
    """The drawing of a fabric; with more than 128 GPUs a summary by domain. ``narrow`` is for half a page."""
    summary = len(fabric.gpus) > SUMMARY_ABOVE_GPUS
    grid = _grid(fabric, summary, narrow)
    nodes = [*_domains(fabric, summary, grid), *_switches(fabric, grid)]
    targets = list(fabric.failure_targets())
    lines = [_line(fabric, link, summary, scale) for link in targets if not (summary and link.kind is LinkKind.NVLINK)]
    shapes = [shape(link_rate_mbps(link, scale)) for link in targets]
    return Drawing(
        kind=fabric.kind.value,
        summary=summary,
        nodes=tuple(nodes),
        lines=tuple(lines),
        link_ids=tuple(link.id for link in targets),
        rates_mbps=tuple(link_rate_mbps(link, scale) for link in targets),
        bursts_bytes=tuple(one.burst_bytes for one in shapes),
        queues_bytes=tuple(one.queue_bytes for one in shapes),
        gpu_ids=tuple(gpu.id for gpu in fabric.gpus),
    )


def label_width(label: str) -> float:
    """How wide the shape of a switch with that label is drawn."""
    return 12.0 * len(label) + 22.0


def box_id(domain: int) -> str:
    """Id of a domain's box."""
    return f"domain{domain}"


class _Grid(NamedTuple):
    """Boxes of domains in rows: GPUs side by side in a box, boxes in a row, and the size of a box."""

    columns: int
    across: int
    width: float
    height: float


def _grid(fabric: Fabric, summary: bool, narrow: bool) -> _Grid:
    domains, rails = fabric.spec.domains, fabric.spec.rails
    square = math.ceil(math.sqrt(domains))
    if summary:
        return _Grid(1, square if narrow else math.ceil(math.sqrt(domains * 2)), 1.6 * STEP, 1.5 * STEP)
    columns = min(rails, MOST_COLUMNS) if rails <= 16 else 16
    rows = math.ceil(rails / columns)
    return _Grid(columns, square if narrow else min(domains, 4), (columns + 0.8) * STEP, (rows + 2.0) * STEP)


def _domains(fabric: Fabric, summary: bool, grid: _Grid) -> list[Node]:
    columns, across, width, height = grid
    nodes = []
    for domain in range(fabric.spec.domains):
        left, top = (domain % across) * width, (domain // across) * height
        label = f"domain {domain}"
        if summary:
            nodes.append(Node(box_id(domain), "domain", f"{domain}", left, top, gpus=fabric.spec.rails))
            continue
        nodes.append(Node(box_id(domain), "domain", label, left, top))
        rows = math.ceil(fabric.spec.rails / columns)
        for rail in range(fabric.spec.rails):
            x, y = left + (rail % columns) * STEP, top + (rail // columns) * STEP
            nodes.append(Node(f"d{domain}r{rail}", "gpu", f"{rail}", x, y, rail, box_id(domain)))
        middle = left + (min(columns, fabric.spec.rails) - 1) * STEP / 2
        nodes.extend(
            Node(switch.id, switch.kind.value, "NVLink", middle, top + rows * STEP, box=box_id(domain))
            for switch in fabric.switches
            if switch.kind is SwitchKind.NVSWITCH and switch.domain == domain
        )
    return nodes


def _switches(fabric: Fabric, grid: _Grid) -> list[Node]:
    columns, across, width, _ = grid
    span = (min(across, fabric.spec.domains) - 1) * width + (columns - 1) * STEP
    nodes = []
    for tier in (0, 1):
        switches = [switch for switch in fabric.switches if _TIER.get(switch.kind) == tier]
        needed = (len(switches) - 1) * max((label_width(switch.id) + STEP / 4 for switch in switches), default=0.0)
        left, wide = (0.0, span) if needed <= span else ((span - needed) / 2, needed)
        for place, switch in enumerate(switches):
            x = left + wide / 2 if len(switches) == 1 else left + wide * place / (len(switches) - 1)
            y, width = -(4.2 + 2.4 * tier) * STEP, label_width(switch.id)
            nodes.append(Node(switch.id, switch.kind.value, switch.id, x, y, switch.rail, width=width))
    return nodes


def _line(fabric: Fabric, link: Link, summary: bool, scale: Scale) -> Line:
    ends = [_shape(fabric.switch_by_id[node], summary) for node in (link.a, link.b)]
    rail = max(fabric.switch_by_id[node].rail for node in (link.a, link.b))
    return Line(link.id, link.kind.value, ends[0], ends[1], rail, link_rate_mbps(link, scale))


def _shape(switch: Switch, summary: bool) -> str:
    """The shape that stands for a switch: a GPU's own switch is not drawn, its GPU is."""
    if switch.kind is not SwitchKind.GPU:
        return switch.id
    return box_id(switch.domain) if summary else f"d{switch.domain}r{switch.rail}"
