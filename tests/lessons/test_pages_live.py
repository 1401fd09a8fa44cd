"""The commands of pages that need a live fabric, typed as their reader types them."""

import pytest

from emulator import manager
from tests.emulator.live import live
from tests.lessons.pages import PAGES, blocks
from tests.lessons.session import FABRIC, prepare, wrong
from tests.lessons.test_pages import NOT_RUN, is_live

pytestmark = live


def is_up() -> bool:
    return FABRIC in [state.name for state in manager.running()]


@pytest.fixture
def the_name_is_free():
    assert not is_up(), f"a fabric called '{FABRIC}' is up, as the pages call theirs: take it down, then test again"
    yield
    if is_up():
        manager.down(FABRIC)


@pytest.mark.parametrize("page", [page for page in PAGES if is_live(page)], ids=lambda page: page.stem)
def test_what_pages_show_is_what_is_printed(page, tmp_path, the_name_is_free):
    prepare(tmp_path)
    found = wrong(page, blocks(page.read_text(), page.name), NOT_RUN, tmp_path)
    assert not found, "\n".join(found)
    assert not is_up(), "the page leaves its fabric up"
