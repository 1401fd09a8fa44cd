"""What the browser tests share: Chromium, a page that is served, and waiting for what a page shows."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NO_CHROMIUM = "" if CHROMIUM else "there is no Chromium here: install Debian's package 'chromium'"
TIMEOUT_S = 60.0
MOST_TABS = 60
LINK = "d0r1-rail1"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def browser_page(width: int = 1280, height: int = 720) -> Iterator[Any]:
    """A page of a new headless Chromium."""
    pytest.importorskip("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            page = browser.new_page(viewport={"width": width, "height": height})
            page.set_default_timeout(TIMEOUT_S * 1000)
            yield page
        finally:
            browser.close()


def wait_until(page: Any, expression: str) -> None:
    """Wait until an expression is true in the page, which forbids the way Playwright would do it itself."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not page.evaluate(f"!!({expression})"):
        assert time.monotonic() < deadline_s, f"not so within {TIMEOUT_S:g} s: {expression}"
        page.wait_for_timeout(50)


def tab_to(page: Any, selector: str) -> None:
    """Move the focus with the Tab key until it is on an element, as those do who have no mouse."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.matches({selector!r})"):
            return
    raise AssertionError(f"{selector} is not reached with {MOST_TABS} presses of Tab")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def served(
    *words: str, port: int | None = None, railbed: Sequence[str] = (sys.executable, "-m", "cli"), folder: Path = ROOT
) -> Iterator[str]:
    """The address of a page that ``railbed dashboard`` serves with these words, started in ``folder``."""
    command = [*railbed, "dashboard", "--port", str(port or free_port()), *words]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("the page is at http://"), line
        yield line.split()[4]
    finally:
        process.terminate()
        assert process.wait(TIMEOUT_S) is not None
        process.stdout.close()


def data(name: str) -> str:
    """What the page's drawing holds of LINK, as an expression for the page."""
    return f"window.railbedGraph && railbedGraph.getElementById('{LINK}').data('{name}')"
