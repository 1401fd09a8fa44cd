"""Throughput over time, with the failed link and its detour."""

from __future__ import annotations

from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, STYLE, VERMILLION, legend_beside
from experiments.outcome import Outcome
from experiments.units import rate_text, size_text
from topologies.model import Fabric, LinkKind
from topologies.scale import Scale, link_rate_mbps
from workloads.records import FloatArray, LinkSeries


def throughput_figure(fabric: Fabric, links: LinkSeries, scale: Scale, outcome: Outcome) -> Figure:
    """Throughput over time: per kind of link, and above it the failed link and its detour where a link failed."""
    with rc_context(STYLE):
        outages = outcome.outages
        figure = Figure(figsize=(11, 7.2 if outages else 4.4), layout="constrained")
        panels = figure.subplots(2 if outages else 1, 1, sharex=True, squeeze=False)[:, 0]
        title = f"{outcome.collective} ({size_text(outcome.size_bytes)}) on {outcome.fabric}, {outcome.backend}"
        figure.suptitle(title, fontsize=15, fontweight="bold")
        if outages:
            _draw_failed_links(panels[0], fabric, links, scale, outcome)
        _draw_link_groups(panels[-1], fabric, links, scale)
        for panel in panels:
            _mark_outages(panel, outcome)
            panel.set_ylim(0, panel.get_ylim()[1] * 1.05)
            panel.grid(axis="y", alpha=0.3)
            legend_beside(panel)
        end_s = float(links.t_s[-1]) if len(links.t_s) else 1.0
        panels[-1].set_xlim(0, end_s)
        panels[-1].set_xlabel(f"time (emulated s; 1 s = {1000 / scale.time:.3g} ms of the real machine)")
    return figure


def _draw_failed_links(panel: Axes, fabric: Fabric, links: LinkSeries, scale: Scale, outcome: Outcome) -> None:
    panel.set_title("Failed link and its busiest detour links, both directions together", loc="left")
    panel.set_ylabel("Mbit/s (emulated)")
    # The first line is the widest, so that lines at the same rate are all seen.
    detour_styles = ((BLUE, "-", 5.0), (ORANGE, (0, (3, 1)), 3.4), (GREEN, (0, (6, 1.5, 1.5, 1.5)), 1.8))
    shown: set[str] = set()
    for outage in outcome.outages:
        wide = [link.link_id for link in outage.detour if fabric.link(link.link_id).kind is not LinkKind.NVLINK]
        wide += [link.link_id for link in outage.detour if link.link_id not in wide]
        for (colour, dashes, width), link_id in zip(detour_styles, wide, strict=False):
            if link_id not in shown:
                rates = links.rates_mbps([link_id])
                _draw_steps(panel, links, rates, f"{link_id} (detour)", colour, dashes, width)
                shown.add(link_id)
        rates = links.rates_mbps([outage.link_id])
        _draw_steps(panel, links, rates, f"{outage.link_id} (fails)", VERMILLION, "-", 3.0)
        rate_mbps = link_rate_mbps(fabric.link(outage.link_id), scale)
        label = f"rate per direction,\n{rate_text(rate_mbps)} for {rate_text(rate_mbps * scale.rate)}"
        panel.axhline(rate_mbps, color=GREY, linestyle=":", linewidth=1.5, label=label)


def _draw_link_groups(panel: Axes, fabric: Fabric, links: LinkSeries, scale: Scale) -> None:
    panel.set_title("All links of a kind: mean use of their capacity, both directions", loc="left")
    panel.set_ylabel("share of capacity (%)")
    names = ((LinkKind.NVLINK, "NVLink", GREEN, "-"), (LinkKind.NIC, "NIC", BLUE, (0, (6, 1.5))),
             (LinkKind.FABRIC, "leaf-spine", PURPLE, (0, (2, 1))))  # fmt: skip
    for kind, name, colour, dashes in names:
        of_kind = [link for link in fabric.links if link.kind is kind]
        if of_kind:
            room_mbps = 2 * sum(link_rate_mbps(link, scale) for link in of_kind)
            shares = links.rates_mbps([link.id for link in of_kind]) / room_mbps * 100
            _draw_steps(panel, links, shares, f"{name} ({len(of_kind)} links)", colour, dashes, 2.2)


def _draw_steps(
    panel: Axes, links: LinkSeries, values: FloatArray, label: str, colour: str, dashes: Any, width: float
) -> None:
    """Draw the mean of every interval between samples; nothing without samples."""
    if not len(values):
        return
    panel.stairs(
        values, links.t_s, baseline=None, label=label, color=colour,
        linestyle=dashes, linewidth=width,
    )  # fmt: skip


def _mark_outages(panel: Axes, outcome: Outcome) -> None:
    for outage in outcome.outages:
        end_s = outage.up_s if outage.up_s is not None else panel.get_xlim()[1]
        panel.axvspan(outage.down_s, end_s, color=VERMILLION, alpha=0.12, linewidth=0)
        panel.axvline(outage.down_s, color=VERMILLION, linewidth=1.4, label="link down")
        if outage.rerouted_after_s is not None:
            rerouted_s = outage.down_s + outage.rerouted_after_s
            panel.axvline(rerouted_s, color=BLACK, linewidth=1.4, linestyle=":", label="rerouted")
        if outage.up_s is not None:
            panel.axvline(outage.up_s, color=GREEN, linewidth=1.4, linestyle="--", label="link up")
