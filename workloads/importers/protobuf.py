"""The protobuf wire format, as far as messages of numbers, strings and nested messages need it.

Every field is a key (number and wire type, as a varint) and a value. See the "Encoding" page of the protobuf
documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

from topologies.importers.errors import MalformedFileError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class WireError(MalformedFileError):
    """The bytes are not a protobuf message. ``cut`` is True where they only end too early."""

    def __init__(self, what: str, cut: bool) -> None:
        super().__init__(what)
        self.cut = cut


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, place behind it) of the varint at ``at``. Raises WireError."""
    value = shift = 0
    for offset in range(_MAX_VARINT_BYTES):
        if at + offset >= len(data):
            raise WireError("a number breaks off", cut=True)
        byte = data[at + offset]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + offset + 1
        shift += 7
    raise WireError("a number is longer than 10 bytes", cut=False)


def signed(value: int) -> int:
    """The signed number behind the varint of an ``int32`` or ``int64`` field."""
    return value - (1 << 64) if value >= 1 << 63 else value


def messages(data: bytes) -> Iterator[bytes]:
    """The messages of a length-delimited stream. Raises WireError."""
    at = 0
    while at < len(data):
        length, at = varint(data, at)
        if at + length > len(data):
            raise WireError(f"a message of {length} bytes breaks off after {len(data) - at}", cut=True)
        yield data[at : at + length]
        at += length


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of a message, in order: numbers unsigned, the rest as bytes. Raises WireError."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        number, wire_type = key >> 3, key & 7
        if number == 0:
            raise WireError("field number 0", cut=False)
        if wire_type == VARINT:
            value, at = varint(message, at)
            yield number, value
            continue
        if wire_type == BYTES:
            length, at = varint(message, at)
        elif wire_type in (FIXED64, FIXED32):
            length = 8 if wire_type == FIXED64 else 4
        else:
            raise WireError(f"wire type {wire_type}", cut=False)
        if at + length > len(message):
            raise WireError(f"a field of {length} bytes breaks off after {len(message) - at}", cut=True)
        yield number, message[at : at + length]
        at += length


def packed(value: int | bytes) -> list[int]:
    """The numbers of a repeated varint field: packed into bytes, or one by itself."""
    if isinstance(value, int):
        return [value]
    numbers = []
    at = 0
    while at < len(value):
        number, at = varint(value, at)
        numbers.append(number)
    return numbers
