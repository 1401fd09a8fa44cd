"""What PyTorch's profiler and its execution traces have in common: names of collectives and of number formats."""

from __future__ import annotations

import re

from workloads.importers.model import Kind

DTYPE_BYTES = {
    "byte": 1, "char": 1, "bool": 1, "unsigned char": 1, "signed char": 1, "uint8": 1, "int8": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "half": 2, "bfloat16": 2, "short": 2, "float16": 2, "int16": 2,
    "int": 4, "float": 4, "int32": 4, "float32": 4,
    "long": 8, "long int": 8, "double": 8, "int64": 8, "float64": 8, "complexfloat": 8,
    "complexdouble": 16,
}  # fmt: skip

MAX_RANKS = 1 << 20
"""A rank or group size above this is taken for damage."""

WAITS = frozenset({"wait", "barrier_wait"})

_NAMES = {
    "allreduce": Kind.ALL_REDUCE,
    "allgather": Kind.ALL_GATHER,
    "allgatherv": Kind.ALL_GATHER,
    "reducescatter": Kind.REDUCE_SCATTER,
    "alltoall": Kind.ALL_TO_ALL,
    "alltoallv": Kind.ALL_TO_ALL,
    "broadcast": Kind.BROADCAST,
    "reduce": Kind.REDUCE,
    "gather": Kind.GATHER,
    "scatter": Kind.SCATTER,
    "barrier": Kind.BARRIER,
    "send": Kind.SEND,
    "isend": Kind.SEND,
    "recv": Kind.RECV,
    "irecv": Kind.RECV,
}
_ENDINGS = ("base", "coalesced", "oop", "single", "intotensor", "tensor", "anysource")


def count(value: object, most: int = 1 << 53) -> int | None:
    """``value`` if it is a whole number from 0 to ``most``, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most or value != int(value):
        return None
    return int(value)


def ranks_of(value: object) -> tuple[int, ...]:
    """The ranks in a list of whole numbers; empty for anything else."""
    if not isinstance(value, list) or len(value) > MAX_RANKS:
        return ()
    found = [count(one, MAX_RANKS) for one in value]
    return () if None in found else tuple(one for one in found if one is not None)


def dtype_bytes(dtype: str) -> int | None:
    """Bytes of one element of a format as PyTorch or C++ names it; None for a name that is not known."""
    return DTYPE_BYTES.get(dtype.strip().lower().removeprefix("c10::").removeprefix("torch."))


def collective(name: str) -> Kind | None:
    """The collective that PyTorch calls ``name`` (``_allgather_base``, ``nccl:all_to_all``); None for any other."""
    word = re.sub(r"[^a-z]", "", name.lower().removeprefix("c10d::").removeprefix("nccl:").split("(")[0])
    while word not in _NAMES:
        ending = next((ending for ending in _ENDINGS if word.endswith(ending)), None)
        if ending is None:
            return None
        word = word.removesuffix(ending)
    return _NAMES[word]
