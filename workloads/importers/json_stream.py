"""JSON objects too large for memory, read one array element at a time.

The standard library's scanner, written in C, decodes one value at a given place of a string and says where it ends.
That is all a streaming reader of "one object with a few long arrays" needs: it keeps one piece of the text in memory,
decodes element after element, and reads on when an element breaks off at the end of the piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Protocol

from topologies.importers.errors import MalformedFileError
from workloads.importers.source import READ_CHARACTERS, truncated

MAX_ELEMENT_CHARACTERS = 1 << 26
"""Text after which an element that still has no end is taken for damage rather than for a long element."""

_SPACE = re.compile(r"[ \t\n\r]*")
_NEXT = re.compile(r"[ \t\n\r]*([,\]])[ \t\n\r]*")
_NEAR_END_CHARACTERS = 8  # a cut literal or escape fails a few characters before the end


class Reads(Protocol):
    """What is read from: text with a name for messages."""

    name: str

    def read(self, characters: int) -> str:
        """Up to so many characters; empty at the end."""


def members(reader: Reads, arrays: Collection[str], piece: int = READ_CHARACTERS) -> Iterator[tuple[str, Any]]:
    """The members of the JSON object in ``reader`` as (key, value), in order.

    The values of the keys in ``arrays``, where they are arrays, come one element at a time, each with the key. Raises
    TruncatedFileError where the text breaks off and MalformedFileError where it is not a JSON object.
    """
    return _Scan(reader, arrays, piece).run()


class _Scan:
    def __init__(self, reader: Reads, arrays: Collection[str], piece: int) -> None:
        self._reader = reader
        self._arrays = arrays
        self._piece = piece
        self._text = ""
        self._at = 0
        self._before = 0  # characters of the file before self._text
        self._ended = False
        # Control characters in strings are wrong JSON, but profilers write them in names.
        self._decode = json.JSONDecoder(strict=False).raw_decode

    def run(self) -> Iterator[tuple[str, Any]]:
        if self._peek() != "{":
            raise MalformedFileError(f"{self._reader.name} is not a JSON object; give the file as it was recorded")
        self._at += 1
        while True:
            if self._peek() == "}":
                self._at += 1
                break
            key = self._value()
            if self._peek() != ":" or not isinstance(key, str):
                raise self._malformed()
            self._at += 1
            if key in self._arrays and self._peek() == "[":
                self._at += 1
                for element in self._elements():
                    yield key, element
            else:
                yield key, self._value()
            if self._peek() == ",":
                self._at += 1
            elif self._peek() != "}":
                raise self._malformed()
        if self._peek(at_end=True):
            raise self._malformed()

    def _elements(self) -> Iterator[Any]:
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            yield self._value()
            found = _NEXT.match(self._text, self._at)
            while found is None:
                if self._text[self._at :].strip():
                    raise self._malformed()
                self._refill()
                found = _NEXT.match(self._text, self._at)
            self._at = found.end()
            if found.group(1) == "]":
                return

    def _value(self) -> Any:
        """The value at the present place; reads on until it is whole."""
        self._peek()
        wanted = self._piece
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended:
                    raise self._broken(error) from None
                if len(self._text) - self._at > MAX_ELEMENT_CHARACTERS:
                    self._at = error.pos
                    raise self._malformed() from None
            else:
                # A number near the end of the piece may go on in the next one.
                if end + _NEAR_END_CHARACTERS <= len(self._text) or self._ended:
                    self._at = end
                    return value
            self._refill(wanted)
            wanted *= 2

    def _peek(self, at_end: bool = False) -> str:
        """The next character that is no space, moved to; empty only ``at_end``."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                if at_end:
                    return ""
                raise truncated(self._reader.name, "it ends inside the JSON text")
            self._refill()

    def _refill(self, wanted: int = 0) -> None:
        if self._ended:
            raise truncated(self._reader.name, "it ends inside the JSON text")
        more = self._reader.read(wanted or self._piece)
        self._ended = not more
        self._before += self._at
        self._text = self._text[self._at :] + more
        self._at = 0

    def _broken(self, error: json.JSONDecodeError) -> Exception:
        cut = error.msg.startswith("Unterminated")
        if cut or error.pos >= len(self._text.rstrip()) - _NEAR_END_CHARACTERS:
            return truncated(self._reader.name, "it ends inside the JSON text")
        self._at = error.pos
        return self._malformed()

    def _malformed(self) -> MalformedFileError:
        place = self._before + self._at + 1
        shown = " ".join(self._text[self._at : self._at + 30].split())
        return MalformedFileError(
            f"{self._reader.name} is not valid JSON at character {place} ({shown!r}); record the trace again"
        )
