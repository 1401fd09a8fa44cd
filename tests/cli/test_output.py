from __future__ import annotations

import sys

import pytest

from cli.output import progress, table


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
