"""The northbound interface of a controller process, under every framework that is installed."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controller.interpreters import ROOT, interpreter

DEADLINE_S = 90.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module", params=["os-ken", "ryu"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    spec = tmp_path_factory.mktemp("northbound") / "fabric.json"
    spec.write_text(json.dumps({"kind": "rail-only", "domains": 3, "rails": 2}), encoding="utf-8")
    northbound = free_port()
    process = subprocess.Popen(
        [interpreter(request.param), "-m", "controller", "--fabric", str(spec), "--listen", f"127.0.0.1:{free_port()}",
         "--northbound", f"127.0.0.1:{northbound}"],
        cwd=ROOT, stdout=subprocess.PIPE, env={**os.environ, "RAILBED_FRAMEWORK": request.param}, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    listening = json.loads(process.stdout.readline())
    assert listening["northbound"] == f"http://127.0.0.1:{northbound}"
    yield northbound
    assert process.poll() is None
    process.terminate()
    assert process.wait(DEADLINE_S) == 0


def ask(port: int, path: str, method: str = "GET", body: str | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


def test_state_paths_and_failures(port: int) -> None:
    status, index = ask(port, "/")
    assert status == 200
    assert set(index) == {"/", "/state", "/paths", "/failures", "/counters", "/placement", "/drained", "/events"}
    status, state = ask(port, "/state")
    assert status == 200
    assert (state["ready"], state["version"], state["links_down"]) == (False, 0, [])
    assert state["fabric"]["domains"] == 3
    assert state["switches_connected"] == []
    assert len(state["switches_missing"]) == state["switches"] == 11
    status, path = ask(port, "/paths?src=d0r0&dst=d2r1")
    assert status == 200
    assert path["relays"] == ["d0r1"]
    assert path["channel"] is None
    status, placed = ask(port, "/paths?src=d0r0&dst=d2r1&channel=3")
    assert (status, placed["channel"], placed["links"]) == (200, 3, path["links"])
    assert path["links"][0] == "d0r0-s0r0"
    assert [hop["switch"] for hop in path["hops"]][-1] == "s2r1"
    assert ask(port, "/failures") == (200, {
        "links_broken": [], "links_drained": [], "links_held_down_s": {}, "partitioned": [],
    })  # fmt: skip


@pytest.mark.parametrize(
    ("path", "method", "status", "words"),
    [
        ("/nothing", "GET", 404, "there is no '/nothing'"),
        ("/paths", "GET", 400, "parameter 'src' is missing"),
        ("/paths?src=d0r0", "GET", 400, "parameter 'dst' is missing"),
        ("/paths?src=d0r0&dst=d9r9", "GET", 404, "no GPU 'd9r9'"),
        ("/paths?src=d0r0&dst=d0r0", "GET", 400, "no path to itself"),
        ("/paths?src=d0r0&dst=d1r0&channel=x", "GET", 400, "channel is 'x'"),
        ("/paths?src", "GET", 400, "not of the form"),
        ("/state?x=1", "GET", 400, "unknown parameter 'x'"),
        ("/counters?switch=spine9", "GET", 404, "no node 'spine9'"),
        ("/counters?switch=d0r0", "GET", 404, "is no switch"),
        ("/counters?switch=rail0", "GET", 504, "does not answer"),
        ("/events?since=x", "GET", 400, "since is 'x'"),
        ("/state", "POST", 405, "only reads"),
        ("/state", "DELETE", 405, "only reads"),
        ("/state", "PUT", 405, "only reads"),
        ("/placement", "GET", 405, "use PUT"),
        ("/drained", "GET", 405, "use PUT"),
    ],
)
def test_bad_requests_are_told_in_a_sentence(port: int, path: str, method: str, status: int, words: str) -> None:
    got, answer = ask(port, path, method)
    assert got == status
    assert words in answer["error"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{", "not JSON"),
        ("[]", "key 'connections'"),
        ('{"connections": [{"src": "d0r0", "dst": "d9r0", "links": []}]}', "does not fit the fabric"),
        ('{"connections": [{"src": "d0r0", "dst": "d1r1", "links": ["d0r0-rail9"]}]}', "no link 'd0r0-rail9'"),
    ],
)
def test_a_bad_placement_is_refused(port: int, body: str, words: str) -> None:
    got, answer = ask(port, "/placement", "PUT", body)
    assert got in (400, 404)
    assert words in answer["error"]


def test_a_placement_is_taken_and_taken_back(port: int) -> None:
    each = {"src": "d0r0", "dst": "d1r1", "channel": 2, "links": ["d0r0-rail0"]}
    assert ask(port, "/placement", "PUT", json.dumps({"connections": [each]})) == (200, {"placed_connections": 1})
    assert ask(port, "/placement", "PUT", "null") == (200, {"placed_connections": 0})
    assert ask(port, "/placement", "PUT", "x" * 10)[0] == 400
    assert ask(port, "/state")[1]["policy"]["placed_connections"] == 0


def test_links_are_drained_and_taken_back(port: int) -> None:
    drained = {"changed": True, "links_down": ["d0r0-rail0"]}
    assert ask(port, "/drained", "PUT", '["d0r0-rail0"]') == (200, drained)
    assert ask(port, "/failures")[1]["links_drained"] == ["d0r0-rail0"]
    assert ask(port, "/drained", "PUT", '["d0r0-rail0"]') == (200, {**drained, "changed": False})
    assert ask(port, "/drained", "PUT", "[]") == (200, {"changed": True, "links_down": []})


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [('{"a": 1}', 400, "a list of link ids"), ("[3]", 400, "a list of link ids"), ('["d0r9"]', 404, "no link 'd0r9'")],
)
def test_what_cannot_be_drained_is_refused(port: int, body: str, status: int, words: str) -> None:
    got, answer = ask(port, "/drained", "PUT", body)
    assert got == status
    assert words in answer["error"]


def test_garbage_does_not_end_it(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as connection:
        connection.sendall(b"\x00\x01\x02 garbage\r\n\r\n")
        assert connection.recv(4096)
    assert ask(port, "/state")[0] == 200


def test_events_as_lines_and_as_server_sent_events(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    assert answer.getheader("Content-Type") == "application/x-ndjson"
    first = json.loads(answer.fp.readline())
    assert (first["event"], first["number"]) == ("listening", 1)
    connection.close()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    connection.request("GET", "/events", headers={"Accept": "text/event-stream"})
    answer = connection.getresponse()
    assert answer.getheader("Content-Type") == "text/event-stream"
    assert answer.fp.readline() == b"id: 1\n"
    assert answer.fp.readline() == b"event: listening\n"
    assert json.loads(answer.fp.readline().removeprefix(b"data: "))["number"] == 1
    assert answer.fp.readline() == b"\n"
    connection.close()


def test_addresses_are_checked(tmp_path: Path) -> None:
    spec = tmp_path / "fabric.json"
    spec.write_text(json.dumps({"kind": "rail-only", "domains": 2, "rails": 2}), encoding="utf-8")
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        taken = holder.getsockname()[1]
        for address, code, words in (("8080", 2, "--northbound is '8080'"), (f"127.0.0.1:{taken}", 1, f"port {taken}")):
            done = subprocess.run(
                [interpreter("os-ken"), "-m", "controller", "--fabric", str(spec), "--listen",
                 f"127.0.0.1:{free_port()}", "--northbound", address],
                cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S,
            )  # fmt: skip
            assert done.returncode == code
            assert words in done.stderr
            assert len(done.stderr.strip().splitlines()) == 1
