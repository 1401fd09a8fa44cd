"""Sizes and moments as people write them, and as they like to read them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*\Z")
_MOMENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%|s)\s*\Z")
_SIZE_UNITS = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip


def parse_size_bytes(value: object) -> int:
    """Bytes of a whole number, or of a text like ``64MiB`` or ``1.5 GB``; raises ValueError for anything else."""
    expected = "expected a size above 0 in bytes, as a whole number or with a unit like '64MiB' or '1GB'"
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str) and (found := _SIZE.match(value)):
        unit = found.group(2).lower() or "b"
        if unit in _SIZE_UNITS:
            size_bytes = float(found.group(1)) * _SIZE_UNITS[unit]
            if size_bytes >= 1 and size_bytes == int(size_bytes):
                return int(size_bytes)
        else:
            expected = f"unknown unit '{found.group(2)}'; the units are B, kB, MB, GB, TB, KiB, MiB, GiB and TiB"
    raise ValueError(f"{expected}, found {value!r}")


@dataclass(frozen=True)
class Moment:
    """A time in a run: a share of its predicted duration, or emulated seconds from its start."""

    value: float
    is_share: bool

    def seconds(self, duration_s: float) -> float:
        """Emulated seconds from the start of a run that is predicted to last ``duration_s``."""
        return self.value * duration_s if self.is_share else self.value

    def __str__(self) -> str:
        return f"{self.value * 100:g}%" if self.is_share else f"{self.value:g}s"


def parse_moment(value: object) -> Moment:
    """The moment written as ``40%`` (of the predicted duration) or ``2.5s``; raises ValueError for anything else."""
    if isinstance(value, Moment):
        return value
    if isinstance(value, str) and (found := _MOMENT.match(value)):
        number = float(found.group(1))
        return Moment(number / 100, True) if found.group(2) == "%" else Moment(number, False)
    raise ValueError(
        f"expected a share of the predicted duration like '40%' or emulated seconds like '2.5s', found {value!r}"
    )


def size_text(size_bytes: float) -> str:
    """A size to read, with a binary unit where it is a whole number of it: ``64 MiB``, ``1.5 GB``."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes / factor:.0f} {unit}"
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def duration_text(duration_s: float) -> str:
    """A duration to read: ``13.1 s``, ``6.56 ms``, ``21 us``."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if duration_s >= factor:
            return f"{duration_s / factor:.3g} {unit}"
    return f"{duration_s * 1e9:.3g} ns"


def rate_text(rate_mbps: float) -> str:
    """A rate to read: ``400 Gbit/s``, ``20 Mbit/s``."""
    if rate_mbps >= 1000:
        return f"{rate_mbps / 1000:.4g} Gbit/s"
    return f"{rate_mbps:.3g} Mbit/s"
