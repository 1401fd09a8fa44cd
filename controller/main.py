"""The controller as a process: ``python -m controller --fabric SPEC.json``. Events on stdout, logs on stderr."""

from __future__ import annotations

import argparse
import errno
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from controller.errors import ArgumentError, ListenError
from controller.events import EventWriter
from controller.placement import read_placement
from controller.policy import RELAYS, RoutingPolicy, relay_named
from topologies.builders import build
from topologies.errors import RailbedError
from topologies.model import Fabric, FabricSpec

DEFAULT_LISTEN = "127.0.0.1:6653"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until ended by a signal. Returns the exit code; a mistake is told in one sentence on stderr."""
    parser = argparse.ArgumentParser(prog="controller", description="OpenFlow controller of one declared fabric.")
    parser.add_argument("--fabric", required=True, metavar="SPEC.json", help="the fabric's spec, as a JSON object")
    parser.add_argument("--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT", help=f"default {DEFAULT_LISTEN}")
    parser.add_argument("--seed", type=int, default=0, help="seed of the path hash (default 0)")
    parser.add_argument("--relay", default="source", help=f"who relays cross-rail traffic: {', '.join(RELAYS)}")
    parser.add_argument("--placement", metavar="FILE", help="JSON file that gives single connections their links")
    parser.add_argument(
        "--no-local-repair", dest="local_repair", action="store_false",
        help="let the controller alone repair; without this switches send packets around dead ports by themselves",
    )  # fmt: skip
    parser.add_argument(
        "--northbound", metavar="HOST:PORT", help="serve state and events over HTTP there (default: not at all)"
    )
    parsed = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ended_by_signal)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(levelname)s: %(message)s")
    try:
        host, port = parse_address(parsed.listen)
        relay = relay_named(parsed.relay)
        fabric = read_fabric(Path(parsed.fabric))
        placement = None if parsed.placement is None else read_placement(Path(parsed.placement), fabric)
        policy = RoutingPolicy(relay, parsed.seed, parsed.local_repair, placement)
        check_free(host, port)
        northbound = None if parsed.northbound is None else parse_address(parsed.northbound, "--northbound")
        if northbound is not None:
            check_free(*northbound, option="--northbound")
        _run(fabric, policy, (host, port), northbound)
    except RailbedError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"the OpenFlow listener on {host}:{port} has ended; the log above says why", file=sys.stderr)
    return 1


def ended_by_signal(_number: int, _frame: Any) -> None:
    """End the process at once, and well."""
    # Not sys.exit: the framework's threads would keep the process.
    os._exit(0)


def _run(fabric: Fabric, policy: RoutingPolicy, openflow: tuple[str, int], northbound: tuple[str, int] | None) -> None:
    # Imported here, because importing the framework fails where none is installed.
    from controller import framework
    from controller.app import ControllerApp
    from controller.northbound import Northbound
    from controller.questions import Questions

    host, port = openflow
    emit = EventWriter(sys.stdout)

    def listening(app: Any) -> None:
        where = {}
        if northbound is not None:
            questions = Questions(app)
            server = Northbound(emit, questions.answers(), questions.takes()).bind(*northbound)
            framework.hub.spawn(server.serve_forever)
            where["northbound"] = f"http://{northbound[0]}:{northbound[1]}"
        emit("listening", address=f"{host}:{port}", framework=f"{framework.NAME} {framework.version()}", **where)

    try:
        framework.run(ControllerApp, host, port, listening, fabric=fabric, policy=policy, emit=emit)
    except OSError as error:
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None


def parse_address(text: str, option: str = "--listen") -> tuple[str, int]:
    """(host, port) of ``HOST:PORT``; raises ArgumentError for anything else."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ArgumentError(f"{option} is '{text}': it must be HOST:PORT with a port from 1 to 65535")
    return host, int(port)


def read_fabric(path: Path) -> Fabric:
    """The fabric described by a JSON file; raises ArgumentError if it can't be read, FabricError if it is wrong."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentError(f"cannot read the fabric file {path}: {error.strerror}") from None
    except ValueError as error:
        raise ArgumentError(f"the fabric file {path} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ArgumentError(f"the fabric file {path} must hold one JSON object, the fabric's spec")
    return build(FabricSpec.from_dict(data))


def check_free(host: str, port: int, option: str = "--listen") -> None:
    """Raise ListenError, naming the process that holds it, if ``host:port`` can't be listened on."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            holder = _listener(port) if error.errno == errno.EADDRINUSE else None
            if holder is not None:
                raise ListenError(
                    f"port {port} is taken by process {holder}: end that process, or choose another port with {option}"
                ) from None
            raise ListenError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None


def _listener(port: int) -> str | None:
    """The process that listens on TCP ``port``, as "PID (name)", if this user may see it."""
    inodes = {f"socket:[{inode}]" for table in ("tcp", "tcp6") for inode in _listening_inodes(table, port)}
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            if any(os.readlink(entry) in inodes for entry in folder.iterdir()):
                name = (folder.parent / "comm").read_text(encoding="utf-8").strip()
                return f"{folder.parent.name} ({name})"
        except OSError:
            continue  # the process ended, or belongs to somebody else
    return None


def _listening_inodes(table: str, port: int) -> list[str]:
    try:
        rows = Path("/proc/net", table).read_text(encoding="utf-8").splitlines()[1:]
    except OSError:
        return []
    columns = [row.split() for row in rows]
    return [row[9] for row in columns if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port]
