"""The arrays of flows that share links; :mod:`simulator.filling` gives the flows their rates.

A flow may stand for several equal ones: ``weight`` is then the number of them on one link.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Shorts = NDArray[np.int32]

LEVEL, CLOCK, FILLINGS, FLOWS, STAMP, SEEDS, CHANGES = 0, 1, 2, 3, 4, 5, 6
"""Places in :attr:`Network.state`: level from which to fill again (inf: nothing), time, fillings since the last whole
one, active flows, fillings ever, links in ``seeds``, flows that have come or gone since the last filling."""

SEEN, NEED, SPARE, SEED, REACH, FOLLOWED = 0, 1, 2, 3, 4, 5
"""Columns of :attr:`Network.work`: the filling that last touched the link, its open flows, capacity left for them,
whether it is in ``seeds``, the rate from which its flows are to be opened, the filling that last followed it."""


class Network(NamedTuple):
    """The arrays of a network; made by :func:`network`, changed in place by :mod:`simulator.filling`.

    Flow f crosses the links ``link[first[f]:first[f+1]]``. The active flows of a link lie together at the start of its
    part of ``segment``; ``slot`` is where, by the place in ``link``. ``work`` has a row per link, ``seeds`` are links
    that flows have left while they were full. ``next_rate`` is what the filling under way has found.
    """

    first: Ints
    link: Shorts
    weight: NDArray[np.float32]
    segment_first: Ints
    segment: Shorts
    slot: Shorts
    users: Shorts
    weight_sum: Floats
    room: Floats
    used: Floats
    used_since: Floats
    carried: Floats
    rate: Floats
    left: Floats
    since: Floats
    finish: Floats
    active: Shorts
    place: Shorts
    state: Floats
    # For the filling only.
    work: Floats
    is_open: NDArray[np.uint8]
    opened: Shorts
    next_rate: Floats
    seeds: Shorts
    touched: Shorts
    queue: Shorts
    ripe: Shorts
    bucket: Shorts
    next_link: Shorts


def network(room: Floats, first: Ints, link: Shorts, weight: Floats, left: Floats) -> Network:
    """A network without active flows at time 0. ``room[j]`` is in bytes per second, ``left[i]`` in bytes."""
    flows, links, incidences = len(first) - 1, len(room), len(link)
    segment_first = np.zeros(links + 1, dtype=np.int64)
    np.cumsum(np.bincount(link, minlength=links), out=segment_first[1:])
    by_link = np.zeros((4, links))
    by_flow = np.zeros((3, flows))
    shorts = np.zeros((6, links + 1), dtype=np.int32)
    work = np.zeros((links, 6))
    work[:, REACH] = np.inf
    return Network(
        first=first.astype(np.int64),
        link=link.astype(np.int32),
        weight=weight.astype(np.float32),
        segment_first=segment_first,
        segment=np.zeros(incidences, dtype=np.int32),
        slot=np.zeros(incidences, dtype=np.int64),
        users=np.zeros(links, dtype=np.int32),
        weight_sum=by_link[0],
        room=room.astype(np.float64),
        used=by_link[1],
        used_since=by_link[2],
        carried=by_link[3],
        rate=by_flow[0],
        left=left.astype(np.float64),
        since=by_flow[1],
        finish=np.full(flows, np.inf),
        active=np.zeros(flows, dtype=np.int32),
        place=np.full(flows, -1, dtype=np.int32),
        state=np.array([np.inf, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        work=work,
        is_open=np.zeros(flows, dtype=np.uint8),
        opened=np.zeros(flows, dtype=np.int32),
        next_rate=by_flow[2],
        seeds=shorts[5],
        touched=shorts[0],
        queue=shorts[1],
        ripe=shorts[2],
        bucket=shorts[3],
        next_link=shorts[4],
    )
