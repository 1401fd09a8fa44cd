"""When a link was gone, what traffic saw of it, and when the routes had changed."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.figures.style import BLACK, BLUE, GREY, STYLE, VERMILLION
from experiments.outcome import Outage, Outcome


def outage_figure(outcomes: Sequence[Outcome]) -> Figure:
    """Outage timeline, one row a failed link in a run: the whole run on the left, the first moments on the right.

    ``outcomes`` are runs with failures. On the right stand the longest silence that the probe saw, drawn from the
    failure on, and the moment when new routes were in force; a row without either says so.
    """
    rows = [(outcome, outage) for outcome in outcomes for outage in outcome.outages]
    with rc_context(STYLE):
        figure = Figure(figsize=(13, 2.2 + 0.62 * len(rows)), layout="constrained")
        whole, first = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        names = []
        for row, (outcome, outage) in enumerate(rows):
            of = f", repetition {outcome.repetition}" if outcome.repetition > 1 else ""
            names.append(f"{outage.link_id}\n{outcome.collective}, {outcome.fabric}{of}")
            _draw_whole(whole, row, outcome, outage)
            _draw_first(first, row, outcome, outage)
        whole.set_yticks(range(len(rows)), names, fontsize=10)
        whole.set_ylim(len(rows) - 0.5, -0.5)
        whole.set_title("The whole run", loc="left", fontsize=13)
        whole.set_xlabel("time (emulated s)")
        whole.set_xlim(left=0)
        first.set_title("From the failure on", loc="left", fontsize=13)
        first.set_xlabel("time since the link failed (ms)")
        first.set_xlim(0, 1.25 * max((_last_ms(*row) for row in rows), default=0.0) or 1.0)
        for panel in (whole, first):
            panel.grid(axis="x", alpha=0.3)
            panel.set_axisbelow(True)
            panel.tick_params(axis="y", length=0)
        handles = [
            Patch(facecolor="#dddddd", label="run"),
            Patch(facecolor=VERMILLION, label="link gone"),
            Patch(facecolor=BLUE, label="longest silence of the probe"),
            Line2D([], [], marker="D", markersize=9, color=BLACK, linestyle="", label="new routes in force"),
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


def _draw_whole(panel: Axes, row: int, outcome: Outcome, outage: Outage) -> None:
    end_s = outcome.duration_s or outage.up_s or outage.down_s
    gone_until_s = outage.up_s if outage.up_s is not None else max(end_s, outage.down_s)
    panel.barh(row, max(end_s, gone_until_s), 0.5, color="#dddddd")
    panel.barh(row, gone_until_s - outage.down_s, 0.5, left=outage.down_s, color=VERMILLION)
    if outage.up_s is None:
        panel.text(gone_until_s, row, " stays down", va="center", color=VERMILLION, fontsize=10)
    elif outcome.duration_s is None:
        panel.text(max(end_s, gone_until_s), row, f" {outcome.status}", va="center", color=VERMILLION, fontsize=10)


def _draw_first(panel: Axes, row: int, outcome: Outcome, outage: Outage) -> None:
    gap_s, rerouted_s = outcome.longest_gap_s, outage.rerouted_after_s
    if gap_s is not None:
        panel.barh(row, gap_s * 1000, 0.5, color=BLUE)
    if rerouted_s is not None:
        panel.plot(rerouted_s * 1000, row, marker="D", markersize=9, color=BLACK, markeredgecolor="white")
    texts = [f"{gap_s * 1000:.0f} ms silence"] if gap_s is not None else []
    texts += [f"routes after {rerouted_s * 1000:.0f} ms"] if rerouted_s is not None else ["no new routes seen"]
    panel.annotate(
        ", ".join(texts), (_last_ms(outcome, outage), row), xytext=(9, 0), textcoords="offset points", va="center",
        fontsize=10, color=BLACK if rerouted_s is not None else GREY,
    )  # fmt: skip


def _last_ms(outcome: Outcome, outage: Outage) -> float:
    return 1000 * max(outcome.longest_gap_s or 0.0, outage.rerouted_after_s or 0.0)
