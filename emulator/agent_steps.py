"""What the resident agent is told to do: the items of a schedule in emulated bytes and seconds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from topologies.scale import Scale
from workloads.schedule import Computation, Transfer


@dataclass(frozen=True, slots=True)
class Step:
    """One transfer (``size_bytes`` emulated bytes), or a computation where ``size_bytes`` is 0.

    ``wait_s`` emulated seconds lie between the end of what it waits for and its start, or its end for a computation.
    """

    id: int
    after: tuple[int, ...]
    src: int
    dst: int
    size_bytes: int
    wait_s: float


def steps(items: Iterable[Transfer | Computation], scale: Scale) -> Iterator[Step]:
    """The items of a schedule as steps, one after the other as they are asked for."""
    for item in items:
        if isinstance(item, Transfer):
            size_bytes = scale.emulated_bytes(item.size_bytes)
            yield Step(item.id, item.after, item.src, item.dst, size_bytes, scale.emulated_s(item.delay_s))
        else:
            yield Step(item.id, item.after, item.rank, item.rank, 0, scale.emulated_s(item.duration_s))


def batches(made: Iterable[Step], size: int) -> Iterator[list[Step]]:
    """Steps in lists of ``size``, the last one shorter."""
    remaining = iter(made)
    while batch := list(islice(remaining, size)):
        yield batch
