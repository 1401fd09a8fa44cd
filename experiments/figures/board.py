"""The fabric drawn as on a board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch
from matplotlib.patheffects import withStroke

from experiments.figures.style import BLACK, GREY, RAIL_COLOURS, RAIL_DASHES, STYLE, VERMILLION, YELLOW
from experiments.units import rate_text
from topologies.model import Fabric, FabricKind, Link, LinkKind, SwitchKind


@dataclass(frozen=True)
class _Board:
    """Where everything stands: centre of every node, and the size of a GPU's box."""

    centre: dict[str, tuple[float, float]]
    gpu_width: float
    width: float
    height: float


_GPU_HEIGHT = 0.5
_NVSWITCH_Y = 0.75
_GPU_Y = 1.75
_LEAF_Y = 4.6
_SPINE_Y = 6.9


def fabric_figure(fabric: Fabric, label: str, failed: Sequence[str] = (), detour: Sequence[str] = ()) -> Figure:
    """The fabric as on a board: domains below, rails as lines to their switches, spines on top.

    Links in ``failed`` are broken lines with a cross, links in ``detour`` have a yellow band. Meant for up to 64 GPUs;
    of larger fabrics the first domains and rails are drawn, and the figure says so.
    """
    with rc_context(STYLE):
        board = _placed(fabric)
        figure = Figure(
            figsize=(min(max(9.0, board.width), 17.0), 1.6 + 0.85 * board.height),
            layout=ConstrainedLayoutEngine(h_pad=0.12),
        )
        panel = figure.subplots()
        panel.set_axis_off()
        for link in fabric.links:
            if link.kind is not LinkKind.HOST and link.a in board.centre and link.b in board.centre:
                _draw_link(panel, fabric, board, link, link.id in failed, link.id in detour)
        _draw_nodes(panel, fabric, board)
        _draw_board_legend(figure, fabric, bool(failed), bool(detour))
        shown = sum(gpu.switch_id in board.centre for gpu in fabric.gpus)
        part = "" if shown == len(fabric.gpus) else f" (the first {shown} are drawn)"
        spec = fabric.spec
        rates = f"NVLink {rate_text(spec.nvlink_rate_mbps)}"
        if spec.kind is not FabricKind.IDEAL:
            rates += f", NIC {rate_text(spec.nic_rate_mbps)}"
        domains = "1 domain" if spec.domains == 1 else f"{spec.domains} domains"
        panel.set_title(f"{label}: {domains} x {spec.rails} GPUs{part}; {rates}", fontweight="bold", pad=10)
        panel.set_xlim(-0.3, board.width + 0.3)
        panel.set_ylim(-0.1, board.height)
    return figure


_MOST_DOMAINS = 8
_MOST_RAILS = 8


def _placed(fabric: Fabric) -> _Board:
    """Rows from below: domains with their NVSwitch and GPUs, the switches that NICs end at, the spines."""
    domains, rails = min(fabric.spec.domains, _MOST_DOMAINS), min(fabric.spec.rails, _MOST_RAILS * 2)
    pitch = 0.62 if rails > 4 else 0.8
    gap = 0.55
    domain_width = rails * pitch + 0.2
    width = max(domains * (domain_width + gap) - gap, 7.0)
    left = (width - (domains * (domain_width + gap) - gap)) / 2
    centre: dict[str, tuple[float, float]] = {}
    for domain in range(domains):
        start = left + domain * (domain_width + gap)
        centre[f"nv{domain}"] = (start + domain_width / 2, _NVSWITCH_Y)
        for rail in range(rails):
            centre[f"s{domain}r{rail}"] = (start + 0.1 + (rail + 0.5) * pitch, _GPU_Y)
    height = _GPU_Y + 1.0
    for kinds, y in ((_LEAF_KINDS, _LEAF_Y), (_SPINE_KINDS, _SPINE_Y)):
        row = [switch.id for switch in fabric.switches if switch.kind in kinds and max(switch.rail, 0) < rails]
        row = row[: _MOST_DOMAINS * _MOST_RAILS // 2]
        for index, switch_id in enumerate(row):
            centre[switch_id] = (width * (index + 0.5) / len(row), y)
            height = y + 0.5
    return _Board(centre, pitch * 0.82, width, height)


_LEAF_KINDS = (SwitchKind.RAIL, SwitchKind.RAIL_LEAF, SwitchKind.LEAF)
_SPINE_KINDS = (SwitchKind.RAIL_SPINE, SwitchKind.SPINE)


def _rail_style(rail: int) -> tuple[str, Any]:
    return RAIL_COLOURS[rail % len(RAIL_COLOURS)], RAIL_DASHES[rail % len(RAIL_DASHES)]


def _draw_link(panel: Axes, fabric: Fabric, board: _Board, link: Link, failed: bool, detour: bool) -> None:
    (ax, ay), (bx, by) = board.centre[link.a], board.centre[link.b]
    if link.kind is LinkKind.NVLINK:
        ay -= _GPU_HEIGHT / 2
        bx, by = ax, by + 0.2
    elif link.kind is LinkKind.NIC:
        ay += _GPU_HEIGHT / 2
        by -= 0.25
    else:
        ay += 0.25
        by -= 0.25
        copies = [other.id for other in fabric.links_of(link.a) if other.b == link.b]
        shift = (copies.index(link.id) - (len(copies) - 1) / 2) * 0.12
        ax, bx = ax + shift, bx + shift
    if link.kind is LinkKind.NIC:
        colour, dashes = _rail_style(fabric.switch_by_id[link.a].rail)
        width = 1.8
    else:
        colour, dashes, width = (BLACK, "-", 2.6) if link.kind is LinkKind.NVLINK else (GREY, "-", 1.1)
    if detour:
        panel.plot([ax, bx], [ay, by], color=YELLOW, linewidth=8, solid_capstyle="round", zorder=1.5)
        panel.plot([ax, bx], [ay, by], color=colour, linestyle=dashes, linewidth=width + 0.8, zorder=2.2)
    elif failed:
        panel.plot([ax, bx], [ay, by], color=VERMILLION, linestyle=(0, (1.2, 1.2)), linewidth=3.2, zorder=3)
    else:
        panel.plot([ax, bx], [ay, by], color=colour, linestyle=dashes, linewidth=width, alpha=0.85, zorder=2)
    if failed:
        x, y = ax + (bx - ax) * 0.42, ay + (by - ay) * 0.42
        panel.plot([x], [y], marker="X", markersize=17, color=VERMILLION, markeredgecolor="white", zorder=6)
        to_left = x > board.width * 0.8
        gap = 0.02 * board.width * (-1 if to_left else 1)
        text = panel.text(x + gap, y, f"{link.id}\nfails", color=VERMILLION, fontweight="bold", fontsize=12,
                          va="center", ha="right" if to_left else "left", zorder=7)  # fmt: skip
        text.set_path_effects([withStroke(linewidth=4, foreground="white")])


def _draw_nodes(panel: Axes, fabric: Fabric, board: _Board) -> None:
    for domain in range(fabric.spec.domains):
        members = [board.centre[gpu.switch_id][0] for gpu in fabric.gpus
                   if gpu.domain == domain and gpu.switch_id in board.centre]  # fmt: skip
        if not members:
            continue
        left, right = min(members) - board.gpu_width / 2 - 0.16, max(members) + board.gpu_width / 2 + 0.16
        frame = FancyBboxPatch((left, 0.05), right - left, _GPU_Y + 0.35, boxstyle="round,pad=0,rounding_size=0.12",
                               facecolor="#f3f3f3", edgecolor=GREY, linewidth=1.2, zorder=0.5)  # fmt: skip
        panel.add_patch(frame)
        x = (left + right) / 2
        panel.text(x, 0.26, f"domain {domain}", ha="center", va="center", fontsize=11)
        inner = FancyBboxPatch((left + 0.14, _NVSWITCH_Y - 0.2), right - left - 0.28, 0.4,
                               boxstyle="round,pad=0,rounding_size=0.08", facecolor="#444444", edgecolor="none",
                               zorder=4)  # fmt: skip
        panel.add_patch(inner)
        panel.text(x, _NVSWITCH_Y, "NVSwitch", ha="center", va="center", color="white", fontsize=10.5, zorder=5)
    for gpu in fabric.gpus:
        if gpu.switch_id in board.centre:
            _box(panel, board.centre[gpu.switch_id], board.gpu_width, _GPU_HEIGHT, str(gpu.rail), "white")
    for kinds, colour in ((_LEAF_KINDS, "#dcebf7"), (_SPINE_KINDS, "#e9e2f3")):
        row = [switch for switch in fabric.switches if switch.kind in kinds and switch.id in board.centre]
        room = board.width / max(len(row), 1) * 0.9
        for switch in row:
            size = 12.0 if room > 0.85 else max(7.0, 12.0 * room / 0.95)
            edge = _rail_style(switch.rail)[0] if switch.rail >= 0 else BLACK
            _box(
                panel, board.centre[switch.id], min(room, 1.35 if room < 4 else 1.8), 0.5, switch.id, colour, size, edge
            )


def _box(
    panel: Axes, centre: tuple[float, float], width: float, height: float, text: str, colour: str,
    size: float = 12.0, edge: str = BLACK,
) -> None:  # fmt: skip
    corner = (centre[0] - width / 2, centre[1] - height / 2)
    panel.add_patch(FancyBboxPatch(corner, width, height, boxstyle="round,pad=0,rounding_size=0.06", facecolor=colour,
                                   edgecolor=edge, linewidth=1.2 if edge == BLACK else 2.4, zorder=4))  # fmt: skip
    panel.text(*centre, text, ha="center", va="center", fontsize=size, zorder=5)


def _draw_board_legend(figure: Figure, fabric: Fabric, failed: bool, detour: bool) -> None:
    handles: list[Patch | Line2D] = [Patch(facecolor="white", edgecolor=BLACK, label="GPU (its rail)")]
    if fabric.kind is not FabricKind.IDEAL:
        colour, dashes = _rail_style(0)
        handles.append(Line2D([], [], color=colour, linestyle=dashes, linewidth=1.8, label="NIC link (style = rail)"))
    handles.append(Line2D([], [], color=BLACK, linewidth=2.6, label="NVLink"))
    if any(link.kind is LinkKind.FABRIC for link in fabric.links):
        handles.append(Line2D([], [], color=GREY, linewidth=1.1, label="leaf-spine link"))
    if failed:
        handles.append(Line2D([], [], color=VERMILLION, linestyle=(0, (1.2, 1.2)), linewidth=3.2, marker="X",
                              markersize=11, label="failed link"))  # fmt: skip
    if detour:
        handles.append(Line2D([], [], color=YELLOW, linewidth=8, label="detour"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
