"""Pipeline schedules: in which order a stage runs the forward and backward passes of its micro-batches.

1F1B and its interleaved form, as in Narayanan et al., SC'21. With v chunks a stage holds v parts of the model, so that
the model passes all stages v times, and the idle share of the time falls from (p-1)/m to (p-1)/(m v).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pass:
    """The forward or backward pass of one micro-batch through one chunk of a stage."""

    backward: bool
    chunk: int
    micro_batch: int


def stage_passes(stage: int, stages: int, micro_batches: int, chunks: int = 1) -> tuple[Pass, ...]:
    """All passes of a stage in order.

    First as many forward passes as fill the pipeline, then one forward and one backward pass in turn, then the rest of
    the backward passes. With several chunks ``micro_batches`` must be a multiple of ``stages``: a stage takes so many
    micro-batches through one chunk before it goes on to the next.
    """
    total = micro_batches * chunks
    ahead = stages - stage - 1 if chunks == 1 else (stages - stage - 1) * 2 + (chunks - 1) * stages
    ahead = min(ahead, total)
    made = [_pass(number, False, stages, chunks) for number in range(ahead)]
    for number in range(ahead, total):
        made.append(_pass(number, False, stages, chunks))
        made.append(_pass(number - ahead, True, stages, chunks))
    made.extend(_pass(number, True, stages, chunks) for number in range(total - ahead, total))
    return tuple(made)


def _pass(number: int, backward: bool, stages: int, chunks: int) -> Pass:
    if chunks == 1:
        return Pass(backward, 0, number)
    turn, place = divmod(number, stages * chunks)
    chunk, micro_batch = divmod(place, stages)
    return Pass(backward, chunks - 1 - chunk if backward else chunk, turn * stages + micro_batch)
