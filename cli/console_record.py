"""What ``record`` does in a console: the messages that the live page would show, into a recording."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.errors import ConsoleError
from cli.recordings import new_recording
from dashboard.live import Board

if TYPE_CHECKING:
    from emulator.manager import RunningFabric


class ConsoleRecording:
    """At most one recording of a fabric at a time."""

    def __init__(self, running: RunningFabric) -> None:
        self._running = running
        self._path: Path | None = None
        self._open = ExitStack()

    def order(self, word: str) -> str:
        """Start to record in the file ``word``, stop (``stop``), or tell (nothing); a sentence about it.

        Raises ConsoleError for what is not possible now and RecordingError for a file that cannot be made.
        """
        if word == "stop":
            path = self._path
            if path is None:
                raise ConsoleError("nothing is being recorded: 'record FILE' begins")
            self.stop()
            return f"recorded in {path}; 'railbed dashboard --replay {path}' shows it"
        if self._path is not None:
            if word:
                raise ConsoleError(f"a recording goes on in {self._path}: 'record stop' ends it")
            return f"recording in {self._path}; 'record stop' ends it"
        if not word:
            return "nothing is being recorded: 'record FILE' begins"
        return self._start(Path(word))

    def _start(self, path: Path) -> str:
        with ExitStack() as stack:
            recorder = stack.enter_context(new_recording(path))
            in_turn = threading.Lock()

            def write(message: dict[str, Any]) -> None:
                with in_turn:  # the board has two threads, and time must not go back
                    recorder.write(time.monotonic(), message)

            name = self._running.name
            write({"event": "boards", "names": [name]})
            board = Board(name, lambda: self._running, write, began=lambda: None)
            board.start()
            stack.callback(board.stop)
            self._open = stack.pop_all()
        self._path = path
        return f"recording in {path}; 'record stop' or leaving the console ends it"

    def stop(self) -> None:
        """End it, if one goes on."""
        self._open.close()
        self._path = None
