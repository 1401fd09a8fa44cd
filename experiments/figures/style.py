"""The one style of all figures: fonts, colours and dashes, and a figure as bytes.

Made with matplotlib's objects, without pyplot, so that no window or figure registry is involved. Colours are those of
Okabe and Ito, which people with any colour vision tell apart; lines also differ by dashes, bars by hatching.
"""

from __future__ import annotations

import io
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY = "#8a8a8a"
RAIL_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, BLACK)
RAIL_DASHES = ("-", (0, (6, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1.5, 1.5)))
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 12,
    "axes.titlesize": 14,
    "axes.labelsize": 13,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 11,
    "svg.fonttype": "path",
    "svg.hashsalt": "railbed",
    "pdf.fonttype": 42,
    "hatch.linewidth": 1.2,
}
_PNG_DPI = 130
_UNDATED: dict[str, Any] = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


def figure_bytes(figure: Figure, file_format: str) -> bytes:
    """The figure as ``svg``, ``pdf`` or ``png``; the same figure gives the same bytes."""
    FigureCanvasAgg(figure)
    target = io.BytesIO()
    with rc_context(STYLE):
        figure.savefig(target, format=file_format, dpi=_PNG_DPI, facecolor="white", metadata=_UNDATED[file_format])
    return target.getvalue()


def legend_beside(panel: Axes) -> None:
    """A legend to the right of the panel, each label once."""
    handles, labels = panel.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    panel.legend(once.values(), once.keys(), loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
