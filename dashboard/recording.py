"""A recording of the page: every message that viewers were shown, one JSON object a line, with its time.

The first line is ``{"railbed_recording": 1}``. Every other line has ``at_s``, seconds since the recording began, and
``message``. A last line that was cut off, as a crash leaves it, is no mistake.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from dashboard.errors import RecordingError

FORMAT = 1


class Shown(NamedTuple):
    """One message and when it was shown, in seconds since the recording began."""

    at_s: float
    message: dict[str, Any]


class Recorder:
    """Writes a recording to a text stream, line by line."""

    def __init__(self, stream: TextIO, began_s: float) -> None:
        """Write to ``stream``; ``began_s`` is the clock's time of the beginning."""
        self._stream = stream
        self._began_s = began_s
        self._write({"railbed_recording": FORMAT})

    def write(self, now_s: float, message: dict[str, Any]) -> None:
        """Add a message that was shown at ``now_s`` by the clock of ``began_s``."""
        self._write({"at_s": round(max(0.0, now_s - self._began_s), 3), "message": message})

    def _write(self, line: dict[str, Any]) -> None:
        self._stream.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._stream.flush()


def read_recording(path: Path) -> list[Shown]:
    """All messages of a recording, in order; raises RecordingError, with file and line, for what is none."""
    try:
        with path.open(encoding="utf-8") as lines:
            shown = list(_read(path, lines))
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"{path} cannot be read as a recording: {error}") from None
    if not shown:
        raise RecordingError(f"{path} is an empty recording: nothing was shown")
    return shown


def _read(path: Path, lines: Iterator[str]) -> Iterator[Shown]:
    before_s = 0.0
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
        except ValueError:
            if number > 1 and not text.endswith("\n"):
                return
            raise RecordingError(f"{path}, line {number}: this is no line of a recording of the dashboard") from None
        if number == 1:
            if not isinstance(line, dict) or line.get("railbed_recording") != FORMAT:
                raise RecordingError(f"{path} is no recording of the dashboard that this version reads")
            continue
        at_s = line.get("at_s") if isinstance(line, dict) else None
        if not isinstance(at_s, (int, float)) or isinstance(at_s, bool) or not isinstance(line.get("message"), dict):
            raise RecordingError(f"{path}, line {number}: a line needs 'at_s' and 'message'")
        if not isinstance(line["message"].get("event"), str) or not before_s <= at_s < float("inf"):
            raise RecordingError(f"{path}, line {number}: the message has no 'event', or its time goes back")
        before_s = float(at_s)
        yield Shown(before_s, line["message"])
