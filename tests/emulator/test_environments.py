"""Where the interpreters of Railbed's own environments are looked for."""

import os
from pathlib import Path

import pytest

from emulator.environments import PROJECT_ROOT, VARIABLE, interpreter

PLATFORM = f"{os.uname().sysname}-{os.uname().machine}"


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def test_they_are_in_the_checkout(tmp_path: Path) -> None:
    assert interpreter(".venv", tmp_path / "none") == PROJECT_ROOT / ".venv/bin/python"


def test_or_where_the_machines_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "railbed"
    settings.write_text(f': "${{{VARIABLE}:=/srv/envs}}"\n')
    assert interpreter(".venv-ryu", settings) == Path("/srv/envs") / PLATFORM / ".venv-ryu/bin/python"
    settings.write_text("OTHER=1\n")
    assert interpreter(".venv", settings) == PROJECT_ROOT / ".venv/bin/python"
    monkeypatch.setenv(VARIABLE, "/elsewhere")
    assert interpreter(".venv", settings) == Path("/elsewhere") / PLATFORM / ".venv/bin/python"
