"""Runs an algorithm with numbers in place of bytes, in a random order that its dependencies allow.

A send reads its blocks at the source when it starts and writes them at the destination when it ends. Which send starts
or ends next is drawn at random, so an algorithm that lacks a dependency sooner or later gives a wrong number.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from workloads.algorithms import Send

Buffers = list[dict[int, int]]


def execute(sends: Sequence[Send], buffers: Buffers, rng: random.Random) -> Buffers:
    """The buffers (block -> number, by position) after all sends."""
    held = [dict(buffer) for buffer in buffers]
    waiting = {number: set(send.after) for number, send in enumerate(sends)}
    behind: dict[int, list[int]] = {}
    for number, send in enumerate(sends):
        for before in send.after:
            behind.setdefault(before, []).append(number)
    ready = [number for number, needed in waiting.items() if not needed]
    flying: list[tuple[int, dict[int, int]]] = []
    ended = 0
    while ready or flying:
        if ready and (not flying or rng.random() < 0.5):
            number = ready.pop(rng.randrange(len(ready)))
            send = sends[number]
            flying.append((number, {block: held[send.src][block] for block in send.blocks}))
            continue
        number, carried = flying.pop(rng.randrange(len(flying)))
        send = sends[number]
        for block, value in carried.items():
            held[send.dst][block] = held[send.dst][block] + value if send.reduces else value
        ended += 1
        for later in behind.get(number, ()):
            waiting[later].discard(number)
            if not waiting[later]:
                ready.append(later)
    assert ended == len(sends), "some sends wait for each other"
    return held
