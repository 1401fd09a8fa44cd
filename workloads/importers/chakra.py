"""Chakra execution traces: ``.et`` files (protobuf) and their JSON form, one file per rank.

An ``.et`` file is a stream of length-delimited messages: ``GlobalMetadata``, then one ``Node`` each. Computing nodes
between two calls become the gap before the second. CPU-side nodes repeat what a GPU node does and are set aside.

Sizes follow ASTRA-sim, which defines ``comm_size`` as the send buffer of a rank: an all-gather of n ranks ends with n
times as much.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from topologies.importers.errors import MalformedFileError
from workloads.importers import protobuf
from workloads.importers.errors import RankDisagreementError
from workloads.importers.json_stream import members
from workloads.importers.model import Call, GroupRef, Kind, Program, Reading, Tally
from workloads.importers.pytorch import collective
from workloads.importers.source import Source, truncated

KIND = "chakra"
TITLE = "Chakra execution trace"

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
_COMM_TYPES = {
    0: Kind.ALL_REDUCE, 1: Kind.REDUCE, 2: Kind.ALL_GATHER, 3: Kind.GATHER, 4: Kind.SCATTER, 5: Kind.BROADCAST,
    6: Kind.ALL_TO_ALL, 7: Kind.REDUCE_SCATTER, 8: Kind.REDUCE_SCATTER, 9: Kind.BARRIER,
}  # fmt: skip

# Field numbers of et_def.proto.
_ID, _NAME, _TYPE, _CONTROL, _DATA, _DURATION, _ATTRIBUTE = 1, 2, 3, 4, 5, 7, 10
_ATTRIBUTE_NAME, _INT32, _INT64, _UINT32, _UINT64, _BOOL, _STRING = 1, 7, 9, 11, 13, 27, 29
_RANK_IN_NAME = re.compile(r"\.(\d+)\.(?:et|json)(?:\.gz)?$")
_US = 1e-6
_TEXT = bytes({*range(0x20, 0x100), *b"\t\n\r"})


@dataclass
class _Node:
    id: int = 0
    name: str = ""
    type: int = 0
    after: list[int] = field(default_factory=list)
    duration_us: int = 0
    attributes: dict[str, int | str] = field(default_factory=dict)

    def number(self, key: str) -> int | None:
        value = self.attributes.get(key)
        return value if isinstance(value, int) else None


def looks_like_et(head: bytes) -> bool:
    """Whether ``head``, the start of a file, can be that of an ``.et`` file: messages, and more than text."""
    if head.translate(None, _TEXT) == b"":
        return False
    try:
        length, at = protobuf.varint(head, 0)
        if not 0 < length <= 1 << 24:
            return False
        for number, value in protobuf.fields(head[at : at + length]):
            if number not in (1, 2) or not isinstance(value, bytes):
                return False
    except protobuf.WireError as error:
        return error.cut
    return True


def read_et(sources: Sequence[Source]) -> Reading:
    """The programs of the ranks whose ``.et`` files these are; the rank is in the file name, ``NAME.RANK.et``.

    Raises TruncatedFileError, MalformedFileError, and RankDisagreementError for two files of the same rank.
    """
    return _read(sources, _et_nodes)


def read_json(sources: Sequence[Source]) -> Reading:
    """The same of the JSON form, which has no sizes."""
    return _read(sources, _json_nodes)


def _read(sources: Sequence[Source], nodes_of: object) -> Reading:
    tally = Tally()
    programs: dict[int, Program] = {}
    names: dict[int, str] = {}
    count = 0
    for position, source in enumerate(sources):
        found = _RANK_IN_NAME.search(source.name)
        rank = int(found.group(1)) if found else position
        if not found:
            tally.rule("a trace whose file name is not NAME.RANK.et has the rank of its place among the files")
        if rank in programs:
            raise RankDisagreementError(f"{names[rank]} and {source.name} are both of rank {rank}; give one per rank")
        nodes = list(_et_nodes(source) if nodes_of is _et_nodes else _json_nodes(source))
        count += len(nodes)
        names[rank] = source.name
        programs[rank] = Program(f"rank {rank}", frozenset({rank}), tuple(_calls(source.name, rank, nodes, tally)))
    ranks = None
    if len(programs) > 1:
        ranks = max(programs) + 1
        tally.rule(f"the files do not say how many ranks there were: {ranks}, one more than the highest rank given")
    tally.facts["nodes"] = count
    ordered = tuple(programs[rank] for rank in sorted(programs))
    return Reading(KIND, TITLE, tuple(source.name for source in sources), ordered, ranks, tally)


def _et_nodes(source: Source) -> Iterator[_Node]:
    number = 0  # of messages that are read
    try:
        for message in protobuf.messages(source.data()):
            if number:  # the first one is the metadata
                yield _et_node(message)
            number += 1
    except (protobuf.WireError, UnicodeDecodeError) as error:
        if isinstance(error, protobuf.WireError) and error.cut:
            raise truncated(source.name, f"{error} in message {number + 1}") from None
        raise MalformedFileError(
            f"{source.name} is not a Chakra trace: message {number + 1}: {error}; convert the trace again"
        ) from None


def _et_node(message: bytes) -> _Node:
    node = _Node()
    for number, value in protobuf.fields(message):
        if number in (_CONTROL, _DATA):
            node.after += protobuf.packed(value)
        elif isinstance(value, bytes):
            if number == _NAME:
                node.name = value.decode()
            elif number == _ATTRIBUTE:
                key, content = _attribute(value)
                node.attributes[key] = content
        elif number == _ID:
            node.id = value
        elif number == _TYPE:
            node.type = value
        elif number == _DURATION:
            node.duration_us = value
    return node


def _attribute(message: bytes) -> tuple[str, int | str]:
    name, content = "", ""  # type: str, int | str
    for number, value in protobuf.fields(message):
        if isinstance(value, bytes):
            if number == _ATTRIBUTE_NAME:
                name = value.decode()
            elif number == _STRING:
                content = value.decode()
        elif number in (_INT32, _INT64):
            content = protobuf.signed(value)
        elif number in (_UINT32, _UINT64, _BOOL):
            content = value
    return name, content


def _json_nodes(source: Source) -> Iterator[_Node]:
    with source.reader() as reader:
        for key, value in members(reader, {"workload_graph"}):
            if key != "workload_graph":
                continue
            try:
                yield _Node(
                    id=int(value["Id"]), name=str(value["Name"]), type=int(value["NodeType"]),
                    after=[int(one) for one in value.get("data_deps", ())],
                    duration_us=int(value.get("runtime", 0)),
                    attributes={"is_cpu_op": int(bool(value.get("is_cpu_op", False)))},
                )  # fmt: skip
            except (KeyError, OverflowError, TypeError, ValueError):
                raise MalformedFileError(
                    f"{source.name}: a node of workload_graph lacks Id, Name or NodeType; convert the trace again"
                ) from None


def _calls(file: str, rank: int, nodes: Sequence[_Node], tally: Tally) -> list[Call]:
    """The calls of one rank, in an order that respects their dependencies."""
    by_id = {node.id: node for node in nodes}
    if len(by_id) < len(nodes):
        raise MalformedFileError(f"{file}: two nodes have the same id; convert the trace again")
    ordered = _topological(file, nodes, by_id)
    calls: list[Call] = []
    waits: dict[int, tuple[frozenset[int], float]] = {}
    for node in ordered:
        before: set[int] = set()
        gap_s = 0.0
        for one in node.after:
            positions, passed_s = waits.get(one, (frozenset(), 0.0))
            before |= positions
            gap_s = max(gap_s, passed_s)
        kind = _kind(file, node, by_id, tally)
        if kind is None:
            busy_s = node.duration_us * _US if node.type == COMPUTE and not node.number("is_cpu_op") else 0.0
            waits[node.id] = (frozenset(before), gap_s + busy_s)
            continue
        waits[node.id] = (frozenset({len(calls)}), 0.0)
        tally.use()
        calls.append(_call(file, rank, node, kind, tuple(sorted(before)), gap_s))
    return calls


def _kind(file: str, node: _Node, by_id: Mapping[int, _Node], tally: Tally) -> Kind | None:
    """What a node does; None for what is no call, which is counted."""
    if node.type not in (SEND, RECEIVE, COLLECTIVE):
        return None
    if node.number("is_cpu_op"):
        tally.skip("CPU-side node of an operation of the GPU")
        return None
    if node.type != COLLECTIVE:
        # Some writers repeat the node type in comm_type here, so only the type counts.
        return Kind.SEND if node.type == SEND else Kind.RECV
    comm_type = node.number("comm_type")
    if comm_type in _COMM_TYPES:
        return _COMM_TYPES[comm_type]
    for one in node.after:  # the CPU operator that launched the kernel names it; the kernel's name is no evidence
        launcher = by_id.get(one)
        kind = collective(launcher.name) if launcher and launcher.name.startswith("c10d::") else None
        if kind is not None:
            return kind
    tally.skip(f"collective of an unknown type ({node.name[:40] if comm_type is None else comm_type})")
    return None


def _call(file: str, rank: int, node: _Node, kind: Kind, after: tuple[int, ...], gap_s: float) -> Call:
    size = node.number("comm_size")
    name = str(node.attributes.get("pg_name", ""))
    duration_s = node.duration_us * _US if node.duration_us else None
    if kind not in (Kind.SEND, Kind.RECV):
        # Without the name of a group all ranks take part.
        return Call(kind, GroupRef(name, whole=not name), size, None, after=after, gap_s=gap_s, duration_s=duration_s)
    peer = node.number("comm_dst" if kind is Kind.SEND else "comm_src")
    if peer is None:
        raise MalformedFileError(
            f"{file}: node {node.id} ({node.name[:40]}) does not say whom it exchanges with; convert the trace again"
        )
    tag = node.number("comm_tag")
    group = GroupRef(name if not tag else f"{name} tag {tag}")
    sent, received = (size, None) if kind is Kind.SEND else (None, size)
    return Call(kind, group, sent, received, peer=peer, after=after, gap_s=gap_s, duration_s=duration_s)


def _topological(file: str, nodes: Sequence[_Node], by_id: Mapping[int, _Node]) -> list[_Node]:
    """The nodes so that each comes after those it depends on, otherwise in the order of the file."""
    state: dict[int, int] = {}
    ordered: list[_Node] = []
    for root in nodes:
        stack = [(root, iter(root.after))] if root.id not in state else []
        state.setdefault(root.id, 0)
        while stack:
            node, rest = stack[-1]
            for one in rest:
                if one not in by_id:
                    continue  # converters leave out parents that are not part of the graph
                if one not in state:
                    state[one] = 0
                    stack.append((by_id[one], iter(by_id[one].after)))
                    break
                if state[one] == 0:
                    raise MalformedFileError(
                        f"{file}: node {node.id} and node {one} wait for each other; convert the trace again"
                    )
            else:
                stack.pop()
                state[node.id] = 1
                ordered.append(node)
    return ordered
