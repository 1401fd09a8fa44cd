"""Who talks to whom."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.figures.style import STYLE, VERMILLION
from workloads.records import FloatArray
from workloads.traffic import Pairs, active_share, ways

_MOST_CELLS = 256
_MOST_DOMAIN_LINES = 64
_MOST_TICKS = 8


def matrix_figure(pairs: Pairs, ranks: int, rails: int, title: str) -> Figure:
    """Who talks to whom: bytes from each rank to each, silent pairs white, HB domains of ``rails`` GPUs as squares.

    Above 256 ranks a cell stands for several of them and holds what they send together. Below it stand the share of
    pairs that talk and what stays in a domain, stays on a rail, or changes both.
    """
    each = -(-ranks // _MOST_CELLS)
    cells = -(-ranks // each)
    sent: FloatArray = np.zeros((cells, cells))
    for (src, dst), size_bytes in pairs.items():
        sent[src // each, dst // each] += size_bytes
    with rc_context({**STYLE, "axes.spines.top": True, "axes.spines.right": True}):
        figure = Figure(figsize=(9.4, 8.6), layout="constrained")
        panel = figure.subplots()
        figure.suptitle(title, fontsize=15, fontweight="bold")
        edges = (-0.5, ranks - 0.5, ranks - 0.5, -0.5)
        shades = colormaps["viridis_r"].with_extremes(bad="white")
        if sent.any():
            talk = sent[sent > 0]
            norm = LogNorm(talk.min() / 1.5, talk.max())
            image = panel.imshow(
                np.ma.masked_equal(sent, 0), cmap=shades, norm=norm, extent=edges, interpolation="nearest"
            )
            bar = figure.colorbar(image, ax=panel, shrink=0.82)
            low, high = float(talk.min()), float(talk.max())
            tens = [10.0**power for power in range(21) if low <= 10.0**power <= high]
            bar.set_ticks(tens if len(tens) > 1 else sorted({low, high}))
            bar.ax.yaxis.set_major_formatter(_decimal_size)
            bar.set_label("bytes of the real machine" if each == 1 else f"bytes of {each} x {each} pairs together")
            bar.minorticks_off()
        else:
            panel.set_xlim(edges[:2])
            panel.set_ylim(edges[2:])
        _draw_domains(panel, ranks, rails)
        panel.set_xlabel("to rank")
        panel.set_ylabel("from rank")
        step = rails * -(-ranks // (rails * _MOST_TICKS))
        panel.set_xticks(range(0, ranks, step))
        panel.set_yticks(range(0, ranks, step))
        panel.xaxis.set_label_position("top")
        panel.xaxis.tick_top()
        figure.supxlabel(_matrix_caption(pairs, ranks, rails), fontsize=12)
    return figure


def _draw_domains(panel: Axes, ranks: int, rails: int) -> None:
    """A thin square around every domain; around none where they would be too small to see."""
    if ranks // rails > _MOST_DOMAIN_LINES or rails < 2:
        return
    for first in range(0, ranks, rails):
        corner = (first - 0.5, first - 0.5)
        panel.add_patch(Rectangle(corner, rails, rails, fill=False, edgecolor=VERMILLION, linewidth=1.1, zorder=3))


def _matrix_caption(pairs: Pairs, ranks: int, rails: int) -> str:
    share = active_share(pairs, ranks)
    split = ways(pairs, rails)
    whole = max(1, split.in_domain + split.on_rail + split.across_rails)
    parts = ((split.in_domain, "in the domain"), (split.on_rail, "on the rail"), (split.across_rails, "across rails"))
    told = ", ".join(f"{part / whole:.1%} {where}" for part, where in parts)
    squares = "; squares are HB domains" if ranks // rails <= _MOST_DOMAIN_LINES and rails > 1 else ""
    return f"{share:.2%} of all pairs talk{squares}\nbytes: {told}"


def _decimal_size(size_bytes: float, position: float = 0.0) -> str:
    """A size with a decimal unit, the way a colour bar asks for it."""
    units = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
    step = min(int(np.log10(max(size_bytes, 1.0)) + 1e-9) // 3, len(units) - 1)
    return f"{size_bytes / 1000**step:.3g} {units[step]}"
