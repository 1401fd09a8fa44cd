"""Opening files: gzip or not, as text or bytes, with progress, and with one sentence for what is broken."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from topologies.importers.errors import ImportFileError, MalformedFileError, TruncatedFileError

GZIP_MAGIC = b"\x1f\x8b"
HEAD_BYTES = 256 * 1024
READ_CHARACTERS = 1 << 22

Progress = Callable[[float], None]
"""Told the share of a file that has been read, 0 to 1."""


class Source:
    """One file to import. ``name`` is what messages call it."""

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self.name = path.name
        self._progress = progress

    def head(self) -> bytes:
        """The first bytes of the content, unzipped: enough to recognise it. A broken file gives what it has."""
        raw, content = self._open()
        parts: list[bytes] = []
        with raw, suppress(EOFError, zlib.error, gzip.BadGzipFile):
            # In small steps, because a broken gzip file loses the step in which it breaks off.
            while sum(map(len, parts)) < HEAD_BYTES and (part := content.read(8192)):
                parts.append(part)
        return b"".join(parts)

    def data(self) -> bytes:
        """The whole content, unzipped. Raises TruncatedFileError and MalformedFileError for a broken gzip file."""
        raw, content = self._open()
        with raw:
            return self._guarded(content.read)

    def text(self) -> str:
        """The whole content as text; bytes that are no UTF-8 are replaced."""
        return self.data().decode("utf-8", "replace").replace("\r\n", "\n")

    def reader(self) -> TextReader:
        """A reader of the content as text, for files that may be larger than memory. Use it in a ``with``."""
        return TextReader(self)

    def _open(self) -> tuple[BinaryIO, BinaryIO]:
        try:
            raw = self.path.open("rb")
        except OSError as error:
            raise ImportFileError(f"{self.path} cannot be read: {error.strerror}; check the path") from None
        zipped = raw.read(2) == GZIP_MAGIC
        raw.seek(0)
        return raw, cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if zipped else raw

    def _guarded(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except EOFError:
            raise truncated(self.name, "its gzip stream breaks off") from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise MalformedFileError(f"{self.name} is a damaged gzip file ({error}); copy it again") from None


class TextReader:
    """Reads text in pieces, tells the progress, and turns a broken gzip stream into one sentence."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._raw, content = source._open()
        self._size_bytes = max(1, os.fstat(self._raw.fileno()).st_size)
        self._text = io.TextIOWrapper(io.BufferedReader(cast(io.RawIOBase, content), 1 << 20), "utf-8", "replace")
        self.name = source.name

    def __enter__(self) -> TextReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._text.close()
        self._raw.close()

    def read(self, characters: int) -> str:
        """Up to so many characters; empty at the end."""
        try:
            piece = self._text.read(characters)
        except EOFError:
            raise truncated(self.name, "its gzip stream breaks off") from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise MalformedFileError(f"{self.name} is a damaged gzip file ({error}); copy it again") from None
        if self._source._progress is not None:
            self._source._progress(min(1.0, self._raw.tell() / self._size_bytes))
        return piece


def truncated(name: str, evidence: str) -> TruncatedFileError:
    """The error for a file that breaks off; ``evidence`` completes "is truncated: ..."."""
    return TruncatedFileError(f"{name} is truncated: {evidence}; copy or record it again")
