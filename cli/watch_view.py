"""What ``railbed watch`` shows: kept up to date by the live page's messages, drawn for a terminal of any size. Pure."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cli.impairing import impairment_words
from cli.output import clock

BAR = 8
MOST_EVENTS = 50
_LEAST_LINKS = 3


@dataclass(frozen=True)
class LinkLoad:
    """One link: rates in emulated Mbit/s, out (away from the GPU or leaf) and in; ``wrong`` in words, or empty."""

    link_id: str
    rate_mbps: float
    out_mbps: float
    in_mbps: float
    wrong: str

    @property
    def utilisation(self) -> float:
        """Share of the rate that the busier direction uses."""
        return max(self.out_mbps, self.in_mbps) / self.rate_mbps


@dataclass
class View:
    """A fabric as last heard of. ``gone`` is set once it has ended."""

    title: str = ""
    gone: bool = False
    run: str = "no run"
    events: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))
    _links: Sequence[str] = ()
    _rates: Sequence[float] = ()
    _out: Sequence[float] = ()
    _in: Sequence[float] = ()
    _wrong: Mapping[str, str] = field(default_factory=dict)

    def take(self, message: Mapping[str, Any]) -> None:
        """One message of the live page (dashboard.live.Board)."""
        kind = message["event"]
        if kind == "fabric":
            self._links, self._rates = message["link_ids"], message["rates_mbps"]
            self._out = self._in = [0.0] * len(self._links)
            self.title = f"{message['name']}: {message['kind']}, {len(message['gpu_ids'])} GPUs"
        elif kind == "loads":
            self._out, self._in = message["a_to_b_mbps"], message["b_to_a_mbps"]
        elif kind == "impairments":
            self._wrong = {one["link"]: impairment_words(one) for one in message["links"]}
        elif kind == "run":
            self.run = run_line(message)
        elif kind == "controller":
            self.note(message["what"])
        elif kind == "gone":
            self.gone = True

    def note(self, event: Mapping[str, Any]) -> None:
        """An event of the controller; those that say nothing to people are left out."""
        words = event_words(event)
        if words:
            # The controller's clock is the machine's monotonic one.
            at_s = time.time() - time.monotonic() + event["t_s"]
            self.events.append(f"{time.strftime('%H:%M:%S', time.localtime(at_s))}  {words}")

    def loads(self) -> list[LinkLoad]:
        """All links, in the order of the fabric."""
        return [
            LinkLoad(link, rate, out, back, self._wrong.get(link, ""))
            for link, rate, out, back in zip(self._links, self._rates, self._out, self._in, strict=True)
        ]


def run_line(run: Mapping[str, Any]) -> str:
    """The progress of a run in one line."""
    state = "running" if run["running"] else "ended"
    text = f"{run['name']} ({run['engine']}) {state}, {clock(run['t_s'])}"
    if run["engine"] == "agent" or run["ended"]:
        text += f"; transfers: {run['ended']} of {run['transfers']} ended"
    if run["failed"]:
        text += f", {run['failed']} failed"
    return text


def event_words(event: Mapping[str, Any]) -> str:
    """An event of the controller for people; empty for one that only repeats another."""
    kind = event["event"]
    if kind in ("link-down", "link-up"):
        return f"{event['link']} is {kind[5:]}: the controller noticed"
    if kind == "repaired":
        down = f"links down: {len(event['links_down'])}" if event["links_down"] else "all links up"
        return f"new rules in force after {event['elapsed_s'] * 1000:.0f} ms ({down})"
    if kind == "partitioned":
        return f"{event['count']} pairs of GPUs have no path" if event["count"] else "every pair of GPUs has a path"
    if kind == "hold-down":
        return f"{event['link']} flaps: not used for {event['hold_s']:g} s"
    if kind in ("switch-lost", "error"):
        return f"{kind}: {event.get('switch') or event.get('message')}"
    return ""


def drawn(view: View, width: int, height: int, now: str) -> Group:
    """The view for a terminal of that size: busiest links first, then what is wrong, then the newest events."""
    loads = view.loads()
    wrong = [load for load in loads if load.wrong]
    left = max(_LEAST_LINKS + 4, height - 6)
    shown_wrong = wrong[: max(1, left // 4)]
    shown_events = list(view.events)[-max(2, left // 4) :]
    room = max(_LEAST_LINKS, left - max(1, len(shown_wrong)) - max(1, len(shown_events)))
    # Python's sort is stable: links that are equally busy stay in the order of the fabric.
    busiest = sorted(loads, key=lambda load: -load.utilisation)[:room]
    table = Table(box=None, padding=(0, 1), width=min(width, 100), pad_edge=False)
    table.add_column("LINK", no_wrap=True)
    for heading in ("OUT MBIT/S", "", "IN MBIT/S", "", "OF"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis", ratio=1)
    for load in busiest:
        style = "bold red" if load.wrong else ""
        table.add_row(
            Text(load.link_id, style), f"{load.out_mbps:.1f}", _bar(load.out_mbps / load.rate_mbps),
            f"{load.in_mbps:.1f}", _bar(load.in_mbps / load.rate_mbps), f"{load.rate_mbps:g}", Text(load.wrong, style),
        )  # fmt: skip
    hidden = len(loads) - len(busiest)
    return Group(
        _line(f"{view.title}   {now}   Ctrl-C ends", width, "bold"),
        _line(f"run: {view.run}", width),
        table,
        _line(
            f"WRONG ({len(wrong)})" + (f"   {hidden} less busy links are not shown" if hidden else ""), width, "bold"
        ),
        *([_line(f"{one.link_id}  {one.wrong}", width, "red") for one in shown_wrong] or [_line("nothing", width)]),
        _line("EVENTS", width, "bold"),
        *([_line(one, width) for one in shown_events] or [_line("none since this view began", width)]),
    )


def _line(text: str, width: int, style: str = "") -> Text:
    return Text(text[:width], style, no_wrap=True, overflow="ellipsis")


def _bar(share: float) -> str:
    """A bar of fixed width; anything above nothing shows."""
    full = min(BAR, max(round(share * BAR), 1 if share > 0.005 else 0))
    return "#" * full + "." * (BAR - full)
