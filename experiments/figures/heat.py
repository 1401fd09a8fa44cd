"""How busy every link is over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.figures.style import BLACK, GREEN, STYLE, VERMILLION
from experiments.outcome import Outcome
from experiments.units import size_text
from topologies.model import Fabric, Link, LinkKind
from topologies.scale import Scale, link_rate_mbps
from workloads.records import FloatArray, LinkSeries

_BINS = 240
_MOST_ROWS = 48
_MOST_NAMES = 24
_KINDS = ((LinkKind.NIC, "NIC links"), (LinkKind.FABRIC, "leaf-spine links"), (LinkKind.NVLINK, "NVLinks"))


def heat_figure(fabric: Fabric, links: LinkSeries, scale: Scale, outcome: Outcome) -> Figure:
    """Link heat map: one row a link, time to the right, the shade is the share of its rate in its busier direction.

    Links that failed have a mark at their row. Of a kind with more than 48 links the busiest are shown, which the
    figure says; links of the fabric that carried nothing count as links like others. Needs at least two samples.
    """
    panels = [(title, *_busiest(fabric, links, kind)) for kind, title in _KINDS]
    panels = [panel for panel in panels if panel[1]]
    heights = [max(3.0, len(shown)) for _, shown, _ in panels]
    with rc_context(STYLE):
        figure = Figure(figsize=(11, min(2.0 + 0.2 * sum(heights) + 0.7 * len(panels), 13.0)), layout="constrained")
        figure.suptitle(
            f"{outcome.collective} ({size_text(outcome.size_bytes)}) on {outcome.fabric}, {outcome.backend}",
            fontsize=15, fontweight="bold",
        )  # fmt: skip
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        edges = np.linspace(links.t_s[0], links.t_s[-1], _BINS + 1)
        image = None
        for panel, (title, shown, count) in zip(axes, panels, strict=True):
            shares = np.stack([_shares(links, link, scale, edges) for link in shown])
            shades = colormaps["viridis_r"].with_extremes(bad="white")
            image = panel.imshow(
                np.ma.masked_less(shares, 0.5), cmap=shades, vmin=0, vmax=100, aspect="auto", interpolation="nearest",
                extent=(edges[0], edges[-1], len(shown) - 0.5, -0.5),
            )  # fmt: skip
            part = "" if len(shown) == count else f": the {len(shown)} busiest of {count:,}"
            panel.set_title(f"{title}{part}", loc="left", fontsize=13)
            step = -(-len(shown) // _MOST_NAMES)
            panel.set_yticks(range(0, len(shown), step), [link.id for link in shown[::step]], fontsize=8.5)
            _mark(panel, shown, outcome)
        axes[-1].set_xlabel(f"time (emulated s; 1 s = {1000 / scale.time:.3g} ms of the real machine)")
        if image is not None:
            bar = figure.colorbar(image, ax=list(axes), shrink=0.8)
            bar.set_label("share of the link's rate, busier direction (%)")
        if outcome.outages:
            handles = [
                Line2D([], [], color=VERMILLION, linewidth=1.6, marker=">", markersize=9, label="fails"),
                Line2D([], [], color=GREEN, linewidth=1.6, linestyle="--", label="is back"),
            ]
            figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _busiest(fabric: Fabric, links: LinkSeries, kind: LinkKind) -> tuple[list[Link], int]:
    """The links of a kind to show, in the fabric's order, and how many there are."""
    known = set(links.link_ids)
    found = [link for link in fabric.links if link.kind is kind and link.id in known]
    if len(found) <= _MOST_ROWS:
        return found, len(found)
    chosen = {link.id for link in sorted(found, key=lambda link: -links.total_bytes(link.id))[:_MOST_ROWS]}
    return [link for link in found if link.id in chosen], len(found)


def _shares(links: LinkSeries, link: Link, scale: Scale, edges: FloatArray) -> FloatArray:
    """Mean share of the link's rate in each stretch of time, in percent, of the busier direction."""
    column = links.link_ids.index(link.id)
    room_bytes = link_rate_mbps(link, scale) * 1e6 / 8 * np.diff(edges)
    both = (links.a_to_b_bytes, links.b_to_a_bytes)
    carried = [np.diff(np.interp(edges, links.t_s, counters[:, column])) for counters in both]
    shares: FloatArray = np.maximum(*carried) / room_bytes * 100
    return shares


def _mark(panel: Axes, shown: Sequence[Link], outcome: Outcome) -> None:
    rows = {link.id: row for row, link in enumerate(shown)}
    for outage in outcome.outages:
        panel.axvline(outage.down_s, color=VERMILLION, linewidth=1.6)
        if outage.up_s is not None:
            panel.axvline(outage.up_s, color=GREEN, linewidth=1.6, linestyle="--")
        if outage.link_id in rows:
            panel.plot(outage.down_s, rows[outage.link_id], marker=">", markersize=9, color=VERMILLION,
                       markeredgecolor=BLACK, markeredgewidth=0.6, clip_on=False, zorder=5)  # fmt: skip
