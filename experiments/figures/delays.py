"""The delay matrix of a run, with what the diagnosis says drawn on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from controller.diagnosis.verdict import Cell, Diagnosis, Pattern, Verdict
from controller.diagnosis.watch import Alarm
from experiments.figures.style import BLACK, STYLE, VERMILLION
from topologies.model import Fabric
from workloads.records import FloatArray

_MOST_RANKS = 256
_MOST_TICKS = 16
_MOST_TOLD = 4
_SHADES = (0.5, 8.0)
"""Delays over the usual one from the lightest to the darkest shade."""


def delay_figure(fabric: Fabric, diagnosis: Diagnosis, alarms: Sequence[Alarm], title: str) -> Figure:
    """Delay matrix: a row a sender, a column a receiver, the shade is the delay for a byte over the usual of its class.

    White: nothing was seen. Black: a message hangs. Cells of a verdict have a frame; a rank at fault has a mark on the
    diagonal. The verdicts are listed below with the time at which they were told. Up to 256 ranks are drawn.
    """
    ranks = min(len(fabric.gpus), _MOST_RANKS)
    ratio: FloatArray = np.full((ranks, ranks), np.nan)
    hung = np.zeros((ranks, ranks), dtype=bool)
    for cell in diagnosis.cells.values():
        if cell.src < ranks and cell.dst < ranks:
            ratio[cell.src, cell.dst] = np.fmax(ratio[cell.src, cell.dst], _shade(cell))
            hung[cell.src, cell.dst] |= cell.is_hung
    with rc_context({**STYLE, "axes.spines.top": True, "axes.spines.right": True}):
        figure = Figure(figsize=(9.4, 9.2), layout="constrained")
        panel = figure.subplots()
        figure.suptitle(title, fontsize=15, fontweight="bold")
        shades = colormaps["viridis_r"].with_extremes(bad="white")
        image = panel.imshow(np.ma.masked_invalid(ratio), cmap=shades, norm=LogNorm(*_SHADES), interpolation="nearest")
        panel.imshow(np.ma.masked_equal(hung, False), cmap="gray", vmin=1, vmax=2, interpolation="nearest")
        bar = figure.colorbar(image, ax=panel, shrink=0.8, extend="both")
        ticks = (0.5, 1, 2, 4, 8)
        bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        bar.minorticks_off()
        bar.set_label("delay for a byte over the usual of its class (black: hangs)")
        _draw_verdicts(panel, fabric, [alarm.verdict for alarm in alarms], ranks)
        step = max(1, -(-ranks // _MOST_TICKS))
        names = [gpu.id for gpu in fabric.gpus[:ranks:step]]
        panel.set_xticks(range(0, ranks, step), names, rotation=90)
        panel.set_yticks(range(0, ranks, step), names)
        panel.set_xlabel("receiver")
        panel.set_ylabel("sender")
        panel.xaxis.set_label_position("top")
        panel.xaxis.tick_top()
        figure.supxlabel(_caption(alarms), fontsize=12)
    return figure


def _shade(cell: Cell) -> float:
    return np.nan if cell.ratio is None else float(np.clip(cell.ratio, *_SHADES))


def _draw_verdicts(panel: Axes, fabric: Fabric, verdicts: Sequence[Verdict], ranks: int) -> None:
    """A frame around the cells of each verdict, and a mark for a rank at fault."""
    for verdict in verdicts:
        for src, dst in verdict.evidence.cells:
            if src < ranks and dst < ranks:
                panel.add_patch(
                    Rectangle((dst - 0.5, src - 0.5), 1, 1, fill=False, edgecolor=VERMILLION, linewidth=1.8, zorder=4)
                )
        gpu = fabric.gpu_by_id.get(verdict.component.id)
        if verdict.pattern is Pattern.RANK and gpu is not None and fabric.rank(gpu) < ranks:
            at = fabric.rank(gpu)
            panel.plot(at, at, marker="X", markersize=13, color=VERMILLION, markeredgecolor=BLACK, zorder=5)


def _caption(alarms: Sequence[Alarm]) -> str:
    if not alarms:
        return "no fault was found"
    told = [f"after {alarm.t_s:.1f} s: {_short(alarm.verdict.text)}" for alarm in alarms[:_MOST_TOLD]]
    more = len(alarms) - _MOST_TOLD
    return "\n".join((*told, *([f"and {more} more"] if more > 0 else [])))


def _short(text: str, most: int = 90) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
