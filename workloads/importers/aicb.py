"""AICB workloads and results: CSV, one section for all ranks or one per pipeline stage.

A section may start with a line that names its ranks, then the CSV header, whose columns differ between versions. Sizes
are the larger buffer of a rank, as in nccl-tests: AICB's own results put an all-gather at 264 GB/s over NVLink of
300 GB/s, which no smaller reading of the size allows. Rows of set-up and of warm-up are set aside; ``epoch_end`` ends
an iteration.

Ranks are numbered as Megatron does it: tensor-parallel neighbours first, then data-parallel ones, then stages.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from topologies.importers.errors import MalformedFileError
from workloads.importers.errors import RankCountError
from workloads.importers.groups import blocks, strided
from workloads.importers.model import Call, GroupRef, Kind, Members, Program, Reading, Tally
from workloads.importers.source import Source, truncated

KIND = "aicb"
TITLE = "AICB workload (csv)"

_COLUMNS = ("comm_type", "comm_group", "msg_size", "stage")
_RANGE = re.compile(r"\[\s*rank(\d+)\s*~\s*rank(\d+)\s*\]\s*$")
_STAGE = re.compile(r"\[\s*(\w+)\s*:\s*\[([^\]]*)\]\s*\]\s*$")
_KINDS = {kind.value.replace("-", "_"): kind for kind in Kind}
_KINDS.update(isend=Kind.SEND, irecv=Kind.RECV, all_gather_into_tensor=Kind.ALL_GATHER)
_SETUP, _WARMUP = "set-up, not part of an iteration", "warm-up, not part of an iteration"
_MEASURED_BANDWIDTH_GBPS = 1.0  # GB/s; below it the two rounded bandwidths do not tell the number of ranks
_MS = 1e-3


@dataclass
class _Row:
    number: int
    type: str
    group: str
    group_size: int | None
    size_bytes: int
    stage: str
    towards: str
    time_s: float | None
    ranks_by_bandwidth: float | None


@dataclass
class _Section:
    name: str
    ranks: tuple[int, ...] | None
    rows: list[_Row] = field(default_factory=list)


def matches(text: str) -> bool:
    """Whether ``text``, the start of a file, can be that of such a workload."""
    return any(_is_header(line) for line in text.lstrip("\ufeff").splitlines()[:3])


def _is_header(line: str) -> bool:
    return line.startswith("comm_type,comm_group,")


def read(source: Source, gpus: int | None) -> Reading:
    """The programs of the sections. ``gpus`` is the number of ranks where the file does not say it.

    Raises MalformedFileError and TruncatedFileError for rows that cannot be read, and RankCountError for groups that
    do not fit the ranks.
    """
    tally = Tally()
    sections = list(_sections(source.name, source.text()))
    stated = [rank for section in sections for rank in section.ranks or ()]
    if len(stated) != len(set(stated)):
        raise MalformedFileError(f"{source.name}: a rank is in two sections; write the file again")
    ranks = max(stated) + 1 if stated else _by_bandwidth(sections, tally)
    n = gpus if ranks is None else ranks
    for section in sections:
        if section.ranks is None and n is not None:
            section.ranks = tuple(range(n))
    _note_iterations(sections, tally)
    tally.rule(
        "ranks are numbered as Megatron does it: tensor-parallel neighbours, then data-parallel ones, then stages"
    )
    placed = _Placement(sections, n)
    programs = [
        Program(section.name, frozenset(section.ranks or ()), tuple(_calls(source.name, section, index, placed, tally)))
        for index, section in enumerate(sections)
    ]
    tally.facts["rows"] = sum(len(section.rows) for section in sections)
    tally.facts["sections"] = len(sections)
    return Reading(KIND, TITLE, (source.name,), tuple(programs), ranks, tally)


def _sections(file: str, text: str) -> Iterator[_Section]:
    section: _Section | None = None
    columns: list[str] = []
    ranks: tuple[int, ...] | None = None
    name, named = "all ranks", False
    lines = text.lstrip("\ufeff").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if line.startswith("["):
            (name, ranks), named = _ranks_line(file, number, line), True
        elif _is_header(line):
            columns = line.strip().split(",")
            if not set(_COLUMNS) <= set(columns):
                missing = ", ".join(sorted(set(_COLUMNS) - set(columns)))
                raise MalformedFileError(f"{file}, line {number}: the header lacks {missing}; write the file again")
            if named or section is None:  # a header alone goes on with the section
                if section is not None:
                    yield section
                section, named = _Section(name, ranks), False
        elif section is None:
            raise MalformedFileError(f"{file}, line {number}: a row comes before the header; write the file again")
        else:
            words = next(csv.reader([line]))
            if len(words) != len(columns):
                if number == len(lines) and len(words) < len(columns):
                    raise truncated(file, f"line {number}, its last, has {len(words)} of {len(columns)} columns")
                raise MalformedFileError(
                    f"{file}, line {number}: the row has {len(words)} columns, the header {len(columns)}; "
                    "write the file again"
                )
            section.rows.append(_row(file, number, dict(zip(columns, words, strict=True))))
    if section is not None:
        yield section


def _ranks_line(file: str, number: int, line: str) -> tuple[str, tuple[int, ...]]:
    text = line.strip()
    if found := _RANGE.match(text):
        return "all ranks", tuple(range(int(found.group(1)), int(found.group(2)) + 1))
    if found := _STAGE.match(text):
        return found.group(1), tuple(int(rank) for rank in re.findall(r"rank(\d+)", found.group(2)))
    raise MalformedFileError(
        f"{file}, line {number}: '{text[:60]}' does not name ranks as '[rank0 ~ rank7]' or "
        "'[ pp_stage0: [rank0, ...] ]'; write the file again"
    )


def _row(file: str, number: int, columns: Mapping[str, str]) -> _Row:
    def value(name: str) -> str | None:
        text = columns.get(name, "").strip()
        return None if text in ("", "None") else text

    try:
        algbw, busbw = float(value("algbw") or 0), float(value("busbw") or 0)
        kind = (value("comm_type") or "").removeprefix("CommType.")
        time_ms = value("_elapsed_time")
        return _Row(
            number, kind, (value("comm_group") or "").removeprefix("CommGroup.").removesuffix("_group"),
            int(value("comm_group_size") or 0) or None, int(float(value("msg_size") or 0)), value("stage") or "",
            value("additional") or "", float(time_ms) * _MS if time_ms else None,
            _ranks_of_ratio(kind, busbw / algbw) if algbw >= _MEASURED_BANDWIDTH_GBPS else None,
        )  # fmt: skip
    except (OverflowError, ValueError) as error:
        raise MalformedFileError(f"{file}, line {number}: {error}; write the file again") from None


def _ranks_of_ratio(kind: str, ratio: float) -> float | None:
    """The number of ranks n behind busbw/algbw: 2(n-1)/n for an all-reduce, (n-1)/n for gathering and scattering."""
    share = ratio / 2 if kind == "all_reduce" else ratio
    return 1 / (1 - share) if kind in ("all_reduce", "all_gather", "reduce_scatter") and 0 < share < 1 else None


def _by_bandwidth(sections: Sequence[_Section], tally: Tally) -> int | None:
    """The number of ranks that the measured bandwidths of a results file tell; None without any."""
    told = [
        row.ranks_by_bandwidth for section in sections for row in section.rows if row.ranks_by_bandwidth is not None
    ]
    if not told:
        return None
    ranks = round(statistics.median(told))
    tally.rule(f"the file does not say how many ranks there were: busbw/algbw is that of {ranks} ranks")
    other = Counter(
        row.group_size
        for section in sections
        for row in section.rows
        if row.ranks_by_bandwidth and row.group_size != ranks
    )
    if other:
        sizes = ", ".join("none" if size is None else str(size) for size in sorted(other, key=lambda size: size or 0))
        tally.warn(
            f"comm_group_size is {sizes} in {sum(other.values())} rows whose busbw/algbw is that of {ranks} ranks; "
            "groups are made by the column, and of all ranks where it is empty"
        )
    return ranks


def _note_iterations(sections: Sequence[_Section], tally: Tally) -> None:
    ends = [[row for row in section.rows if row.type == "epoch_end"] for section in sections]
    tally.facts["epoch_ends"] = sum(map(len, ends))
    times = [row.time_s for row in ends[0] if row.time_s is not None] if ends else []
    if len(times) > 2:
        tally.facts["iteration_s"] = [round(time, 6) for time in times]
        median = statistics.median(times)
        slow = [time for time in times if time > 2 * median]
        if slow:
            shown = ", ".join(f"{time:.3f}" for time in slow)
            tally.warn(f"{len(slow)} of {len(times)} iterations took {shown} s, the median {median:.3f} s: warm-up")


class _Placement:
    """The groups of the rows, by section, name and size."""

    def __init__(self, sections: Sequence[_Section], ranks: int | None) -> None:
        self._sections = [section.ranks for section in sections]
        self._ranks = ranks
        self._tp = max(
            (row.group_size or 1 for section in sections for row in section.rows if row.group == "tp"), default=1
        )
        self._known: dict[tuple[int, str, int | None], GroupRef] = {}

    def group(self, section: int, row: _Row) -> GroupRef:
        """The group of a row. Raises RankCountError where the ranks cannot be cut into such groups."""
        key = (section, row.group, row.group_size)
        if key not in self._known:
            groups = self._groups(*key)
            size = len(groups[0]) if groups else row.group_size
            self._known[key] = GroupRef(row.group, groups, size, whole=row.group in ("all", ""))
        return self._known[key]

    def _groups(self, section: int, name: str, size: int | None) -> tuple[Members, ...]:
        ranks = self._sections[section]
        if ranks is None:
            return ()
        if name in ("pp", "embedding") and len(self._sections) > 1:
            stages = [one for one in self._sections if one is not None]
            stages = stages if name == "pp" else [stages[0], stages[-1]]
            if len({len(stage) for stage in stages}) > 1:
                sizes = ", ".join(str(len(stage)) for stage in stages)
                raise RankCountError(
                    f"the pipeline stages have {sizes} ranks, but must be equally large; correct the file"
                )
            return tuple(zip(*stages, strict=True))
        n = len(ranks)
        if size is None or size == n:
            return (tuple(ranks),)
        if size > n or n % size:
            raise RankCountError(
                f"{n} ranks cannot be cut into {name} groups of {size}; give --gpus a multiple of {size}"
            )
        if name in ("tp", "sp"):
            local = blocks(size, n)
        else:
            # Data-parallel and expert groups: neighbours are tp ranks apart, as long as that fits.
            stride = self._tp if n % (size * self._tp) == 0 else n // size
            span = size * stride
            local = tuple(strided(block + at, stride, size) for block in range(0, n, span) for at in range(stride))
        return tuple(tuple(ranks[place] for place in group) for group in local)

    def pairs(self, section: int, towards: str, sends: bool) -> tuple[Members, ...]:
        """The (source, destination) pairs of a send or receive between this stage and its neighbour."""
        other = section + (1 if towards.endswith("next") else -1)
        if not 0 <= other < len(self._sections):
            return ()
        here, there = self._sections[section], self._sections[other]
        if here is None or there is None or len(here) != len(there):
            return ()
        return tuple(zip(here, there, strict=True) if sends else zip(there, here, strict=True))


def _calls(file: str, section: _Section, index: int, placed: _Placement, tally: Tally) -> Iterator[Call]:
    gap_s = 0.0
    for row in section.rows:
        if row.type == "epoch_end":
            tally.skip("epoch_end, which separates iterations")
            continue
        if row.type == "computation":
            tally.skip("computation, kept as a gap between calls")
            gap_s += row.time_s or 0.0
            continue
        kind = _KINDS.get(row.type)
        if kind is None:
            raise MalformedFileError(
                f"{file}, line {row.number}: '{row.type}' is no communication that is known; known are "
                f"{', '.join(_KINDS)}"
            )
        call = _call(row, kind, placed.group(index, row))
        if row.stage.startswith("init"):
            tally.skip_call(_SETUP, call)
        elif row.stage.startswith("warmup"):
            tally.skip_call(_WARMUP, call)
        elif kind is Kind.BARRIER:
            tally.skip_call("barrier, which moves nothing", call)
        elif kind in (Kind.SEND, Kind.RECV):
            pairs = placed.pairs(index, row.towards, kind is Kind.SEND)
            if not pairs:
                tally.skip_call(f"message without a peer ({row.towards or row.type})", call)
                continue
            tally.use()
            yield replace(call, group=GroupRef("pp", pairs, 2), gap_s=gap_s)
            gap_s = 0.0
        elif row.size_bytes < 1:
            tally.skip_call("collective of size 0", call)
        else:
            tally.use()
            yield replace(call, gap_s=gap_s)
            gap_s = 0.0


def _call(row: _Row, kind: Kind, group: GroupRef) -> Call:
    size_bytes = 0 if kind is Kind.BARRIER else row.size_bytes
    sent: int | None = size_bytes
    received: int | None = size_bytes
    if kind in (Kind.ALL_GATHER, Kind.RECV):
        sent = None
    elif kind in (Kind.REDUCE_SCATTER, Kind.SEND):
        received = None
    return Call(kind, group, sent, received, duration_s=row.time_s, stage=row.stage)
