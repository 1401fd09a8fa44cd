"""What was typed into consoles, kept over sessions in the user's state folder."""

from __future__ import annotations

import pwd
import readline
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from experiments.files import give_to_caller, make_folder

MOST_LINES = 1000


def state_folder(environment: Mapping[str, str]) -> Path:
    """Where programs keep state of their user, who called sudo if somebody did: the XDG folder, by its rules."""
    uid = environment.get("SUDO_UID", "")
    if uid.isdigit():
        with suppress(KeyError):
            return Path(pwd.getpwuid(int(uid)).pw_dir) / ".local" / "state" / "railbed"
    given = environment.get("XDG_STATE_HOME", "")
    base = Path(given) if given.startswith("/") else Path(environment.get("HOME", "/")) / ".local" / "state"
    return base / "railbed"


@contextmanager
def kept_history(path: Path) -> Iterator[None]:
    """Have the lines of ``path`` at hand, and add those of the body, beside what other consoles add meanwhile.

    Where that is not possible there is no history, and nothing is said of it.
    """
    readline.clear_history()
    with suppress(OSError):
        readline.read_history_file(path)
    before = readline.get_current_history_length()
    try:
        yield
    finally:
        new = readline.get_current_history_length() - before
        with suppress(OSError):
            make_folder(path.parent)
            if new > 0:
                path.touch(mode=0o600)
                give_to_caller(path)
                readline.append_history_file(new, path)
                _shorten(path)


def _shorten(path: Path) -> None:
    """Keep the newest lines only."""
    lines = path.read_text(errors="replace").splitlines(keepends=True)
    if len(lines) > 2 * MOST_LINES:
        path.write_text("".join(lines[-MOST_LINES:]))
