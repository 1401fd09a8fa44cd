"""The server itself, asked over HTTP: what it refuses, and that what it serves is there."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from cli.main import run_words
from dashboard.recording import Recorder
from tests.dashboard.browser import served

TOKEN = "0123456789"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "short.jsonl"
    with path.open("w") as stream:
        Recorder(stream, 0.0).write(0.0, {"event": "gone"})
    return path


def ask(address: str, method: str, path: str, body: str = "", **headers: str) -> tuple[int, Any]:
    connection = HTTPConnection(address.split("/")[2], timeout=30)
    try:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body or None, names)
        answer = connection.getresponse()
        text = answer.read(300)
        return answer.status, json.loads(text) if "json" in answer.headers["content-type"] else text
    finally:
        connection.close()


def test_a_page_on_loopback(recording: Path) -> None:
    with served("--replay", str(recording)) as address:
        asks = {"x_railbed": "1", "content_type": "application/json"}
        assert ask(address, "GET", "/")[0] == 200
        assert ask(address, "GET", "/static/cytoscape.min.js")[0] == 200
        assert ask(address, "GET", "/static/../../setup.py")[0] == 404
        assert ask(address, "GET", "/", host="evil.example")[0] == 403
        assert ask(address, "POST", "/act", "{}")[0] == 403
        assert ask(address, "POST", "/act", "{}", origin="http://evil.example", **asks)[0] == 403
        status, said = ask(address, "POST", "/act", '{"verb":"fail","target":"d0r0"}', **asks)
        assert (status, said["error"]) == (400, "this page shows a recording: nothing can be changed in it")
        assert ask(address, "POST", "/replay", '{"speed":2}', **asks) == (200, {})
        assert ask(address, "POST", "/replay", "[" * 5000, **asks)[0] == 400
        assert ask(address, "POST", "/replay", "nonsense", **asks)[0] == 400


def test_a_page_with_a_token(recording: Path) -> None:
    with served("--replay", str(recording), "--token", TOKEN) as address:
        assert address.endswith(f"?token={TOKEN}")
        assert ask(address, "GET", "/")[0] == 403
        assert ask(address, "GET", "/events?token=wrong")[0] == 403
        assert ask(address, "GET", f"/?token={TOKEN}")[0] == 200
        assert ask(address, "POST", "/replay", '{"speed":2}', x_railbed="1", content_type="application/json")[0] == 403


def test_a_fabric_named_by_the_environment_is_no_part_of_a_replay(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAILBED_FABRIC", "elsewhere")
    with served("--replay", str(recording)) as address:
        assert ask(address, "GET", "/")[0] == 200


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--replay", "nosuch.jsonl"], "nosuch.jsonl cannot be read as a recording"),
        (["--replay", "nosuch"], "there is no result 'nosuch'"),
        (["--replay", "x", "--name", "y"], "without --name"),
        (["--beside", "b"], "name the first one with --name"),
        (["--name", "b", "--beside", "b"], "beside itself"),
        (["--fabric", "x"], "what --replay shows"),
    ],
)
def test_wrong_use_is_told_in_one_sentence(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAILBED_FABRIC", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert run_words(["dashboard", *words]) == 2
    assert said in capsys.readouterr().err
