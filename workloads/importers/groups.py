"""Groups of ranks: the families that training jobs use, and how a family follows from one of its groups."""

from __future__ import annotations

from collections.abc import Sequence

from workloads.importers.errors import RankCountError
from workloads.importers.model import Members


def blocks(size: int, ranks: int) -> tuple[Members, ...]:
    """All ranks as blocks of ``size`` consecutive ones. Raises RankCountError where they do not fit."""
    if size < 1 or ranks % size:
        raise RankCountError(f"{ranks} ranks cannot be cut into groups of {size}; give --gpus a multiple of {size}")
    return tuple(tuple(range(first, first + size)) for first in range(0, ranks, size))


def family(members: Members, ranks: int) -> tuple[Members, ...]:
    """The groups, ``members`` among them, that cover all ranks by the same pattern; only ``members`` if there is none.

    The pattern is: every stride-th rank of a block of size * stride consecutive ranks.
    """
    size = len(members)
    stride = members[1] - members[0] if size > 1 else 1
    span = size * stride
    if stride < 1 or ranks % span or members != strided(members[0], stride, size) or members[0] % span >= stride:
        return (members,)
    return tuple(strided(block + offset, stride, size) for block in range(0, ranks, span) for offset in range(stride))


def strided(first: int, stride: int, size: int) -> Members:
    """``size`` ranks from ``first`` on, every ``stride``-th."""
    return tuple(range(first, first + size * stride, stride))


class ParallelGroups:
    """The groups of a training job over ``ranks``, which are numbered as Megatron does it.

    Tensor-parallel neighbours come first, then data-parallel ones, then pipeline stages. Expert groups are consecutive
    data-parallel ones. ``tp``, ``pp`` and ``ep`` are the sizes. Raises RankCountError where they do not fit together.
    """

    def __init__(self, ranks: Sequence[int], tp: int, pp: int = 1, ep: int = 1) -> None:
        n = len(ranks)
        if n % (tp * pp):
            raise RankCountError(
                f"{n} ranks cannot be cut into pp {pp} stages of tp {tp} ranks; give --gpus a multiple of {tp * pp}"
            )
        self._ranks = ranks
        self.tp_size, self.pp_size, self.ep_size = tp, pp, ep
        self.dp_size = n // (tp * pp)
        if self.dp_size % ep:
            raise RankCountError(
                f"the {self.dp_size} data-parallel ranks (of {n}, with tp {tp} and pp {pp}) cannot be cut into expert "
                f"groups of {ep}; give --gpus a multiple of {tp * pp * ep}"
            )

    def _rank(self, stage: int, replica: int, part: int) -> int:
        return self._ranks[(stage * self.dp_size + replica) * self.tp_size + part]

    def tensor(self) -> tuple[Members, ...]:
        """Tensor-parallel groups."""
        parts = range(self.tp_size)
        return tuple(
            tuple(self._rank(stage, replica, part) for part in parts)
            for stage in range(self.pp_size)
            for replica in range(self.dp_size)
        )

    def data(self) -> tuple[Members, ...]:
        """Data-parallel groups."""
        return self._of_replicas(self.dp_size, 1)

    def expert(self) -> tuple[Members, ...]:
        """Expert-parallel groups: ``ep`` consecutive data-parallel ranks."""
        return self._of_replicas(self.ep_size, 1)

    def expert_data(self) -> tuple[Members, ...]:
        """The groups that hold the same experts: every ``ep``-th data-parallel rank."""
        return self._of_replicas(self.dp_size // self.ep_size, self.ep_size)

    def neighbours(self, stage: int) -> tuple[Members, ...]:
        """The pairs of ranks at the same place of pipeline stages ``stage`` and ``stage`` + 1."""
        return tuple(
            (self._rank(stage, replica, part), self._rank(stage + 1, replica, part))
            for replica in range(self.dp_size)
            for part in range(self.tp_size)
        )

    def _of_replicas(self, size: int, stride: int) -> tuple[Members, ...]:
        span = size * stride
        return tuple(
            tuple(self._rank(stage, block + offset + stride * index, part) for index in range(size))
            for stage in range(self.pp_size)
            for block in range(0, self.dp_size, span)
            for offset in range(stride)
            for part in range(self.tp_size)
        )
