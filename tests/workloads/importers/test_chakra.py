from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.real_inputs import needs_inputs, real
from tests.workloads.importers.makers import total, workload, write_json
from topologies.importers.errors import MalformedFileError, TruncatedFileError
from workloads.importers import protobuf
from workloads.importers.chakra import looks_like_et
from workloads.importers.errors import RankDisagreementError, UnknownSizeError
from workloads.importers.expand import to_schedule
from workloads.importers.model import Kind

MIB = 1 << 20


@needs_inputs
class TestRealTraces:
    @pytest.mark.parametrize(
        ("folder", "kind", "ranks", "size_bytes"),
        [
            ("all_reduce/4npus_1MB", Kind.ALL_REDUCE, 4, MIB),
            ("all_reduce/8npus_1MB", Kind.ALL_REDUCE, 8, MIB),
            ("all_gather/8npus_1MB", Kind.ALL_GATHER, 8, 8 * MIB),
            ("all_gather/16npus_1MB", Kind.ALL_GATHER, 16, 16 * MIB),
            ("reduce_scatter/8npus_1MB", Kind.REDUCE_SCATTER, 8, MIB),
            ("reduce_scatter/16npus_1MB", Kind.REDUCE_SCATTER, 16, MIB),
            ("all_to_all/4npus_1MB", Kind.ALL_TO_ALL, 4, MIB),
            ("all_to_all/16npus_1MB", Kind.ALL_TO_ALL, 16, MIB),
        ],
    )
    def test_microbenchmarks(self, folder: str, kind: Kind, ranks: int, size_bytes: int) -> None:
        found = workload(*real(f"chakra-et/astra_microbench/{folder}/*"), strict=True)
        (operation,) = found.operations
        assert found.ranks == found.report.known_ranks == ranks
        assert (operation.kind, operation.size_bytes, operation.groups) == (kind, size_bytes, (tuple(range(ranks)),))
        assert total(found, kind.value).in_bytes == ranks * MIB

    def test_a_ring_written_as_messages(self) -> None:
        found = workload(*real("chakra-et/astra_custom_ring_allreduce_8npus_1MB/*"), strict=True)
        assert (found.report.facts["nodes"], len(found.operations)) == (8 * 35, 112)
        assert total(found, "send").calls == total(found, "recv").calls == 8 * 14
        schedule = to_schedule(found).schedule
        assert schedule.bytes_by_pair() == {(rank, (rank + 1) % 8): 1_835_008 for rank in range(8)}
        # A ring of 14 steps: the longest chain of messages is 14 long.
        depth: dict[int, int] = {}
        for operation in found.operations:
            depth[operation.id] = 1 + max((depth[one] for one in operation.after), default=0)
        assert max(depth.values()) == 14

    def test_the_json_form_has_no_sizes(self) -> None:
        found = workload(*real("chakra-et/chakra_resnet_graph.0.json.gz"), gpus=4)
        reduced, sent = total(found, "all-reduce"), total(found, "broadcast")
        assert (reduced.calls, reduced.unknown, sent.calls, sent.unknown) == (5, 5, 2, 2)
        assert round((reduced.duration_s + sent.duration_s) * 1e6) == 36_715
        assert found.report.set_aside == {"CPU-side node of an operation of the GPU": 14}
        with pytest.raises(UnknownSizeError, match="holds no sizes"):
            to_schedule(found)
        assert to_schedule(found, unknown_size_bytes=MIB).schedule.total_bytes >= 5 * 2 * 3 * MIB

    def test_every_cut_is_one_sentence(self, tmp_path: Path) -> None:
        (path,) = real("chakra-et/astra_microbench/all_gather/16npus_1MB/all_gather.1.et")
        whole = path.read_bytes()
        cut = tmp_path / "all_gather.1.et"
        for length in range(9, len(whole)):
            cut.write_bytes(whole[:length])
            with pytest.raises(TruncatedFileError, match=r"all_gather\.1\.et is truncated"):
                workload(cut)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def node(number: int, kind: int, after: Sequence[int] = (), us: int = 0, **attributes: int | str) -> bytes:
    parts = [field(1, number) if number else b"", field(2, f"node {number}".encode()), field(3, kind)]
    if after:
        parts.append(field(5, b"".join(map(varint, after))))
    parts.append(field(7, us))
    for name, value in attributes.items():
        content = field(29, value.encode()) if isinstance(value, str) else field(9, value)
        parts.append(field(10, field(1, name.encode()) + content))
    return b"".join(parts)


def et(path: Path, nodes: Iterable[bytes]) -> Path:
    messages = [field(1, b"0.0.4"), *nodes]
    path.write_bytes(b"".join(varint(len(message)) + message for message in messages))
    return path


def test_computing_becomes_a_gap_and_order_comes_from_the_dependencies(tmp_path: Path) -> None:
    nodes = [
        node(3, 7, after=[2], comm_type=2, comm_size=64),
        node(0, 7, comm_type=0, comm_size=32),
        node(1, 4, after=[0], us=20),
        node(2, 4, after=[1], us=30),
        node(4, 7, after=[0], comm_type=6, comm_size=16, is_cpu_op=1),
    ]
    found = workload(et(tmp_path / "x.0.et", nodes), gpus=4)
    first, second = found.operations
    assert (first.kind, second.kind, second.after) == (Kind.ALL_REDUCE, Kind.ALL_GATHER, (0,))
    assert second.size_bytes == 256
    assert second.gap_s == pytest.approx(50e-6)
    assert found.report.set_aside == {"CPU-side node of an operation of the GPU": 1}


def test_of_one_file_the_number_of_ranks_is_not_known(tmp_path: Path) -> None:
    found = workload(et(tmp_path / "x.3.et", [node(0, 7, comm_type=0, comm_size=32)]))
    assert (found.ranks, found.operations[0].groups, found.operations[0].size_bytes) == (None, (), 32)


def test_a_receive_does_not_hold_up_its_sender(tmp_path: Path) -> None:
    """Two ranks that both receive before they send would wait for each other for ever if a receive blocked."""
    paths = [
        et(tmp_path / f"x.{rank}.et", [
            node(0, 6, comm_src=1 - rank, comm_size=8, comm_tag=0),
            node(1, 5, comm_dst=1 - rank, comm_size=8, comm_tag=0),
            node(2, 5, after=[0], comm_dst=1 - rank, comm_size=9, comm_tag=5),
            node(3, 6, comm_src=1 - rank, comm_size=9, comm_tag=5),
        ]) for rank in (0, 1)
    ]  # fmt: skip
    found = workload(*paths, strict=True)
    assert len(found.operations) == 4
    by_size = {(op.groups, op.size_bytes): op for op in found.operations}
    assert by_size[((0, 1),), 9].after == (by_size[((1, 0),), 8].id,)


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ([node(0, 5, comm_size=8)], "does not say whom it exchanges with"),
        ([node(1, 7, [2], comm_type=0), node(2, 7, [1], comm_type=0)], "wait for each other"),
        ([node(1, 7, comm_type=0), node(1, 7, comm_type=0)], "two nodes have the same id"),
        ([b"\x0b\x01"], "is not a Chakra trace: message 2: wire type 3"),
    ],
)
def test_bad_nodes(tmp_path: Path, nodes: list[bytes], sentence: str) -> None:
    with pytest.raises(MalformedFileError, match=sentence):
        workload(et(tmp_path / "x.0.et", nodes))


def test_messages_that_do_not_meet_are_refused(tmp_path: Path) -> None:
    sender = et(tmp_path / "x.0.et", [node(0, 5, comm_dst=1, comm_size=8), node(1, 5, comm_dst=1, comm_size=8)])
    receiver = et(tmp_path / "x.1.et", [node(0, 6, comm_src=0, comm_size=8)])
    with pytest.raises(RankDisagreementError, match="sends 2 messages to rank 1, which receives 1"):
        workload(sender, receiver)
    other = et(tmp_path / "y.1.et", [node(0, 6, comm_src=0, comm_size=8), node(1, 6, comm_src=0, comm_size=9)])
    with pytest.raises(RankDisagreementError, match="has 8 and 9 bytes at its two ends"):
        workload(sender, other)


def test_a_wrong_json_node_is_malformed(tmp_path: Path) -> None:
    with pytest.raises(MalformedFileError, match="lacks Id, Name or NodeType"):
        workload(write_json(tmp_path / "x.0.json", {"workload_graph": [{"Id": 3}]}))


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.integers(-(1 << 63), (1 << 64) - 1))
def test_numbers_of_the_wire_format(value: int) -> None:
    number, end = protobuf.varint(varint(value), 0)
    assert end == len(varint(value))
    assert (protobuf.signed(number) if value < 1 << 63 else number) == value


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, (1 << 64) - 1) | st.binary(max_size=40)), max_size=6))
def test_fields_of_the_wire_format(values: list[tuple[int, Any]]) -> None:
    assert list(protobuf.fields(b"".join(field(number, value) for number, value in values))) == values


def test_text_is_no_protobuf() -> None:
    assert not looks_like_et(b'{\n  "logical-dims": ["8","2"]\n}')
    assert not looks_like_et(b"hello world, this is a text\n")
