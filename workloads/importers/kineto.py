"""PyTorch profiler (Kineto) traces: Chrome trace JSON, one file per rank, read as a stream.

Where the collectives are taken from, the best source that a file has:

1. GPU kernels with a ``Collective name`` among their arguments (PyTorch of 2024 and later);
2. ``record_param_comms`` events with the same arguments;
3. ``nccl:...`` annotations, whose name is the collective, with sizes from the ``Input Dims`` of the ``c10d::`` operator
   around them, else from their own; what has neither has an unknown size.

The name of a kernel is no evidence: NCCL runs many collectives in a kernel called SendRecv. Kernels give the times; in
the third case a kernel belongs to the annotation that encloses the call which launched it.
"""

from __future__ import annotations

import bisect
import json
import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from topologies.importers.errors import MalformedFileError
from workloads.importers.errors import RankDisagreementError
from workloads.importers.groups import strided
from workloads.importers.json_stream import members
from workloads.importers.model import Call, GroupRef, Kind, Program, Reading, Tally
from workloads.importers.pytorch import MAX_RANKS, WAITS, collective, count, dtype_bytes, ranks_of
from workloads.importers.source import Source

KIND = "kineto"
TITLE = "PyTorch profiler (Kineto) trace"

_OUTSIDE_NCCL = re.compile(r"multimem_|cross_device_reduce|(one|two)_?shot|nvshmem|deep_ep", re.IGNORECASE)
_CALLS_COLLECTIVE = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all", re.IGNORECASE)
_RANK_IN_NAME = re.compile(r"(?:rank|worker)[-_]?(\d+)", re.IGNORECASE)
_US = 1e-6

_GPU_COPY = "GPU annotation, a copy of the CPU's"
_CPU_COPY = "CPU-side record of an operation that is taken from elsewhere"
_WAIT = "wait, which moves nothing"
_UNKNOWN_NAME = "collective of an unknown name"
_NO_PEER = "send or receive whose peer is not in the file"
_BARE_KERNEL = "NCCL kernel that nothing ties to a collective"


@dataclass
class _Event:
    """What is kept of one event of a trace. Times are microseconds."""

    name: str
    tid: int
    start_us: float
    duration_us: float
    args: Mapping[str, Any]

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us


@dataclass
class _Trace:
    """What is kept of one file."""

    name: str
    info: Mapping[str, Any] = field(default_factory=dict)
    events: int = 0
    kernels: list[_Event] = field(default_factory=list)
    recorded: list[_Event] = field(default_factory=list)
    annotations: list[_Event] = field(default_factory=list)
    operators: list[_Event] = field(default_factory=list)
    gpu_annotations: int = 0
    steps: set[str] = field(default_factory=set)
    launch_ids: array[int] = field(default_factory=lambda: array("q"))
    launch_tids: array[int] = field(default_factory=lambda: array("q"))
    launch_starts: array[float] = field(default_factory=lambda: array("d"))
    outside: list[_Event] = field(default_factory=list)
    outside_calls: list[_Event] = field(default_factory=list)

    def seconds(self, moment_us: float) -> float:
        """Seconds from the first communication; counted from 1970 they would have no digits for nanoseconds."""
        return (moment_us - self.first_us) * _US

    @cached_property
    def first_us(self) -> float:
        """Start of the first communication."""
        return min((event.start_us for event in (*self.kernels, *self.recorded, *self.annotations)), default=0.0)


def read(sources: Sequence[Source]) -> Reading:
    """The programs of the ranks whose traces these are.

    Raises TruncatedFileError, MalformedFileError, and RankDisagreementError for files of the same rank or of runs of
    different sizes.
    """
    tally = Tally()
    programs: dict[int, Program] = {}
    names: dict[int, str] = {}
    worlds: dict[int, str] = {}
    for position, source in enumerate(sources):
        trace = _load(source)
        rank = _rank(trace, position, tally)
        if rank in programs:
            raise RankDisagreementError(
                f"{names[rank]} and {trace.name} are both of rank {rank}; give one file per rank"
            )
        calls = _calls(trace, rank, tally)
        world = count(trace.info.get("world_size"), MAX_RANKS)
        if world:
            worlds.setdefault(world, trace.name)
        names[rank] = trace.name
        programs[rank] = Program(f"rank {rank}", frozenset({rank}), tuple(calls))
        _note_outside_nccl(trace, tally)
    if len(worlds) > 1:
        (one, first), (other, second) = list(worlds.items())[:2]
        raise RankDisagreementError(
            f"{first} is of a run of {one} ranks, {second} of one of {other}; give files of the same run"
        )
    ranks = next(iter(worlds), None)
    if ranks is None and len(programs) > 1:
        ranks = max(programs) + 1
        tally.rule(f"the files do not say how many ranks there were: {ranks}, one more than the highest rank given")
    ordered = tuple(programs[rank] for rank in sorted(programs))
    return Reading(KIND, TITLE, tuple(source.name for source in sources), ordered, ranks, tally)


def _load(source: Source) -> _Trace:
    trace = _Trace(source.name)
    with source.reader() as reader:
        for key, value in members(reader, {"traceEvents"}):
            if key == "traceEvents":
                trace.events += 1
                if isinstance(value, dict):
                    _keep(trace, value)
            elif key == "distributedInfo" and isinstance(value, dict):
                trace.info = value
    return trace


def _keep(trace: _Trace, event: Mapping[str, Any]) -> None:
    """Keep of an event what importing needs; most events are dropped here."""
    category = event.get("cat")
    if category == "cuda_runtime" or category == "cuda_driver":
        if "Launch" in str(event.get("name")):
            _keep_launch(trace, event)
        return
    if category == "kernel":
        name = str(event.get("name", ""))
        if "nccl" in name.lower():
            trace.kernels.append(_event(trace, event, name))
        elif _OUTSIDE_NCCL.search(name):
            trace.outside.append(_event(trace, event, name))
        return
    name = event.get("name", "")
    if not isinstance(name, str):
        return
    if name.startswith("ProfilerStep#") and category == "user_annotation":
        trace.steps.add(name)
    elif category == "gpu_user_annotation":
        trace.gpu_annotations += name.startswith("nccl:")
    elif name.startswith("nccl:") and category in ("user_annotation", "cpu_op"):
        trace.annotations.append(_event(trace, event, name))
    elif category == "cpu_op":
        if name == "record_param_comms":
            trace.recorded.append(_event(trace, event, name))
        elif name.startswith("c10d::"):
            trace.operators.append(_event(trace, event, name))
        elif _CALLS_COLLECTIVE.search(name):
            trace.outside_calls.append(_event(trace, event, name))


def _keep_launch(trace: _Trace, event: Mapping[str, Any]) -> None:
    args, start_us = event.get("args"), event.get("ts")
    launch_id = args.get("correlation") if isinstance(args, dict) else None
    if isinstance(launch_id, int) and 0 <= launch_id < 1 << 63 and isinstance(start_us, (int, float)):
        trace.launch_ids.append(launch_id)
        trace.launch_tids.append(_number(event.get("tid")))
        trace.launch_starts.append(start_us)


def _number(value: object) -> int:
    """A thread id as a number: profilers also write names such as ``stream 7``."""
    return value if isinstance(value, int) and abs(value) < 1 << 63 else hash(str(value))


def _event(trace: _Trace, event: Mapping[str, Any], name: str) -> _Event:
    args = event.get("args")
    try:
        return _Event(
            name, _number(event.get("tid")), float(event["ts"]), float(event.get("dur", 0)),
            args if isinstance(args, dict) else {},
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, OverflowError):
        raise MalformedFileError(
            f"{trace.name}: event {trace.events} ('{name[:60]}') has no usable time; record the trace again"
        ) from None


def _rank(trace: _Trace, position: int, tally: Tally) -> int:
    recorded = (event.args.get("Rank") for event in trace.recorded)
    for stated in (trace.info.get("rank"), *recorded):
        rank = count(stated, MAX_RANKS)
        if rank is not None:
            return rank
    found = _RANK_IN_NAME.search(trace.name)
    if found:
        tally.rule("a trace that does not say its rank has the rank in its file name")
        return int(found.group(1))
    tally.rule("a trace that does not say its rank has the rank of its place among the files")
    return position


def _calls(trace: _Trace, rank: int, tally: Tally) -> list[Call]:
    """The calls of a trace from its best source; every other record is counted."""
    tally.facts["events"] = tally.facts.get("events", 0) + trace.events
    tally.facts["steps"] = max(tally.facts.get("steps", 0), len(trace.steps))
    kernel_us: Counter[str] = Counter(tally.facts.get("nccl_kernel_us", {}))
    for kernel in trace.kernels:
        kernel_us[kernel.name.split("(")[0].split("<")[0]] += kernel.duration_us  # type: ignore[assignment]
    if kernel_us:
        tally.facts["nccl_kernel_us"] = {name: round(value, 1) for name, value in kernel_us.items()}
        tally.facts["nccl_kernels"] = tally.facts.get("nccl_kernels", 0) + len(trace.kernels)
    tally.skip(_GPU_COPY, trace.gpu_annotations)
    tally.skip("c10d operator around a collective", len(trace.operators))
    described = [kernel for kernel in trace.kernels if "Collective name" in kernel.args]
    recorded = [event for event in trace.recorded if "Collective name" in event.args]
    read_call = _Arguments(trace, rank)
    if described:
        source, chosen, rest = "arguments of GPU kernels", described, (*trace.recorded, *trace.annotations)
        calls = _described(trace, described, read_call, tally, timed=True)
        tally.skip(_BARE_KERNEL, len(trace.kernels) - len(described))
        on_cpu = sum(str(event.args["Collective name"]) not in WAITS for event in recorded)
        if recorded and on_cpu != len(described):
            tally.warn(
                f"{trace.name}: {on_cpu} collectives on the CPU side but {len(described)} kernels: some lie on the "
                "edge of the recorded window; the kernels are used"
            )
    elif recorded:
        source, chosen, rest = "record_param_comms", recorded, (*trace.kernels, *trace.annotations)
        calls = _described(trace, recorded, read_call, tally, timed=False)
        rest = (*rest, *(event for event in trace.recorded if "Collective name" not in event.args))
    else:
        source, chosen = "annotations with Input Dims", trace.annotations
        calls = _annotated(trace, tally)
        rest = (*trace.recorded,)
    if chosen:
        tally.facts.setdefault("source", source)
        if tally.facts["source"] != source:
            tally.warn(f"{trace.name} is read from {source}, other files from {tally.facts['source']}")
    for event in rest:
        waits = str(event.args.get("Collective name", "")) in WAITS
        tally.skip(_WAIT if waits else _CPU_COPY)
    if all(call.start_s is not None for call in calls):
        calls.sort(key=lambda call: call.start_s or 0.0)
    return calls


class _Arguments:
    """Reads the arguments that describe a collective, in sources 1 and 2."""

    def __init__(self, trace: _Trace, rank: int) -> None:
        self._trace = trace
        self._rank = rank
        self._groups: dict[str, tuple[int, ...]] = {}
        listed = trace.info.get("pg_config")
        for group in listed if isinstance(listed, list) else ():
            if isinstance(group, dict):
                self._groups[str(group.get("pg_name"))] = ranks_of(group.get("ranks"))

    def call(self, event: _Event, kind: Kind) -> Call:
        """The call that an event describes, without times."""
        args = event.args
        dtype = str(args.get("dtype", ""))
        width = dtype_bytes(dtype)
        group = self.group(args)

        def size(key: str) -> int | None:
            elements = count(args.get(key))
            return elements * width if elements is not None and width is not None else None

        def splits(key: str) -> tuple[int, ...]:
            return tuple(elements * width for elements in _int_list(args.get(key))) if width is not None else ()

        named = (count(args.get(key), MAX_RANKS) for key in ("Dst Rank", "Src Rank", "Peer"))
        peer = next((one for one in named if one is not None), None)
        if peer is None and group.groups and len(group.groups[0]) == 2:
            peer = next((one for one in group.groups[0] if one != self._rank), None)
        return Call(
            kind, group, size("In msg nelems"), size("Out msg nelems"), dtype,
            in_splits=splits("In split size"), out_splits=splits("Out split size"), peer=peer,
        )  # fmt: skip

    def group(self, args: Mapping[str, Any]) -> GroupRef:
        """The group that the arguments name: members as listed, else by the trace's list of groups, else strided."""
        name = str(args.get("Process Group Name", args.get("Process Group ID", "")))
        size = count(args.get("Group size"), MAX_RANKS) or None
        ranks = _int_list(args.get("Process Group Ranks"))
        if not ranks or (size is not None and len(ranks) != size):  # writers cut long lists
            ranks = self._groups.get(name, ())
        start, stride = (count(args.get(f"Global rank {key}"), MAX_RANKS) for key in ("start", "stride"))
        if not ranks and size and start is not None and stride:
            ranks = strided(start, stride, size)
        whole = size is not None and size == self._trace.info.get("world_size")
        return GroupRef(name, (ranks,) if ranks else (), len(ranks) or size, whole)


def _int_list(value: object) -> tuple[int, ...]:
    """The numbers of a list, or of its text form; empty where it is neither or is cut off."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return ()
    return tuple(value) if isinstance(value, list) and all(count(one) is not None for one in value) else ()


def _described(trace: _Trace, events: Iterable[_Event], read: _Arguments, tally: Tally, *, timed: bool) -> list[Call]:
    calls = []
    for event in events:
        name = str(event.args["Collective name"])
        if name in WAITS:
            tally.skip(_WAIT)
            continue
        kind = collective(name)
        if kind is None:
            tally.skip(f"{_UNKNOWN_NAME} ('{name[:40]}')")
            continue
        call = replace(
            read.call(event, kind),
            start_s=trace.seconds(event.start_us),
            duration_s=event.duration_us * _US if timed else None,
        )
        if kind in (Kind.SEND, Kind.RECV) and call.peer is None:
            tally.skip_call(_NO_PEER, call)
            continue
        tally.use()
        calls.append(call)
    return calls


def _annotated(trace: _Trace, tally: Tally) -> list[Call]:
    """Source 3: the annotations, with the sizes of the operators around them and the times of their kernels."""
    kernel_of = _kernels_by_annotation(trace)
    around = _Enclosing(trace.operators)
    matched = {id(kernel) for kernels in kernel_of.values() for kernel in kernels}
    calls = []
    for index, annotation in sorted(enumerate(trace.annotations), key=lambda item: item[1].start_us):
        kind = collective(annotation.name)
        if kind is None:
            tally.skip(f"{_UNKNOWN_NAME} ('{annotation.name[:40]}')")
            continue
        operator = around.find(annotation.tid, annotation.start_us, partial(_names, kind))
        in_bytes, out_bytes, dtype = _dims_sizes(kind, operator, annotation)
        size = None
        if kind is Kind.ALL_GATHER and in_bytes and out_bytes:
            size = out_bytes // in_bytes
        elif kind is Kind.REDUCE_SCATTER and in_bytes and out_bytes:
            size = in_bytes // out_bytes
        world = trace.info.get("world_size")
        if size is None:
            tally.rule(
                "these old traces do not name groups: all-gather and reduce-scatter have as many ranks as their "
                "buffers tell, every other collective has all ranks"
            )
        group = GroupRef("" if size is None else f"of {size}", (), size, whole=size in (None, world))
        kernels = kernel_of.get(index, [])
        start_us = min((kernel.start_us for kernel in kernels), default=None)
        call = Call(
            kind, group, in_bytes, out_bytes, dtype,
            start_s=None if start_us is None else trace.seconds(start_us),
            duration_s=None if start_us is None else (max(kernel.end_us for kernel in kernels) - start_us) * _US,
        )  # fmt: skip
        if kind in (Kind.SEND, Kind.RECV):
            tally.skip_call(_NO_PEER, call)
            continue
        tally.use()
        calls.append(call)
    tally.skip("kernel of an annotated collective, used for its time", len(matched))
    tally.skip(_BARE_KERNEL, len(trace.kernels) - len(matched))
    return _placed(calls)


def _placed(calls: Sequence[Call]) -> list[Call]:
    """Calls, in the CPU's order, with times that can be compared: those of the GPU, or else none but the CPU's order.

    A call of size 0 launches no kernel; it is put where the next one starts. Does any other call lack its kernel,
    kernel times and CPU times would be mixed, so the order of the CPU is all that is used.
    """
    if any(call.duration_s is None and (call.in_bytes or call.out_bytes or call.in_bytes is None) for call in calls):
        return [replace(call, start_s=None, duration_s=None) for call in calls]
    placed: list[Call] = []
    start_s = max((call.start_s + call.duration_s for call in calls if call.start_s and call.duration_s), default=None)
    for call in reversed(calls):
        if call.duration_s is None:
            call = replace(call, start_s=start_s, duration_s=0.0)
        start_s = call.start_s
        placed.append(call)
    return placed[::-1]


def _names(kind: Kind, name: str) -> bool:
    return collective(name) is kind


def _dims_sizes(kind: Kind, operator: _Event | None, annotation: _Event) -> tuple[int | None, int | None, str]:
    """(send buffer, receive buffer, number format) from ``Input Dims``; None where they do not tell."""
    if operator is not None and kind in (Kind.ALL_TO_ALL, Kind.ALL_GATHER, Kind.REDUCE_SCATTER):
        received, _ = _dims_bytes(operator, 0)
        sent, dtype = _dims_bytes(operator, 1)
        if sent is not None and received is not None:
            return sent, received, dtype
    sent, dtype = _dims_bytes(annotation, 0)
    same = kind in (Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE)
    return sent, sent if same else None, dtype


def _dims_bytes(event: _Event, position: int) -> tuple[int | None, str]:
    dims, types = event.args.get("Input Dims"), event.args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list) or len(dims) <= position or len(types) <= position:
        return None, ""
    width = dtype_bytes(str(types[position]))
    shape = dims[position]
    # A list of tensors has a list of shapes or none at all, and a number has no shape: neither gives a size.
    if width is None or not isinstance(shape, list) or not shape or not all(count(one) is not None for one in shape):
        return None, ""
    return math.prod(shape) * width, str(types[position])


class _Enclosing:
    """Finds the innermost event of a thread that encloses a moment."""

    def __init__(self, events: Sequence[_Event]) -> None:
        self._by_tid: dict[int, list[_Event]] = {}
        for event in sorted(events, key=lambda event: event.start_us):
            self._by_tid.setdefault(event.tid, []).append(event)
        self._starts = {tid: [event.start_us for event in found] for tid, found in self._by_tid.items()}

    def find(self, tid: int, moment_us: float, fits: Callable[[str], bool] = bool) -> _Event | None:
        """The latest-started event of the thread that is running at the moment and whose name fits."""
        events = self._by_tid.get(tid, [])
        last = bisect.bisect_right(self._starts.get(tid, []), moment_us)
        for index in range(last - 1, max(-1, last - 9), -1):  # operators nest a few levels deep
            if events[index].end_us >= moment_us and fits(events[index].name):
                return events[index]
        return None


def _kernels_by_annotation(trace: _Trace) -> dict[int, list[_Event]]:
    """The kernels of each annotation, by its position: those launched on its thread while it was open."""
    wanted = {count(kernel.args.get("correlation")) for kernel in trace.kernels}
    launched = {
        launch_id: (tid, start)
        for launch_id, tid, start in zip(trace.launch_ids, trace.launch_tids, trace.launch_starts, strict=True)
        if launch_id in wanted
    }
    position = {id(annotation): index for index, annotation in enumerate(trace.annotations)}
    around = _Enclosing(trace.annotations)
    found: dict[int, list[_Event]] = {}
    for kernel in trace.kernels:
        launch = launched.get(count(kernel.args.get("correlation")) or -1)
        annotation = around.find(*launch) if launch else None
        if annotation is not None:
            found.setdefault(position[id(annotation)], []).append(kernel)
    return found


def _note_outside_nccl(trace: _Trace, tally: Tally) -> None:
    """Warn of communication that goes round NCCL; nothing tells its group, so it is not imported."""
    if not trace.outside:
        return
    duration_us = sum(kernel.duration_us for kernel in trace.outside)
    outermost = Counter(call.name for call in trace.outside_calls).most_common()
    detail = ""
    if outermost:
        name = min(
            (name for name, count in outermost if count == outermost[0][1]), key=lambda name: _first(trace, name)
        )
        sizes = [_dims_bytes(call, 0)[0] for call in trace.outside_calls if call.name == name]
        detail = f", called as {name} ({len(sizes)} calls, {sum(size or 0 for size in sizes)} bytes)"
    tally.skip("communication kernel outside NCCL", len(trace.outside))
    tally.facts["outside_nccl_kernels"] = tally.facts.get("outside_nccl_kernels", 0) + len(trace.outside)
    tally.facts["outside_nccl_us"] = round(tally.facts.get("outside_nccl_us", 0.0) + duration_us, 1)
    tally.warn(
        f"{trace.name}: {len(trace.outside)} communication kernels go round NCCL ({duration_us:,.1f} us{detail}); "
        "they are not imported"
    )


def _first(trace: _Trace, name: str) -> float:
    return min(call.start_us for call in trace.outside_calls if call.name == name)
