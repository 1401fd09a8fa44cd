"""Files damaged in one place each: they are read, or refused in one sentence; nothing else ever escapes."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.importers.makers import event, kineto, nccl_kernel, refusal
from tests.workloads.importers.test_aicb import HEADER, row
from tests.workloads.importers.test_chakra import node
from tests.workloads.importers.test_chakra import varint as chakra_varint
from tests.workloads.importers.test_execution_trace import old_node
from topologies.errors import RailbedError

ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 1e300, float("inf"), float("nan"), 10**30, "", "x", "[1, 2", "[0, 0]", [], [[]], {},
    {"a": 1}, [None], -(10**30),
)  # fmt: skip


def new_kineto() -> Any:
    splits = {"In split size": "[4, 6]", "Out split size": "[4, 6]"}
    listed = {"pg_config": [{"pg_name": "0", "pg_size": 2, "ranks": [0, 1]}]}
    trace = kineto(
        [nccl_kernel(0, "allreduce", 10, [0, 1]), nccl_kernel(20, "all_to_allv", 10, [0, 1], **splits),
         event("cpu_op", "record_param_comms", 0, **{"Collective name": "wait", "Rank": 0}),
         event("user_annotation", "ProfilerStep#3", 0)],
        0, 2,
    )  # fmt: skip
    trace["distributedInfo"] |= listed
    return trace


def old_kineto() -> Any:
    return kineto(
        [
            event("cpu_op", "c10d::_allgather_base_", 0, 50,
                  **{"Input Dims": [[8, 2], [4, 2], []], "Input type": ["long", "long", ""]}),
            event("user_annotation", "nccl:_all_gather_base", 5, 30,
                  **{"Input Dims": [[4, 2]], "Input type": ["long"]}),
            event("cuda_runtime", "cudaLaunchKernel", 10, 5, correlation=77),
            event("kernel", "ncclKernel_AllReduce_RING()", 100, 20, tid=7, correlation=77),
            event("kernel", "multimem_all_reduce_kernel", 200, 20, tid=7, correlation=78),
            event("cpu_op", "vllm::all_reduce", 190, 20, **{"Input Dims": [[4, 2]], "Input type": ["long"]}),
        ],
        0, 2,
    )  # fmt: skip


def execution_trace() -> Any:
    groups = '[{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 2}]'
    attributes = [{"name": "dtype", "value": "Float"}, {"name": "in_msg_nelems", "value": 6}]
    values = [[1, 2, 0, 6, 4, "cuda:0"], 5, ["0", "default_pg"], 0, "all_to_allv", [2, 4], [2, 4], 0, 1, 2]
    new = {
        "name": "record_param_comms", "id": 5, "inputs": {"values": values}, "outputs": {"values": []},
        "attrs": attributes,
    }  # fmt: skip
    init = {"name": "## process_group:init ##", "id": 1, "inputs": {"values": [groups]}}
    return {"schema": "1.1.0", "nodes": [init, old_node(3, 0, "allreduce", 8), new]}


def chakra_json() -> Any:
    return {
        "workload_graph": [
            {"Id": 1, "Name": "c10d::allreduce_", "NodeType": 7, "data_deps": [], "runtime": 5, "is_cpu_op": True},
            {"Id": 2, "Name": "ncclKernel", "NodeType": 7, "data_deps": [1], "runtime": 5, "is_cpu_op": False},
        ]
    }


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in items for place in places(one, (*path, key)))]


@pytest.mark.parametrize("make", [new_kineto, old_kineto, execution_trace, chakra_json])
def test_odd_values_in_every_place(make: Callable[[], Any], tmp_path: Path) -> None:
    path = tmp_path / "x.0.json"
    outcomes: Counter[str] = Counter()
    for place in places(make())[1:]:
        for odd in ODD_VALUES:
            value = make()
            at = value
            for key in place[:-1]:
                at = at[key]
            at[place[-1]] = odd
            path.write_text(json.dumps(value))
            error = refusal(path)
            assert error is None or isinstance(error, RailbedError)
            assert "\n" not in str(error)
            outcomes[type(error).__name__] += 1
    assert outcomes["NoneType"] > 0
    assert len(outcomes) > 1


SIMAI = (
    "HYBRID_TRANSFORMER model_parallel_NPU_group: 2 ep: 1 pp: 2 vpp: 1 ga: 2 all_gpus: 8 pp_comm: 64\n2\n"
    "a -1 5 ALLREDUCE 64 5 NONE 0 5 ALLGATHER 64 1\nb -1 5 ALLTOALL_EP 64 5 NONE 0 5 REDUCESCATTER_DP_EP 64 1\n"
)
AICB = (
    "[ pp_stage0: [rank0, rank1] ]\n" + HEADER + row("all_reduce") + row("isend", "pp_group", 1, 10, more="send_next")
    + row("all_gather", "dp_group", 1)
    + "[ pp_stage1: [rank2, rank3] ]\n" + HEADER + row("irecv", "pp_group", 1, 10, more="recv_prev") + row("all_reduce")
)  # fmt: skip
LOG = (
    "# Rank 0 x\n# Rank 1 x\n#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
    "  8000  2000  float  sum  -1  80  100.00  100.00  0  80  100.00  100.00  0\n# Avg bus bandwidth : 100.0\n"
)
DEBUG = (
    "n:1:1 [0] NCCL INFO AllReduce: opCount 3 sendbuff 0x1 recvbuff 0x2 count 10 datatype 7 op 0 root 0 comm 0x5 "
    "[nranks=2] stream 0x9\n" * 2
)
TOPOLOGY = "6 2 2 0 4 H100\n4 5\n0 4 2880Gbps 0ms 0\n1 4 2880Gbps 0ms 0\n2 5 2880Gbps 0ms 0\n3 5 2880Gbps 0ms 0\n"
MATRIX = "\tGPU0\tGPU1\tmlx5_0\nGPU0\t X \tNV12\tPIX\nGPU1\tNV12\t X \tSYS\n"
XML = (
    '<system version="1"><cpu numaid="0"><pci busid="a" class="0x060400"><pci busid="g" class="0x030200">'
    '<gpu dev="0" sm="90"/></pci><pci busid="n" class="0x020700"><nic><net name="m" speed="100000"/></nic></pci></pci>'
    "</cpu></system>\n"
)
DUMP = (
    'Switch\t65 "S-01"\t\t# "MF0;leaf0:MQM9701/U1" x\n[1]\t"H-02"[1](00) \t# "h0 mlx5_0" lid 1 4xNDR\n\n'
    'Ca\t1 "H-02"\t\t# "h0 mlx5_0"\n[1](00) \t"S-01"[1]\t# lid 1 lmc 0 "leaf0" lid 2 4xNDR\n'
)
ODD_WORDS = ("", "-1", "x", "0", "99999999999999999999", "1.5", "nan", "[", "None", "\x00", "é")


@pytest.mark.parametrize("text", [SIMAI, AICB, LOG, DEBUG, TOPOLOGY, MATRIX, XML, DUMP])
def test_odd_words_and_lost_lines(text: str, tmp_path: Path) -> None:
    rng = random.Random(7)
    path = tmp_path / "x"
    path.write_text(text)
    assert refusal(path) is None
    for _ in range(250):
        lines = text.split("\n")
        line = rng.randrange(len(lines) - 1)
        what = rng.randrange(3)
        if what == 0:
            separator = rng.choice([" ", "\t", ",", '"'])
            words = lines[line].split(separator)
            words[rng.randrange(len(words))] = rng.choice(ODD_WORDS)
            lines[line] = separator.join(words)
        elif what == 1:
            del lines[line]
        else:
            lines[line] = lines[line][: rng.randrange(len(lines[line]) + 1)]
        path.write_text("\n".join(lines))
        assert "\n" not in str(refusal(path))


def test_odd_bytes_in_a_chakra_trace(tmp_path: Path) -> None:
    messages = [
        b"\x0a\x050.0.4", node(0, 7, comm_type=0, comm_size=64, is_cpu_op=0), node(1, 4, after=[0], us=7),
        node(2, 5, after=[1], comm_dst=1, comm_size=8, comm_tag=0), node(3, 6, comm_src=1, comm_size=8, pg_name="x"),
    ]  # fmt: skip
    whole = b"".join(chakra_varint(len(message)) + message for message in messages)
    path = tmp_path / "x.0.et"
    rng = random.Random(3)
    outcomes = set()
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        error = refusal(path)
        outcomes.add(type(error).__name__)
        assert "\n" not in str(error)
    assert {"NoneType", "MalformedFileError", "TruncatedFileError"} <= outcomes
