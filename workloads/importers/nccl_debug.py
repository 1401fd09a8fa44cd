"""Logs of ``NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL``: one line per rank and call, without times or group members."""

from __future__ import annotations

import re

from topologies.importers.errors import MalformedFileError
from workloads.importers.errors import RankCountError
from workloads.importers.model import ONE_SIDED, Call, GroupRef, Kind, Program, Reading, Tally
from workloads.importers.source import Source

KIND = "nccl-debug"
TITLE = "NCCL debug log (COLL)"

_LINE = re.compile(
    r"(?P<process>\S+:\d+):\d+ \[(?P<device>\d+)\] NCCL INFO (?P<op>\w+): opCount (?P<turn>[0-9a-f]+) .*?"
    r"count (?P<count>\d+) datatype (?P<dtype>\d+) op \d+ root (?P<root>-?\d+) comm (?P<comm>\S+) "
    r"\[nranks=(?P<ranks>\d+)\](?:.*?globalrank (?P<rank>\d+))?"
)
_KINDS = {
    "AllReduce": Kind.ALL_REDUCE, "AllGather": Kind.ALL_GATHER, "ReduceScatter": Kind.REDUCE_SCATTER,
    "AllToAll": Kind.ALL_TO_ALL, "Broadcast": Kind.BROADCAST, "Reduce": Kind.REDUCE, "Gather": Kind.GATHER,
    "Scatter": Kind.SCATTER, "Send": Kind.SEND, "Recv": Kind.RECV,
}  # fmt: skip
# ncclDataType_t: the name and the bytes of an element.
_DTYPES = (
    ("int8", 1), ("uint8", 1), ("int32", 4), ("uint32", 4), ("int64", 8), ("uint64", 8), ("half", 2), ("float", 4),
    ("double", 8), ("bfloat16", 2), ("float8e4m3", 1), ("float8e5m2", 1),
)  # fmt: skip


def matches(text: str) -> bool:
    """Whether ``text``, the start of a file, can be that of such a log."""
    return any(_LINE.search(line) for line in text.splitlines()[:2000])


def read(source: Source) -> Reading:
    """The programs of the ranks in the log; a rank is its ``globalrank``, else its place among the communicators.

    Raises MalformedFileError for an unknown operation or number format, and RankCountError for communicators of
    different sizes, whose members the log does not tell.
    """
    tally = Tally()
    calls: dict[int, list[Call]] = {}
    speakers: dict[tuple[str, str], int] = {}
    sizes: set[int] = set()
    for number, line in enumerate(source.text().splitlines(), 1):
        found = _LINE.search(line)
        if found is None:
            if line.strip():
                tally.facts["other_lines"] = tally.facts.get("other_lines", 0) + 1
            continue
        kind, dtype = _KINDS.get(found["op"]), int(found["dtype"])
        if kind is None or dtype >= len(_DTYPES):
            raise MalformedFileError(
                f"{source.name}, line {number}: operation '{found['op']}' with datatype {dtype} is not known; "
                "import another kind of trace"
            )
        speaker = (found["process"], found["comm"])
        if found["rank"] is None:
            tally.rule("the log does not name ranks: they are counted in the order in which communicators appear")
        rank = int(found["rank"]) if found["rank"] is not None else speakers.setdefault(speaker, len(speakers))
        name, width = _DTYPES[dtype]
        size_bytes = int(found["count"]) * width
        # NCCL's count is that of the smaller buffer of an all-gather or reduce-scatter.
        sent = None if kind is Kind.REDUCE_SCATTER else size_bytes
        received = None if kind is Kind.ALL_GATHER else size_bytes
        sizes.add(int(found["ranks"]))
        call = Call(kind, GroupRef("", (), int(found["ranks"]), whole=True), sent, received, name)
        if kind in ONE_SIDED:
            tally.skip_call("send or receive whose peer is not in the file", call)
            continue
        tally.use()
        calls.setdefault(rank, []).append(call)
    if len(sizes) > 1:
        raise RankCountError(
            f"{source.name} has communicators of {', '.join(map(str, sorted(sizes)))} ranks, whose members it does not "
            "tell; import a profiler trace instead"
        )
    programs = tuple(Program(f"rank {rank}", frozenset({rank}), tuple(calls[rank])) for rank in sorted(calls))
    return Reading(KIND, TITLE, (source.name,), programs, next(iter(sizes), None), tally)
