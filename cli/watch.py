"""``railbed watch``: link loads, failures and events of a running fabric on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import click

from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json, table

if TYPE_CHECKING:
    from emulator.manager import RunningFabric

REFRESH_S = 0.5
ONCE_S = 1.0
"""What the rates of a single table are means of."""

LAST_EVENTS = 5


@click.command("watch")
@click.option("--once", is_flag=True, help="Print one table of all links, and end; so it is without a terminal.")
@name_option
@json_option
def command(once: bool, name: str | None, as_json: bool) -> int:
    """Show the loads of the links, what is wrong with them and what the controller does, until Ctrl-C.

    Rates are emulated ones; `out` is away from the GPU (or leaf), `in` towards it.
    """
    need_root("watch")
    running = running_fabric(name)
    if once or as_json or not sys.stdout.isatty():
        _print_once(running, as_json)
        return 0
    return _watch(running)


def _print_once(running: RunningFabric, as_json: bool) -> None:
    from cli.watch_view import View
    from dashboard.drawing import draw
    from dashboard.loads import Counters, loads

    view = View()
    view.take({"event": "fabric", "name": running.name, **draw(running.fabric, running.scale).to_dict()})
    seen: list[dict[str, Any]] = [running.observe(0, impairments=True)]
    time.sleep(ONCE_S)
    seen.append(running.observe(seen[0]["next"]))
    before, after = (Counters(one["t_s"], one["a_to_b_bytes"], one["b_to_a_bytes"]) for one in seen)
    view.take(loads(before, after))
    view.take({"event": "impairments", "links": seen[0]["impairments"]})
    for event in (*seen[0]["events"], *seen[1]["events"]):
        view.note(event)
    events = list(view.events)[-LAST_EVENTS:]
    if as_json:
        links = [
            {"link": one.link_id, "rate_mbps": one.rate_mbps, "out_mbps": one.out_mbps, "in_mbps": one.in_mbps,
             "wrong": one.wrong}
            for one in view.loads()
        ]  # fmt: skip
        print_json({"fabric": running.name, "links": links, "events": events})
        return
    rows = [
        (one.link_id, f"{one.out_mbps:.2f}", f"{one.in_mbps:.2f}", f"{one.rate_mbps:g}", one.wrong or "-")
        for one in view.loads()
    ]
    click.echo(table(("LINK", "OUT MBIT/S", "IN MBIT/S", "RATE MBIT/S", "WRONG"), rows))
    for event in events:
        click.echo(event)


def _watch(running: RunningFabric) -> int:
    """Show the fabric until Ctrl-C (0) or its end (1)."""
    from rich.console import Console
    from rich.live import Live

    from cli.watch_view import View, drawn
    from dashboard.live import Board

    view = View()
    lock = threading.Lock()
    gone = threading.Event()

    def take(message: dict[str, Any]) -> None:
        with lock:  # the board has two threads
            view.take(message)
        if view.gone:
            gone.set()

    def frame() -> Any:
        with lock:
            return drawn(view, console.width, console.height, time.strftime("%H:%M:%S"))

    console = Console(highlight=False)
    board = Board(running.name, lambda: running, take, began=lambda: None)
    board.start()
    try:
        with Live(frame(), console=console, screen=True, auto_refresh=False) as live:
            while not gone.wait(REFRESH_S):
                live.update(frame(), refresh=True)
    except KeyboardInterrupt:
        return 0
    finally:
        board.stop()
    click.echo(f"railbed: the fabric '{running.name}' was taken down", err=True)
    return 1
