"""A command line as a user types it, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.main import main


def typed(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """The exit code of ``railbed WORDS``, and what it wrote to its two outputs."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err
