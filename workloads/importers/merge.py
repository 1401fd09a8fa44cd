"""From programs to one workload: calls of different ranks that belong together become one operation.

The rules:

- The k-th call of every rank on a communicator is the same operation. Ranks that disagree on what it is are refused.
- A send and the receive that it meets are one operation, which waits for what its sender waits for. Later calls of the
  receiver wait for it, later calls of the sender do not. A receive and a send right after it to the same peer are
  posted together: the send does not wait.
- On one rank a call waits for the calls that had ended when it started, where the file has times; for all calls before
  it where it has none; or for those that the file names.
- Calls of a missing rank are those of a known one: a group without any known rank does what the first known group of
  its family does.
"""

from __future__ import annotations

import bisect
import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from topologies.importers.errors import MalformedFileError
from workloads.importers.errors import NoCollectivesError, RankCountError, RankDisagreementError, StrictImportError
from workloads.importers.groups import blocks, family
from workloads.importers.model import (
    ONE_SIDED,
    Call,
    ImportReport,
    Kind,
    Members,
    Operation,
    Program,
    Reading,
    Workload,
    totals,
)

_Key = tuple[str, tuple[Members, ...]]
_REMEDY = "give files of the same steps of the same run, or one of them alone"


def merge(reading: Reading, *, gpus: int | None = None, strict: bool = False) -> Workload:
    """The workload of a reading. ``gpus`` is the number of GPUs of the fabric it is meant for, if that is known.

    Where the files do not say how many ranks there are, there are ``gpus``. Raises NoCollectivesError,
    RankDisagreementError, RankCountError (more ranks than GPUs), and with ``strict`` StrictImportError for ranks,
    groups and sizes that would have to be assumed.
    """
    if not any(program.calls for program in reading.programs):
        raise NoCollectivesError(_nothing(reading))
    ranks = _ranks(reading, gpus)
    known = frozenset(rank for program in reading.programs for rank in program.ranks)
    tally = reading.tally
    if ranks is None and any(call.group.groups for program in reading.programs for call in program.calls):
        ranks = 1 + _highest(reading)
        tally.rule(
            f"the files do not say how many ranks there were: {ranks}, one more than the highest in their groups"
        )
    unknown = sum(
        call.in_bytes is None and call.out_bytes is None and call.kind is not Kind.BARRIER
        for program in reading.programs
        for call in program.calls
    )
    if unknown:
        tally.warn(f"the size of {unknown} calls is not in the files; a schedule needs --unknown-size BYTES for them")
        if strict:
            raise StrictImportError(f"--strict: the size of {unknown} calls is not in the files; leave --strict out")
    if ranks is not None and len(known) < ranks and known:
        _missing(reading, known, ranks, strict)
        if any(
            call.kind is Kind.ALL_TO_ALL and (call.in_bytes != call.out_bytes or len({*call.in_splits}) > 1)
            for program in reading.programs
            for call in program.calls
        ):
            tally.rule(
                "in an uneven all-to-all the missing ranks send as much as the known ones in turn; of one known rank "
                "alone it is spread evenly"
            )
    programs = [_resolved(program, ranks, reading, strict) for program in reading.programs]
    operations = _operations(programs, known, ranks) if ranks is not None else _unplaced(programs)
    used = tally.read - sum(tally.set_aside.values())
    rows = [("", call.group.name, _group_size(call, ranks), call) for program in programs for call in program.calls] + [
        (reason, call.group.name, call.group.size, call) for reason, call in tally.aside_calls
    ]
    report = ImportReport(
        kind=reading.kind,
        title=reading.title,
        files=reading.files,
        ranks=ranks,
        known_ranks=len(known),
        read=tally.read,
        used=used,
        set_aside=dict(tally.set_aside),
        totals=totals(rows),
        facts=dict(tally.facts),
        rules=tuple(tally.rules),
        warnings=tuple(tally.warnings),
    )
    return Workload(reading.files[0], ranks, operations, report)


def _nothing(reading: Reading) -> str:
    aside = ", ".join(f"{count} x {reason}" for reason, count in reading.tally.set_aside.items())
    found = f"; found only: {aside}" if aside else ""
    return f"{_names(reading.files)} holds no collective that can be used{found}; give a trace of a distributed run"


def _names(files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else f"{files[0]} (and {len(files) - 1} more)"


def _ranks(reading: Reading, gpus: int | None) -> int | None:
    highest = _highest(reading)
    ranks = reading.ranks if reading.ranks is not None else gpus
    if ranks is not None and highest >= ranks:
        stated = "the file states" if reading.ranks is not None else "--gpus says"
        raise RankCountError(
            f"{_names(reading.files)}: rank {highest} takes part, but {stated} {ranks} ranks (0 to {ranks - 1}); "
            "check that the files belong together"
        )
    largest = max((call.group.size or 0 for program in reading.programs for call in program.calls), default=0)
    if ranks is not None and largest > ranks:
        raise RankCountError(
            f"{_names(reading.files)}: a group has {largest} ranks, but there are only {ranks}; use a larger --gpus"
        )
    if gpus is not None and ranks is not None and ranks > gpus:
        raise RankCountError(
            f"{_names(reading.files)} is of {ranks} ranks, more than the {gpus} GPUs of the fabric; "
            f"use --gpus {ranks} or more"
        )
    return ranks


def _highest(reading: Reading) -> int:
    """The highest rank that the files name. Raises MalformedFileError for a group that names a rank twice."""
    highest = max((rank for program in reading.programs for rank in program.ranks), default=-1)
    seen: set[tuple[Members, ...]] = set()
    for program in reading.programs:
        for call in program.calls:
            highest = max(highest, call.peer or 0)
            if call.group.groups and call.group.groups not in seen:
                seen.add(call.group.groups)
                for members in call.group.groups:
                    highest = max(highest, *members)
                    if len(set(members)) < len(members):
                        raise MalformedFileError(
                            f"{_names(reading.files)}: the group {list(members[:8])} of {program.name} names a rank "
                            "twice; record it again"
                        )
    return highest


def _missing(reading: Reading, known: frozenset[int], ranks: int, strict: bool) -> None:
    count = ranks - len(known)
    if strict:
        raise StrictImportError(
            f"--strict: {count} of {ranks} ranks are missing; give the files of all ranks, or leave --strict out"
        )
    reading.tally.rule(
        f"{count} of {ranks} ranks have no file: as members of a group with a known rank they do what it does; a group "
        "without a known rank does what the first known group of its family does"
    )


def _group_size(call: Call, ranks: int | None) -> int | None:
    if call.group.groups:
        return len(call.group.groups[0])
    return call.group.size or (ranks if call.group.whole else None)


def _resolved(program: Program, ranks: int | None, reading: Reading, strict: bool) -> Program:
    """The program with the members of every group filled in."""
    if ranks is None:
        return program
    calls = []
    for call in program.calls:
        group = call.group
        if group.groups or call.kind in ONE_SIDED:
            calls.append(call)
            continue
        size = ranks if group.whole else group.size
        if size is None:
            size = ranks
        if size == ranks:
            groups: tuple[Members, ...] = (tuple(range(ranks)),)
            if not group.whole and not group.size:
                reading.tally.rule("a group of unknown size is taken to be all ranks")
        else:
            if strict:
                raise StrictImportError(
                    f"--strict: the members of a group of {size} ranks are not in the files; leave --strict out"
                )
            reading.tally.rule(
                f"the members of groups of {size} ranks are not in the files: they are taken to be blocks of {size} "
                "consecutive ranks"
            )
            groups = blocks(size, ranks)
            if len(program.ranks) == 1:
                (rank,) = program.ranks
                groups = (groups[rank // size],)
        calls.append(replace(call, group=replace(group, groups=groups, size=size)))
    return replace(program, calls=tuple(calls))


def _unplaced(programs: Sequence[Program]) -> tuple[Operation, ...]:
    """The operations of a single program whose number of ranks is not known: all but the groups."""
    (program,) = programs
    operations = []
    for index, call in enumerate(program.calls):
        after = call.after if call.after is not None else tuple(range(max(0, index - 1), index))
        size = call.size_bytes(call.group.size)
        operations.append(_operation(index, call, (), size, after))
    return tuple(operations)


def _operation(
    number: int, call: Call, groups: tuple[Members, ...], size: int | None, after: Iterable[int]
) -> Operation:
    return Operation(
        id=number,
        kind=Kind.SEND_RECV if call.kind in ONE_SIDED else call.kind,
        label=call.group.name,
        groups=groups,
        size_bytes=size,
        after=tuple(sorted(after)),
        gap_s=call.gap_s,
        dtype=call.dtype,
        start_s=call.start_s,
        duration_s=call.duration_s,
        stage=call.stage,
    )


@dataclass
class _Met:
    """Calls that are one operation: (program, position) of each."""

    key: _Key
    number: int
    calls: list[tuple[int, int]] = field(default_factory=list)


def _operations(programs: Sequence[Program], known: frozenset[int], ranks: int) -> tuple[Operation, ...]:
    met, where = _meetings(programs)
    waits = [_waits(program) for program in programs]
    after: list[set[int]] = [set() for _ in met]
    gaps = [0.0] * len(met)
    for index, meeting in enumerate(met):
        for program, position in meeting.calls:
            call = programs[program].calls[position]
            if call.kind is Kind.RECV and len(meeting.calls) > 1:
                continue
            before, gap_s = waits[program][position]
            after[index].update(where[program, one] for one in before)
            gaps[index] = max(gaps[index], gap_s)
    order = _ordered(programs, met, after)
    number_of = {index: number for number, index in enumerate(order)}
    extra = _families(met, known, ranks)
    operations = []
    for number, index in enumerate(order):
        meeting = met[index]
        calls = [(programs[program], programs[program].calls[position]) for program, position in meeting.calls]
        groups = meeting.key[1] + extra.get(index, ())
        made = _joined(number, meeting.number, calls, groups, {number_of[one] for one in after[index]})
        operations.append(replace(made, gap_s=gaps[index]))
    return tuple(operations)


def _pairs(program: Program, call: Call) -> tuple[Members, ...]:
    """The (source, destination) pairs of a send or receive."""
    if call.group.groups:
        return call.group.groups
    (rank,) = program.ranks
    assert call.peer is not None
    return ((rank, call.peer),) if call.kind is Kind.SEND else ((call.peer, rank),)


def _meetings(programs: Sequence[Program]) -> tuple[list[_Met], dict[tuple[int, int], int]]:
    """The operations as meetings of calls, and the operation of every call."""
    met: list[_Met] = []
    where: dict[tuple[int, int], int] = {}
    found: dict[tuple[_Key, int], int] = {}
    counts: dict[_Key, dict[tuple[int, bool], int]] = defaultdict(lambda: defaultdict(int))
    for number, program in enumerate(programs):
        for position, call in enumerate(program.calls):
            one_sided = call.kind in ONE_SIDED
            groups = _pairs(program, call) if one_sided else call.group.groups
            name = f"p2p {call.group.name}" if one_sided else call.group.name
            key: _Key = (name, groups)
            side = (number, call.kind is Kind.SEND)
            turn = counts[key][side]
            counts[key][side] += 1
            index = found.setdefault((key, turn), len(met))
            if index == len(met):
                met.append(_Met(key, turn))
            met[index].calls.append((number, position))
            where[number, position] = index
    members_of = [program.ranks for program in programs]
    for key, sides in counts.items():
        taking_part = {rank for group in key[1] for rank in group}
        for number, _ in sides:
            if not members_of[number] & taking_part:
                raise RankDisagreementError(
                    f"{programs[number].name} makes a call in group {_group_text(key)} without being in it; {_REMEDY}"
                )
        if key[0].startswith("p2p "):
            _check_pair(programs, key, sides)
            continue
        expected = max(sides.values())
        for number, ranks in enumerate(members_of):
            if ranks & taking_part and sides.get((number, False), 0) != expected:
                most = next(programs[other].name for (other, _), count in sides.items() if count == expected)
                raise RankDisagreementError(
                    f"{most} makes {expected} calls in group {_group_text(key)}, but {programs[number].name} makes "
                    f"{sides.get((number, False), 0)}; {_REMEDY}"
                )
    return met, where


def _group_text(key: _Key) -> str:
    group = key[1][0]
    members = ", ".join(map(str, group[:8])) + (", ..." if len(group) > 8 else "")
    return f"'{key[0]}' [{members}]" if key[0] else f"[{members}]"


def _check_pair(programs: Sequence[Program], key: _Key, sides: dict[tuple[int, bool], int]) -> None:
    source, destination = key[1][0]
    present = [rank in program.ranks for rank in (source, destination) for program in programs]
    if sum(present) < 2:
        return
    sends = sum(count for (_, is_send), count in sides.items() if is_send)
    receives = sum(count for (_, is_send), count in sides.items() if not is_send)
    if sends != receives:
        raise RankDisagreementError(
            f"rank {source} sends {sends} messages to rank {destination}, which receives {receives}; " + _REMEDY
        )


def _waits(program: Program) -> list[tuple[tuple[int, ...], float]]:
    """For every call the positions of the calls it waits for, and the computing between the last of them and it."""
    calls = program.calls
    if any(call.after is not None for call in calls):
        return _stated_waits(calls)
    spans = [  # in whole nanoseconds, because sums of fractions would make neighbours overlap
        (round(call.start_s, 9), round(call.start_s + call.duration_s, 9))
        for call in calls
        if call.start_s is not None and call.duration_s is not None
    ]
    if len(spans) == len(calls):
        return _timed_waits(spans)
    waits: list[tuple[tuple[int, ...], float]] = []
    front: tuple[int, ...] = ()
    last_send: dict[int | tuple[Members, ...], int] = {}
    for position, call in enumerate(calls):
        if call.kind in ONE_SIDED:
            line = call.group.groups or (call.peer or 0)
            before = front
            if call.kind is Kind.SEND:
                if position and _exchange(calls[position - 1], call):
                    before = tuple(one for one in front if one != position - 1)
                if line in last_send:
                    before = tuple(sorted({*before, last_send[line]}))
                last_send[line] = position
            else:
                front = (*front, position)
            waits.append((before, call.gap_s))
        else:
            waits.append((front, call.gap_s))
            front = (position,)
    return waits


def _exchange(receive: Call, send: Call) -> bool:
    """Whether a receive and the send after it are with the same peer, and so are posted together."""
    if receive.kind is not Kind.RECV:
        return False
    if send.group.groups:
        return tuple(pair[::-1] for pair in send.group.groups) == receive.group.groups
    return send.peer == receive.peer


def _stated_waits(calls: Sequence[Call]) -> list[tuple[tuple[int, ...], float]]:
    """What the file states; who waits for a receive waits for what the receive waited for too."""
    reach: list[frozenset[int]] = []
    for call in calls:
        before: set[int] = set()
        for position in call.after or ():
            before.add(position)
            if calls[position].kind is Kind.RECV:
                before |= reach[position]
        reach.append(frozenset(before))
    return [(tuple(sorted(before)), call.gap_s) for before, call in zip(reach, calls, strict=True)]


def _timed_waits(spans: Sequence[tuple[float, float]]) -> list[tuple[tuple[int, ...], float]]:
    """For every (start, end), in order of starts, the calls that had just ended when it started.

    A call that ended before another one started is before it; at the same moment, the earlier in the list. Of the calls
    before one, those are waited for that ended after the latest start among them: the others are before that latest.
    """
    ends = sorted((end, position) for position, (_, end) in enumerate(spans))
    latest_start: list[tuple[float, int]] = []
    for _, position in ends:
        start = (spans[position][0], position)
        latest_start.append(max(start, latest_start[-1]) if latest_start else start)
    waits: list[tuple[tuple[int, ...], float]] = []
    for position, (start_s, _) in enumerate(spans):
        count = bisect.bisect_left(ends, (start_s, position))
        if not count:
            waits.append(((), 0.0))
            continue
        first = bisect.bisect_left(ends, latest_start[count - 1], 0, count)
        waits.append((tuple(sorted(one for _, one in ends[first:count])), start_s - ends[count - 1][0]))
    return waits


def _families(met: Sequence[_Met], known: frozenset[int], ranks: int) -> dict[int, tuple[Members, ...]]:
    """For each operation the groups without a known rank that it stands for."""
    extra: dict[int, tuple[Members, ...]] = {}
    if len(known) == ranks:
        return extra
    taken: set[tuple[str, int, tuple[Members, ...]]] = set()
    for index, meeting in enumerate(met):
        name, groups = meeting.key
        if len(groups) != 1 or name.startswith("p2p "):
            continue
        whole = family(groups[0], ranks)
        if len(whole) == 1 or (name, meeting.number, whole) in taken:
            continue
        taken.add((name, meeting.number, whole))
        extra[index] = tuple(group for group in whole if group != groups[0] and not known.intersection(group))
    return extra


def _ordered(programs: Sequence[Program], met: Sequence[_Met], after: Sequence[set[int]]) -> list[int]:
    """The operations so that each comes after those it waits for; the first calls of the programs first."""
    rank = [min(position for _, position in meeting.calls) for meeting in met]
    waiting = [len(before) for before in after]
    behind: list[list[int]] = [[] for _ in met]
    for index, before in enumerate(after):
        for one in before:
            behind[one].append(index)
    ready = [(rank[index], index) for index, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, index = heapq.heappop(ready)
        order.append(index)
        for one in behind[index]:
            waiting[one] -= 1
            if not waiting[one]:
                heapq.heappush(ready, (rank[one], one))
    if len(order) < len(met):
        stuck = min(index for index, count in enumerate(waiting) if count)
        program, position = met[stuck].calls[0]
        call = programs[program].calls[position]
        raise RankDisagreementError(
            f"the ranks make their calls in orders that contradict each other, at the {call.kind.value} number "
            f"{met[stuck].number + 1} in group {_group_text(met[stuck].key)} of {programs[program].name}; " + _REMEDY
        )
    return order


def _joined(
    number: int, turn: int, calls: Sequence[tuple[Program, Call]], groups: tuple[Members, ...], after: set[int]
) -> Operation:
    """One operation of the calls that meet in it. Raises RankDisagreementError where they do not fit together."""
    first_program, first = calls[0]
    what = f"call {turn + 1} in group {_group_text((first.group.name, groups))}"
    if first.kind in ONE_SIDED:
        return _joined_pair(number, calls, groups, after)
    for program, call in calls[1:]:
        if call.kind is not first.kind:
            raise RankDisagreementError(
                f"{what}: {first_program.name} makes it a {first.kind.value}, {program.name} a {call.kind.value}; "
                + _REMEDY
            )
    n = len(groups[0])
    root = groups[0].index(first.root) if first.root in groups[0] else 0
    if first.kind is Kind.ALL_TO_ALL:
        return replace(_joined_all_to_all(number, calls, groups, after, what), root=root)
    sizes = {call.size_bytes(n): program.name for program, call in calls}
    if len(sizes) > 1:
        (one, first_name), (other, other_name) = list(sizes.items())[:2]
        raise RankDisagreementError(
            f"{what}: the {first.kind.value} has {one} bytes on {first_name} and {other} on {other_name}; " + _REMEDY
        )
    return replace(_operation(number, first, groups, first.size_bytes(n), after), root=root)


def _joined_pair(
    number: int, calls: Sequence[tuple[Program, Call]], groups: tuple[Members, ...], after: set[int]
) -> Operation:
    sizes = {call.in_bytes if call.kind is Kind.SEND else call.out_bytes for _, call in calls} - {None}
    if len(sizes) > 1:
        source, destination = groups[0]
        shown = " and ".join(str(size) for size in sorted(size for size in sizes if size is not None))
        raise RankDisagreementError(
            f"a message from rank {source} to rank {destination} has {shown} bytes at its two ends; {_REMEDY}"
        )
    _, call = next((one for one in calls if one[1].kind is Kind.SEND), calls[0])
    return _operation(number, call, groups, next(iter(sizes), None), after)


def _joined_all_to_all(
    number: int, calls: Sequence[tuple[Program, Call]], groups: tuple[Members, ...], after: set[int], what: str
) -> Operation:
    n = len(groups[0])
    even = _operation(number, calls[0][1], groups, calls[0][1].in_bytes, after)
    _check_splits(calls, groups[0], what)
    uneven = any(
        call.in_bytes != calls[0][1].in_bytes
        or call.in_bytes != call.out_bytes
        or len({*call.in_splits}) > 1
        or len({*call.out_splits}) > 1
        for _, call in calls
    )
    if not uneven or len(calls) == 1 < n or any(call.in_bytes is None for _, call in calls):
        return even
    by_rank = {rank: call for program, call in calls for rank in program.ranks}
    known = [by_rank[rank] for rank in groups[0] if rank in by_rank]
    rows = [by_rank.get(rank, known[place % len(known)]) for place, rank in enumerate(groups[0])]
    sent = tuple(call.in_bytes or 0 for call in rows)
    received = tuple(call.out_bytes or 0 for call in rows)
    if len(known) == n:
        if None not in [call.out_bytes for call in rows] and sum(sent) != sum(received):
            raise RankDisagreementError(
                f"{what}: the ranks send {sum(sent)} bytes in all, but receive {sum(received)}; " + _REMEDY
            )
        if all(len(call.in_splits) == n for call in rows):
            return replace(even, size_bytes=max(sent), splits=tuple(call.in_splits for call in rows))
    return replace(even, size_bytes=max(sent), sent_bytes=sent, received_bytes=received)


def _check_splits(calls: Sequence[tuple[Program, Call]], members: Members, what: str) -> None:
    """What each rank sends to another one must be what that one receives from it."""
    place = {rank: position for position, rank in enumerate(members)}
    by_place = {place[rank]: call for program, call in calls for rank in program.ranks if rank in place}
    for source, sender in by_place.items():
        for destination, receiver in by_place.items():
            if len(sender.in_splits) <= destination or len(receiver.out_splits) <= source:
                continue
            sent, received = sender.in_splits[destination], receiver.out_splits[source]
            if sent != received:
                raise RankDisagreementError(
                    f"{what}: rank {members[source]} sends {sent} bytes to rank {members[destination]}, which expects "
                    f"{received} from it; {_REMEDY}"
                )
