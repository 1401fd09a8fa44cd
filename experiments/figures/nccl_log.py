"""Bus bandwidth over size: a log of nccl-tests, and runs beside it."""

from __future__ import annotations

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from experiments.figures.style import BLACK, RAIL_COLOURS, STYLE, legend_beside
from experiments.nccl_compare import Comparison
from experiments.units import size_text


def nccl_log_figure(compared: Comparison, log_name: str) -> Figure:
    """The log's curve in black; per fabric what the run found (filled) and what the fluid model expects (hollow)."""
    with rc_context(STYLE):
        figure = Figure(figsize=(10.5, 5.6), layout="constrained")
        panel = figure.subplots()
        sizes, values = zip(*compared.curve, strict=True)
        panel.plot(sizes, values, color=BLACK, linewidth=2, marker=".", label=f"measured: {log_name}")
        for number, fabric in enumerate(dict.fromkeys(one.fabric for one in compared.sizes)):
            colour = RAIL_COLOURS[number % len(RAIL_COLOURS)]
            own = [one for one in compared.sizes if one.fabric == fabric]
            for value, word, fill in (
                ("run_gbytes_per_s", own[0].backend, colour),
                ("expected_gbytes_per_s", "expected", "white"),
            ):
                points = [(one.size_bytes, getattr(one, value)) for one in own if getattr(one, value) is not None]
                if points:
                    panel.plot(
                        *zip(*points, strict=True), color=colour, marker="o" if fill == colour else "D",
                        markersize=max(5, 12 - 3 * number), linewidth=max(1.5, 5 - 2 * number), markerfacecolor=fill,
                        linestyle="-" if fill == colour else ":", label=f"{fabric}: {word}",
                    )  # fmt: skip
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_text(round(size)) if size >= 1 else ""))
        panel.tick_params(axis="x", rotation=30)
        panel.set_ylim(bottom=0)
        panel.set_xlabel("size")
        panel.set_ylabel("bus bandwidth (GB/s)")
        panel.grid(alpha=0.3)
        legend_beside(panel)
    return figure
