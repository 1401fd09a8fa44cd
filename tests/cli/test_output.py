from __future__ import annotations

import sys

import pytest

from cli.output import Remaining, clock, progress, table


def test_a_table_is_as_wide_as_its_cells_and_has_no_trailing_blanks() -> None:
    assert table(("A", "LONG"), [("xyz", 1), ("", 22)]) == "A    LONG\nxyz  1\n     22"


def test_no_progress_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as show:
        show("building", 0.5)
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal_keeps_the_finished_stages(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress() as show:
        show("building", 0.25)
        show("building", 0.5)
        show("checking")
    out, err = capsys.readouterr()
    assert out == ""
    assert len([line for line in err.splitlines() if line.endswith(" s  building")]) == 1
    assert "checking" in err


def test_what_is_left_is_told_from_what_the_done_part_took() -> None:
    left = Remaining()
    assert left.seconds(0.0) is None
    left.update(None, 0.0)  # bringing a fabric up
    left.update(0.0, 5.0)
    assert left.seconds(6.0) is None
    left.update(0.25, 15.0)
    assert left.seconds(15.0) == 30.0
    assert left.seconds(20.0) == 25.0
    assert left.seconds(99.0) == 0.0


@pytest.mark.parametrize(("duration_s", "text"), [(0, "0:00"), (59.6, "1:00"), (125, "2:05"), (3600, "1:00:00")])
def test_clocks(duration_s: float, text: str) -> None:
    assert clock(duration_s) == text
