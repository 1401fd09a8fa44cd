"""Output of nccl-tests: no workload, but the measured curve that a run is compared with.

The columns differ between tests and versions, so they are taken from the header of the table. ``size`` is the larger
buffer of a rank. Times are microseconds in the log and seconds here; bandwidths are decimal GB/s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from topologies.importers.errors import CountMismatchError, MalformedFileError
from workloads.importers.errors import NoCollectivesError
from workloads.importers.source import truncated

KIND = "nccl-tests"
TITLE = "nccl-tests log"

_PREFIX = re.compile(r"^(?:\[[\w,]+\]<\w+>:\s?|\d+:\s)")  # mpirun --tag-output, srun --label
_RANK = re.compile(r"#\s+Rank\s+(\d+)\b")
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*([\d.]+)")
_LEADING = ("size", "count", "type")
_OPTIONAL = ("redop", "root")
_US = 1e-6
_TOLERANCE = 0.01  # of busbw/algbw, both of which the log rounds to 0.01 GB/s

_ALL_REDUCE, _PARTS, _ROOTED = "all-reduce", "gather, scatter or all-to-all", "reduce or broadcast"


@dataclass(frozen=True)
class Timing:
    """One measurement of a row: time and the two bandwidths in decimal GB/s; ``wrong`` is the log's error column."""

    time_s: float
    algbw_gbytes_per_s: float
    busbw_gbytes_per_s: float
    wrong: str


@dataclass(frozen=True)
class Row:
    """One size: bytes, elements, their type, and how long it took out of place and in place (None: not measured)."""

    size_bytes: int
    count: int
    dtype: str
    redop: str
    root: int | None
    out_of_place: Timing | None
    in_place: Timing | None

    @property
    def timings(self) -> tuple[Timing, ...]:
        """The measurements that were made."""
        return tuple(timing for timing in (self.out_of_place, self.in_place) if timing is not None)


@dataclass(frozen=True)
class NcclTestsLog:
    """The table of a log.

    ``ranks`` come from the log's list of ranks, else from busbw/algbw (``ranks_from`` says which); None where neither
    tells. ``collective`` is what the bandwidths allow: ``all-reduce`` for the factor 2(n-1)/n, ``gather, scatter or
    all-to-all`` for (n-1)/n, ``reduce or broadcast`` for 1; empty where they do not tell.
    """

    rows: tuple[Row, ...]
    ranks: int | None
    ranks_from: str
    collective: str
    average_busbw_gbytes_per_s: float | None
    other_lines: int


def matches(text: str) -> bool:
    """Whether ``text``, the start of a file, can be that of such a log."""
    return any(_columns(_PREFIX.sub("", line)) for line in text.splitlines())


def parse(name: str, text: str) -> NcclTestsLog:
    """The log called ``name``.

    Raises MalformedFileError, TruncatedFileError (the last row breaks off), NoCollectivesError (no rows) and
    CountMismatchError (the stated average is not that of the rows).
    """
    columns: list[str] = []
    rows: list[Row] = []
    listed: set[int] = set()
    average: float | None = None
    other = 0
    lines = text.splitlines()
    for number, raw in enumerate(lines, 1):
        line = _PREFIX.sub("", raw).rstrip()
        if found := _columns(line):
            columns = found
        elif rank := _RANK.match(line):
            listed.add(int(rank.group(1)))
        elif mean := _AVERAGE.match(line):
            average = float(mean.group(1))
        elif columns and re.match(r"\s*\d+\s+\d+\s+[a-z]", line):
            rows.append(_row(name, number, columns, line.split(), number == len(lines)))
        elif line and not line.startswith("#"):
            other += 1
    if not rows:
        raise NoCollectivesError(f"{name} has no row of measurements; give the output of a test that ran")
    measured = [timing.busbw_gbytes_per_s for row in rows for timing in row.timings]
    mean_of_rows = sum(measured) / max(1, len(measured))
    if average is not None and abs(mean_of_rows - average) > max(0.01, 0.005 * average):
        raise CountMismatchError(
            f"{name} states an average bus bandwidth of {average:g} GB/s, but that of its {len(rows)} rows is "
            f"{mean_of_rows:g}; rows are missing: copy the log again"
        )
    collective, ranks = _told_by_bandwidth(rows, len(listed) or None)
    ranks_from = "the list of ranks" if listed else "busbw/algbw" if ranks else ""
    return NcclTestsLog(tuple(rows), ranks, ranks_from, collective, average, other)


def _columns(line: str) -> list[str]:
    """The column names of a header line; empty for any other line."""
    words = line.lstrip("# ").split()
    return words if line.startswith("#") and tuple(words[:3]) == _LEADING and words.count("busbw") == 2 else []


def _row(name: str, number: int, columns: list[str], words: list[str], last: bool) -> Row:
    # A header names an optional column although the row leaves it empty: all-to-all has no redop.
    timings = 2 * (columns[columns.index("time") :].index("time", 1))
    optional = [column for column in columns if column in _OPTIONAL]
    extra = len(words) - len(_LEADING) - timings
    if extra < 0 and last:
        raise truncated(name, f"line {number}, its last, breaks off")
    try:
        if extra not in (0, len(optional)):
            raise ValueError(f"{len(words)} values for the columns {' '.join(columns)}")
        named = dict(zip(optional, words[3 : 3 + extra], strict=False))
        first = len(_LEADING) + extra
        half = timings // 2
        root = named.get("root")
        return Row(
            int(words[0]), int(words[1]), words[2], named.get("redop", ""), int(root) if root is not None else None,
            _timing(words[first : first + half]), _timing(words[first + half :]),
        )  # fmt: skip
    except ValueError as error:
        raise MalformedFileError(f"{name}, line {number}: {error}; copy the log again") from None


def _timing(words: list[str]) -> Timing | None:
    if words[0] == "N/A":
        return None
    return Timing(float(words[0]) * _US, float(words[1]), float(words[2]), words[3] if len(words) > 3 else "")


def _told_by_bandwidth(rows: list[Row], ranks: int | None) -> tuple[str, int | None]:
    """(collective, ranks) that busbw/algbw allows; ``ranks`` is kept where it is known already.

    The factor is 2(n-1)/n for an all-reduce, (n-1)/n where every rank has a part of its own, and 1 for the rooted ones.
    """
    timings = [timing for row in rows for timing in row.timings]
    best = max((timing.algbw_gbytes_per_s for timing in timings), default=0.0)
    ratios = [  # of the fast rows, where rounding to 0.01 GB/s does not matter
        timing.busbw_gbytes_per_s / timing.algbw_gbytes_per_s
        for timing in timings
        if timing.algbw_gbytes_per_s >= max(1.0, best / 4)
    ]
    if not ratios:
        return "", ranks
    ratio = sum(ratios) / len(ratios)
    if ranks == 2 and abs(ratio - 1) < _TOLERANCE:
        return "", ranks  # an all-reduce of two ranks has the factor 1 too
    if ratio > 1 + _TOLERANCE:
        name, share = _ALL_REDUCE, ratio / 2
    elif ratio < 1 - _TOLERANCE / 4:
        name, share = _PARTS, ratio
    else:
        return _ROOTED, ranks
    return name, ranks or (round(1 / (1 - share)) if share < 1 else None)
