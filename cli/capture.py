"""``railbed capture``: the packets of one link of a running fabric."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.errors import CaptureFileError
from cli.fabrics import name_option, need_root, running_fabric
from cli.output import json_option, print_json

if TYPE_CHECKING:
    from emulator.capture import Captured, Tally
    from topologies.model import Fabric, Link

    Take = Callable[[Captured], None]

STANDARD_OUTPUT = "-"


@click.command("capture")
@click.argument("link")
@click.option("-w", "file", metavar="FILE", help="Write a pcapng file instead of a line for each packet; - is stdout.")
@click.option("--count", type=click.IntRange(min=1), default=100_000, show_default=True, help="End after N packets.")
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="End after that."
)
@click.option(
    "--bytes", "snap_bytes", type=click.IntRange(64, 262_144), default=256, show_default=True,
    help="Keep so many bytes of each packet.",
)  # fmt: skip
@name_option
@json_option
def command(
    link: str, file: str | None, count: int, seconds: float, snap_bytes: int, name: str | None, as_json: bool
) -> int:
    """Show the packets that cross LINK in both directions, until Ctrl-C or a limit is reached.

    `out` is the direction away from the GPU (or leaf), `in` the one towards it. Packets are seen behind the link's
    shaper: what a link swallows or loses is not among them.
    """
    need_root("capture")
    from emulator.capture import LinkCapture
    from topologies.model import LinkKind

    if as_json and file is None:
        raise click.UsageError("--json sums up a capture into a file: give -w FILE too")
    if as_json and file == STANDARD_OUTPUT:
        raise click.UsageError("--json and the packets cannot both go to standard output: name a file")
    fabric = running_fabric(name)
    model = fabric.fabric
    wanted = model.link(link)
    if wanted.kind is LinkKind.HOST:
        raise click.UsageError(f"{link} is inside a GPU: capture its NIC or NVLink")
    with _lines(model) if file is None else _pcapng(file, wanted, snap_bytes) as take:
        capture = LinkCapture(fabric.name, wanted)
        try:
            capture.run(take, snap_bytes, count, seconds)
        except KeyboardInterrupt:
            pass  # how it is meant to end
        finally:
            capture.close()
    if as_json:
        tally = capture.tally
        print_json({
            "link": link, "file": file, "packets_out": tally.outbound, "packets_in": tally.inbound,
            "packets_dropped": tally.dropped, "fabric_ended": tally.fabric_ended,
        })  # fmt: skip
    else:
        click.echo(_words(capture.tally, file), err=file in (None, STANDARD_OUTPUT))
    return 1 if capture.tally.fabric_ended else 0


@contextmanager
def _lines(fabric: Fabric) -> Iterator[Take]:
    """Print a line for each packet, with the seconds since the first one."""
    from emulator.packet_words import frame_words, names_of

    names = names_of(fabric)
    first_ns: int | None = None

    def take(packet: Captured) -> None:
        nonlocal first_ns
        first_ns = packet.at_ns if first_ns is None else first_ns
        way = "out" if packet.outbound else "in "
        words = frame_words(packet.data, packet.length_bytes, names)
        click.echo(f"{(packet.at_ns - first_ns) / 1e9:10.6f} {way} {words}")

    yield take


@contextmanager
def _pcapng(file: str, link: Link, snap_bytes: int) -> Iterator[Take]:
    """Write packets to a file, or to standard output; each is there at once, so that a reader may follow."""
    from emulator.pcapng import header, packet
    from experiments.files import give_to_caller

    with ExitStack() as stack:
        with _said(file):
            stream = (
                sys.stdout.buffer if file == STANDARD_OUTPUT else stack.enter_context(open(file, "wb", buffering=0))
            )
            if file != STANDARD_OUTPUT:
                give_to_caller(Path(file))

        def write(data: bytes) -> None:
            with _said(file):
                while data:
                    data = data[stream.write(data) :]
                stream.flush()

        def take(seen: Captured) -> None:
            interface = 0 if seen.outbound else 1
            write(packet(interface, seen.at_ns, seen.data, seen.length_bytes, seen.outbound))

        write(header((f"{link.id} out", f"{link.id} in"), snap_bytes))
        yield take


@contextmanager
def _said(file: str) -> Iterator[None]:
    """Turn what goes wrong with a file into a sentence; a reader that goes away is no such thing."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CaptureFileError(f"{file} cannot be written: {error.strerror}; name another file with -w") from None


def _words(tally: Tally, file: str | None) -> str:
    where = f" in {file}" if file not in (None, STANDARD_OUTPUT) else ""
    text = f"{tally.packets} packets ({tally.outbound} out, {tally.inbound} in){where}"
    if tally.dropped:
        text += f"; {tally.dropped} more were missed, because they came too fast"
    if tally.fabric_ended:
        text += "; the fabric was taken down meanwhile"
    return text
