"""The controller process without switches: what it refuses, and how it ends."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.errors import ArgumentError, ListenError
from controller.main import check_free, parse_address, read_fabric
from tests.controller.interpreters import interpreter
from topologies.errors import FabricError

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 20.0


def start(spec: Path, *arguments: str, python: str = sys.executable, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, "-m", "controller", "--fabric", str(spec), *arguments], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "fabric.json"
    path.write_text(json.dumps({"kind": "rail-only", "domains": 2, "rails": 2}), encoding="utf-8")
    return path


@pytest.fixture(params=["os-ken", "ryu"])
def framework(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param, interpreter(request.param)


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def running(spec: Path, framework: tuple[str, str], free_port: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    name, python = framework
    process = start(spec, "--listen", f"127.0.0.1:{free_port}", python=python, RAILBED_FRAMEWORK=name)
    try:
        assert event(process)["event"] == "listening"
        yield process, free_port
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


def event(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next event; the stream is read by lines only, so select sees what is not read yet."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], DEADLINE_S)[0], "no event in time"
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_quickly_and_well(running: tuple[subprocess.Popen[str], int], number: int) -> None:
    process, _ = running
    process.send_signal(number)
    assert process.wait(5) == 0


def exchange(port: int, dpid: int) -> socket.socket:
    """A connection that has said hello and its datapath id, as far as a switch without ports goes."""
    connection = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
    connection.sendall(struct.pack("!BBHI", 4, 0, 8, 1))
    seen: list[int] = []
    while 5 not in seen:
        header = connection.recv(8, socket.MSG_WAITALL)
        _, kind, length, xid = struct.unpack("!BBHI", header)
        connection.recv(length - 8, socket.MSG_WAITALL) if length > 8 else None
        seen.append(kind)
    connection.sendall(struct.pack("!BBHIQIBBxxII", 4, 6, 32, xid, dpid, 0, 1, 0, 0, 0))
    return connection


def told(found: dict[str, Any]) -> dict[str, Any]:
    """What an event tells beside its place in the stream."""
    return {name: value for name, value in found.items() if name not in ("t_s", "number")}


def test_switches_are_told_apart_by_datapath_id(running: tuple[subprocess.Popen[str], int]) -> None:
    process, port = running
    with exchange(port, 999):
        assert told(event(process)) == {"event": "unknown-switch", "dpid": 999}
        with exchange(port, 3):
            assert told(event(process)) == {"event": "switch-connected", "switch": "s1r0"}
        assert told(event(process)) == {"event": "switch-lost", "switch": "s1r0"}


def test_garbage_on_the_port_does_not_end_it(running: tuple[subprocess.Popen[str], int]) -> None:
    process, port = running
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
    with exchange(port, 3):
        assert event(process)["event"] == "switch-connected"
    assert process.poll() is None


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "sentence"),
    [
        (["--listen", "6653"], {}, 2, "HOST:PORT"),
        (["--listen", "127.0.0.1:0"], {}, 2, "1 to 65535"),
        (["--relay", "spine"], {}, 2, "unknown relay 'spine'"),
        (["--listen", "192.0.2.1:6653"], {}, 1, "cannot listen on 192.0.2.1:6653"),
        ([], {"RAILBED_FRAMEWORK": "pox"}, 1, "RAILBED_FRAMEWORK is 'pox'"),
        ([], {"RAILBED_FRAMEWORK": "ryu"}, 1, "pip install"),
    ],
)
def test_mistakes_are_one_sentence(
    spec: Path, free_port: int, arguments: list[str], environment: dict[str, str], code: int, sentence: str
) -> None:
    listen = [] if "--listen" in arguments else ["--listen", f"127.0.0.1:{free_port}"]
    process = start(spec, *listen, *arguments, **environment)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code, err
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""


@pytest.mark.parametrize("text", ["", ":1", "host:", "host:x", "host:70000", "1.2.3.4"])
def test_bad_addresses(text: str) -> None:
    with pytest.raises(ArgumentError):
        parse_address(text)


def test_bad_fabric_files(tmp_path: Path) -> None:
    assert parse_address("10.0.0.1:80") == ("10.0.0.1", 80)
    path = tmp_path / "spec.json"
    with pytest.raises(ArgumentError, match="No such file"):
        read_fabric(path)
    for text, error, words in (
        ("{", ArgumentError, "not JSON"),
        ("[]", ArgumentError, "one JSON object"),
        ('{"kind": "rail-only", "domains": 0, "rails": 2}', FabricError, "domains is 0"),
        ('{"kind": "rail-only"}', FabricError, "needs the keys"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(error, match=words):
            read_fabric(path)


def test_the_holder_of_a_port_is_named() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        port = holder.getsockname()[1]
        with pytest.raises(ListenError, match=f"port {port} is taken by process {os.getpid()} "):
            check_free("127.0.0.1", port)
    check_free("127.0.0.1", port)
