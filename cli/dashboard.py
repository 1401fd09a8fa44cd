"""``railbed dashboard``: the live page of a running fabric, or of a recording."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from cli.fabrics import name_option, need_root, running_fabric
from cli.results_table import results_option

if TYPE_CHECKING:
    from dashboard.recording import Shown

DEFAULT_PORT = 8400


@click.command("dashboard")
@name_option
@click.option("--beside", metavar="FABRIC", help="A second running fabric, shown beside the first.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    envvar="RAILBED_DASHBOARD_HOST",
    help="Address to serve at; others need a token.",
)
@click.option("--port", default=DEFAULT_PORT, show_default=True, type=click.IntRange(1, 65535), help="TCP port.")
@click.option(
    "--token",
    metavar="TOKEN",
    envvar="RAILBED_DASHBOARD_TOKEN",
    help="Ask viewers for this token.  [default: none on loopback, else a new one]",
)
@click.option(
    "--url",
    metavar="URL",
    envvar="RAILBED_DASHBOARD_URL",
    help="What viewers open, where a port is forwarded.  [default: from host and port]",
)
@click.option("--record", type=click.Path(path_type=Path, dir_okay=False), help="Store all that is shown in this file.")
@click.option(
    "--replay",
    metavar="WHAT",
    help="Show a recording or a stored result ('latest', a name, a folder); needs no root.",
)
@click.option("--fabric", "labels", multiple=True, metavar="FABRIC", help="A fabric of the result to show; repeatable.")
@click.option("--speed", default=1.0, show_default=True, help="Speed of a replay, 0.05 to 100.")
@results_option
def command(
    name: str | None,
    beside: str | None,
    host: str,
    port: int,
    token: str | None,
    url: str | None,
    record: Path | None,
    replay: str | None,
    labels: tuple[str, ...],
    speed: float,
    results_root: Path,
) -> None:
    """Serve the page of a running fabric (of two with --beside), of a recording or of a result, until Ctrl-C.

    All that is shown is stored in recordings/FABRIC-TIME.jsonl, or in the file of --record, for --replay.
    """
    from cli.recordings import new_recording
    from dashboard.access import Access, is_loopback
    from dashboard.player import check_speed
    from dashboard.server import application, serve
    from dashboard.sources import FabricSource, ReplaySource

    if token is not None and len(token) < 8:
        raise click.UsageError("a token needs at least 8 characters")
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(16)
    access = Access(host, port, token)
    shown_host = f"[{host}]" if ":" in host else host
    address = (url or f"http://{shown_host}:{port}").rstrip("/") + "/" + (f"?token={token}" if token else "")

    if replay is not None:
        named = click.get_current_context().get_parameter_source("name") is ParameterSource.COMMANDLINE
        if named or beside is not None or record is not None:  # a name from the environment is for other commands
            raise click.UsageError("--replay shows a recording: it goes without --name, --beside and --record")
        source = ReplaySource(_replayed(replay, labels, results_root), check_speed(speed))
        serve(application(source, access, lambda _message: None), host, port, lambda: _say(address))
        return
    if labels:
        raise click.UsageError("--fabric chooses what --replay shows of a result; a running fabric is named by --name")
    need_root("dashboard")
    if beside is not None and name is None:
        raise click.UsageError("--beside shows a second fabric: name the first one with --name")
    if beside == name is not None:
        raise click.UsageError(f"'{name}' cannot be shown beside itself: name another fabric with --beside")
    names = [running_fabric(one).name for one in ([name, beside] if beside is not None else [name])]
    path = record or Path("recordings") / f"{'+'.join(names)}-{datetime.now():%Y%m%d-%H%M%S}.jsonl"
    with new_recording(path) as recorder:
        app = application(
            FabricSource({one: partial(running_fabric, one) for one in names}),
            access,
            lambda message: recorder.write(time.monotonic(), message),
        )
        serve(app, host, port, lambda: _say(address))
    click.echo(f"recorded in {path}")


def _replayed(what: str, labels: Sequence[str], results_root: Path) -> list[Shown]:
    """What is shown of a recording (a file), or else of a stored result."""
    from dashboard.recording import read_recording
    from dashboard.stored_result import shown_of
    from experiments.stored import find_result, read_any

    if Path(what).is_file() or Path(what).suffix == ".jsonl":
        if labels:
            raise click.UsageError("--fabric chooses among the fabrics of a result; a recording is shown as it is")
        return read_recording(Path(what))
    found = read_any(find_result(what, results_root))
    return shown_of(found, labels)


def _say(address: str) -> None:
    click.echo(f"the page is at {address} (Ctrl-C ends it)")
