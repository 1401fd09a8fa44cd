"""PyTorch execution traces (ExecutionTraceObserver): JSON, one file per rank, read as a stream.

The collective is the node ``record_param_comms``; the ``nccl:`` and ``c10d::`` nodes around it are the same operation
again. There are no times: the order of the node numbers is the order of the program. Sizes are those of the tensors
(elements times bytes per element), which every schema has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from topologies.importers.errors import MalformedFileError
from workloads.importers.errors import RankDisagreementError
from workloads.importers.groups import strided
from workloads.importers.json_stream import members
from workloads.importers.model import ONE_SIDED, Call, GroupRef, Program, Reading, Tally
from workloads.importers.pytorch import MAX_RANKS, WAITS, collective, count, dtype_bytes, ranks_of
from workloads.importers.source import Source

KIND = "pytorch-et"
TITLE = "PyTorch execution trace"

_GROUPS_NODE = "## process_group:init ##"
_TENSOR_PARTS = 6  # tensor id, storage id, offset, elements, bytes per element, device


def read(sources: Sequence[Source]) -> Reading:
    """The programs of the ranks whose traces these are.

    Raises TruncatedFileError, MalformedFileError, and RankDisagreementError for files of the same rank or of runs of
    different sizes.
    """
    tally = Tally()
    traces: dict[int, _Trace] = {}
    for position, source in enumerate(sources):
        trace = _Trace(source)
        rank = position if trace.rank is None else trace.rank
        if trace.rank is None:
            tally.rule("a trace that does not say its rank has the rank of its place among the files")
        if rank in traces:
            raise RankDisagreementError(
                f"{traces[rank].name} and {trace.name} are both of rank {rank}; give one file per rank"
            )
        traces[rank] = trace
    worlds = {trace.world: trace.name for trace in traces.values() if trace.world is not None}
    if len(worlds) > 1:
        (one, first), (other, second) = list(worlds.items())[:2]
        raise RankDisagreementError(
            f"{first} is of a run of {one} ranks, {second} of one of {other}; give files of the same run"
        )
    ranks = next(iter(worlds), None)
    if ranks is None:
        ranks = max([len(traces), *(trace.largest for trace in traces.values()), *(rank + 1 for rank in traces)])
        tally.rule(f"the files do not say how many ranks there were: {ranks}, as many as the files and groups tell")
    programs = []
    for rank in sorted(traces):
        trace = traces[rank]
        programs.append(Program(f"rank {rank}", frozenset({rank}), tuple(trace.calls(rank, tally))))
    schemas = sorted({trace.schema for trace in traces.values()})
    tally.facts.update(nodes=sum(trace.nodes for trace in traces.values()), schema=", ".join(schemas))
    return Reading(KIND, TITLE, tuple(source.name for source in sources), tuple(programs), ranks, tally)


class _Trace:
    """What is kept of one file: the nodes that communicate."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.schema = "unknown"
        self.nodes = 0
        self.rank: int | None = None
        self.world: int | None = None
        self.largest = 1
        self._comms: list[_Node] = []
        self._around = 0
        self._groups: dict[str, tuple[int, ...]] = {}
        with source.reader() as reader:
            for key, value in members(reader, {"nodes"}):
                if key == "schema":
                    self.schema = str(value)
                elif key == "nodes":
                    self.nodes += 1
                    self._keep(value)
        self._comms.sort(key=lambda node: node.id)

    def _keep(self, node: object) -> None:
        if not isinstance(node, dict) or not isinstance(node.get("name"), str):
            raise MalformedFileError(f"{self.name}: node {self.nodes} has no name; record the trace again")
        name = node["name"]
        if name == "record_param_comms":
            kept = _Node(node, self.name)
            self._comms.append(kept)
            if self.rank is None:
                self.rank = kept.rank
            if kept.collective not in WAITS:
                self.largest = max(self.largest, kept.group_size or 0, len(kept.in_splits), len(kept.out_splits))
                if kept.group_desc == "default_pg" and kept.group_size:
                    self.world = kept.group_size
        elif name.startswith("nccl:") or (name.startswith("c10d::") and collective(name) is not None):
            self._around += 1
        elif name == _GROUPS_NODE:
            self._read_groups(_values(node, "inputs"))

    def _read_groups(self, values: Sequence[Any]) -> None:
        try:
            groups = json.loads(values[0])
            for group in groups:
                self._groups[str(group["pg_name"])] = ranks_of(group["ranks"])
                if group.get("pg_desc") == "default_pg":
                    self.world = count(group.get("group_size"), MAX_RANKS) or self.world
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise MalformedFileError(
                f"{self.name}: the list of process groups cannot be read; record the trace again"
            ) from None

    def calls(self, rank: int, tally: Tally) -> Iterator[Call]:
        """The calls in program order; every other record is counted."""
        tally.skip("nccl or c10d node around a collective", self._around)
        for node in self._comms:
            kind = collective(node.collective)
            if node.collective in WAITS:
                tally.skip("wait, which moves nothing")
                continue
            if kind is None:
                tally.skip(f"collective of an unknown name ('{node.collective[:40]}')")
                continue
            group = self._group(node)
            peer = None
            if kind in ONE_SIDED:
                pair = group.groups[0] if group.groups else ()
                peer = next((one for one in pair if one != rank), None) if len(pair) == 2 else None
            call = Call(
                kind, group, node.in_bytes, node.out_bytes, node.dtype,
                in_splits=tuple(elements * (node.width or 0) for elements in node.in_splits),
                out_splits=tuple(elements * (node.width or 0) for elements in node.out_splits), peer=peer,
            )  # fmt: skip
            if kind in ONE_SIDED and peer is None:
                tally.skip_call("send or receive whose peer is not in the file", call)
                continue
            if node.in_splits and node.in_bytes is not None and sum(call.in_splits) != node.in_bytes:
                raise MalformedFileError(
                    f"{self.name}: node {node.id} sends {node.in_bytes} bytes, but its splits add up to "
                    f"{sum(call.in_splits)}; record the trace again"
                )
            tally.use()
            yield call

    def _group(self, node: _Node) -> GroupRef:
        listed = self._groups.get(node.group_name)
        if listed:
            return GroupRef(node.group_name, (listed,), len(listed))
        size = node.group_size or len(node.in_splits) or len(node.out_splits) or None
        if size and node.start is not None and node.stride is not None and node.start >= 0 and node.stride > 0:
            return GroupRef(node.group_name, (strided(node.start, node.stride, size),), size)
        whole = listed == () or size is None
        return GroupRef(node.group_name, (), size, whole)


class _Node:
    """One ``record_param_comms`` node, of any schema."""

    def __init__(self, node: Mapping[str, Any], file: str) -> None:
        listed = node.get("attrs")
        attributes = {
            str(one.get("name")): one.get("value")
            for one in (listed if isinstance(listed, list) else ())
            if isinstance(one, dict)
        }
        values = _values(node, "inputs")
        try:
            self.id = int(node["id"])
            place = next(position for position, value in enumerate(values) if isinstance(value, str))
            self.collective = str(values[place])
            self.rank = _rank(values[place - 1])
            self.in_splits = _integers(values[place + 1])
            self.out_splits = _integers(values[place + 2])
        except (IndexError, KeyError, OverflowError, StopIteration, TypeError, ValueError):
            raise MalformedFileError(
                f"{file}: the record_param_comms node {node.get('id')} cannot be read; record the trace again"
            ) from None
        numbers = [_rank(value) for value in values[place + 3 : place + 6]]
        self.start, self.stride, self.group_size = [*numbers, None, None, None][:3]
        named = values[place - 2] if place >= 2 else None
        # Before schema 1.0.2 the group is an address, which is another one on every rank: no name.
        self.group_name, self.group_desc = "", ""
        if isinstance(named, list) and len(named) == 2:
            self.group_name, self.group_desc = str(named[0]), str(named[1])
        sent = list(_tensors(values[:place]))
        received = list(_tensors(_values(node, "outputs")))
        stated_width = dtype_bytes(str(attributes.get("dtype", "")))
        self.width = sent[0][1] if sent else stated_width
        self.in_bytes = _bytes(sent, attributes.get("in_msg_nelems"), stated_width)
        self.out_bytes = _bytes(received, attributes.get("out_msg_nelems"), stated_width)
        self.dtype = str(attributes.get("dtype", "")) or (f"{self.width} bytes an element" if self.width else "")


def _bytes(tensors: Sequence[tuple[int, int]], stated: object, width: int | None) -> int | None:
    """Bytes of the tensors, else of the stated number of elements; None where neither tells."""
    if tensors:
        return sum(elements * each for elements, each in tensors)
    elements = count(stated)
    return elements * width if elements is not None and width is not None else None


def _values(node: Mapping[str, Any], key: str) -> list[Any]:
    """The values of ``inputs`` or ``outputs``: a list before schema 1.0.2, an object with lists since."""
    found = node.get(key, [])
    if isinstance(found, dict):
        found = found.get("values", [])
    return found if isinstance(found, list) else []


def _tensors(value: Any) -> Iterator[tuple[int, int]]:
    """(elements, bytes per element) of every tensor in a value, however nested."""
    if not isinstance(value, list):
        return
    if len(value) == _TENSOR_PARTS and isinstance(value[-1], str) and all(count(one) is not None for one in value[:-1]):
        yield value[3], value[4]
        return
    for one in value:
        yield from _tensors(one)


def _rank(value: object) -> int | None:
    return count(value, MAX_RANKS)


def _integers(value: object) -> tuple[int, ...]:
    found = [count(one) for one in value] if isinstance(value, list) else [None]
    if None in found:
        raise ValueError
    return tuple(one for one in found if one is not None)
