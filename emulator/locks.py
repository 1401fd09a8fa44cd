"""Locks that are files: they end with their holder, and their files may be removed while others wait for them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO


@contextmanager
def exclusive(path: Path) -> Iterator[int]:
    """Hold the lock at ``path``, which is made with its folder if it is not there; waits for another holder.

    Gives a descriptor: a child process that inherits it holds the lock too until it closes it. Whoever holds the lock
    may remove its file: those who waited for the removed one notice and take the new one.
    """
    while (lock := _acquired(path)) is None:
        pass
    with lock:
        yield lock.fileno()


def _acquired(path: Path) -> TextIO | None:
    """The open file of a lock that is held now; None if its file was removed meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = open(path, "a")  # noqa: SIM115 - closing it is what lets the lock go
    except FileNotFoundError:
        return None
    fcntl.flock(lock, fcntl.LOCK_EX)
    with suppress(FileNotFoundError):
        if os.stat(path).st_ino == os.fstat(lock.fileno()).st_ino:
            return lock
    lock.close()
    return None


def remove_if_free(path: Path) -> None:
    """Remove a lock's file unless somebody holds it."""
    with suppress(OSError), open(path) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
