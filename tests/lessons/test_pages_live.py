"""The commands of pages that need a live fabric, typed as their reader types them."""

import time

import pytest

from emulator import manager
from tests.emulator.live import live
from tests.lessons.pages import PAGES, blocks
from tests.lessons.session import prepare, wrong
from tests.lessons.test_pages import NOT_RUN, is_live

pytestmark = live


@pytest.fixture
def no_fabric_is_up():
    """Commands that name no fabric mean the only one that is up, so it must be the page's own."""
    deadline = time.monotonic() + 60
    while (up := [state.name for state in manager.running()]) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert up == [], f"{up} is up, and this page means its own fabric when it names none: take it down, then test again"
    yield
    if any(state.name == "default" for state in manager.running()):
        manager.down("default")


@pytest.mark.parametrize("page", [page for page in PAGES if is_live(page)], ids=lambda page: page.stem)
def test_what_pages_show_is_what_is_printed(page, tmp_path, no_fabric_is_up):
    prepare(tmp_path)
    assert wrong(page, blocks(page.read_text(), page.name), NOT_RUN, tmp_path) == []
    assert "default" not in [state.name for state in manager.running()], "the page leaves its fabric up"
