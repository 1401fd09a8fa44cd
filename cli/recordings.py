"""New recordings of the live page: where they are made, and that none is overwritten."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dashboard.errors import RecordingError
from dashboard.recording import Recorder
from experiments.files import give_to_caller, make_folder


@contextmanager
def new_recording(path: Path) -> Iterator[Recorder]:
    """A new recording in ``path``; raises RecordingError for a file that is there already, which is kept."""
    try:
        make_folder(path.parent)
        stream = path.open("x", encoding="utf-8")
    except OSError as error:
        raise RecordingError(f"nothing can be recorded in {path}: {error.strerror}; name another file") from None
    give_to_caller(path)
    with stream:
        yield Recorder(stream, time.monotonic())
