"""Somebody else's application on a fabric: ``python -m controller.guest APP.py --fabric SPEC.json --listen HOST:PORT``.

The file is an ordinary Ryu or os-ken application. It is told nothing by us but the fabric's spec, as JSON in the
environment variable RAILBED_FABRIC. Events go to stdout as those of :mod:`controller.main` do, as far as anybody can
know them: ``listening``, ``switch-connected``, ``switch-lost``, ``port-down``, ``port-up`` and ``unknown-switch``.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from controller.errors import ArgumentError, FrameworkError, ListenError
from controller.events import EventWriter
from controller.main import check_free, ended_by_signal, parse_address, read_fabric
from topologies.errors import RailbedError
from topologies.model import Fabric


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until ended by a signal. Returns the exit code; a mistake is told in one sentence on stderr."""
    parser = argparse.ArgumentParser(prog="controller.guest", description="Somebody else's application on a fabric.")
    parser.add_argument("file", metavar="APP.py", help="a Ryu or os-ken application")
    parser.add_argument("--fabric", required=True, metavar="SPEC.json", help="the fabric's spec, as a JSON object")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    parsed = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ended_by_signal)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(levelname)s: %(message)s")
    try:
        host, port = parse_address(parsed.listen)
        fabric = read_fabric(Path(parsed.fabric))
        if not Path(parsed.file).is_file():
            raise ArgumentError(f"there is no file {parsed.file}: give the path of a Ryu or os-ken application")
        check_free(host, port)
        os.environ["RAILBED_FABRIC"] = Path(parsed.fabric).read_text(encoding="utf-8")
        _run(parsed.file, fabric, host, port)
    except RailbedError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"the OpenFlow listener on {host}:{port} has ended; the log above says why", file=sys.stderr)
    return 1


def _run(file: str, fabric: Fabric, host: str, port: int) -> None:
    from controller import framework
    from controller.observer import Observer

    emit = EventWriter(sys.stdout)

    def listening() -> None:
        emit("listening", address=f"{host}:{port}", framework=f"{framework.NAME} {framework.version()}")

    try:
        framework.run_file(file, Observer, host, port, listening, fabric=fabric, emit=emit)
    except FrameworkError:
        raise
    except OSError as error:
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    except ModuleNotFoundError as error:
        other = {"ryu": "ryu", "os_ken": "os-ken"}.get(str(error.name).partition(".")[0])
        remedy = f"run it with --framework {other}" if other else "install it"
        raise ArgumentError(
            f"{file} imports {error.name}, which is not there under {framework.NAME}: {remedy}"
        ) from None
    except Exception as error:
        traceback.print_exc()
        raise ArgumentError(f"{file} cannot be run: {type(error).__name__}: {error}") from None


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the framework's threads would keep the process alive
