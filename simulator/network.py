"""Flows that share links, and their max-min fair rates from event to event, in compiled loops over arrays.

Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2): all flows grow at the
same pace, the link with the smallest fair share fills first, its flows stop there, the others grow on. Links wait in
buckets by share; a link whose share has grown moves on when its bucket is due. When flows come
or go, everything that had stopped below the lowest level that they can touch stays as it is; only the flows above are
filled again.

A flow may stand for several equal ones: ``weight`` is then the number of them on one link.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Shorts = NDArray[np.int32]

TIE = 1e-12
"""Flows that would end within this share of the time end together; links with such shares fill together."""

REFRESH = 512
"""Partial fillings after which everything is filled anew, so that rounding errors do not add up."""

FRESH = -1.0
"""Rate of a flow that has joined since the last filling."""

LEVEL, CLOCK, FILLINGS, FLOWS, STAMP = 0, 1, 2, 3, 4
"""Places in :attr:`Network.state`: level from which to fill again (inf: nothing), time, fillings since the last whole
one, active flows, fillings ever."""

SEEN, NEED, SPARE = 0, 1, 2
"""Columns of :attr:`Network.work`: the filling that last touched the link, its open flows, capacity left for them."""


class Network(NamedTuple):
    """The arrays of a network; made by :func:`network`, changed in place by the functions of this module.

    Flow f crosses the links ``link[first[f]:first[f+1]]``. The active flows of a link lie together at the start of its
    part of ``segment``; ``slot`` is where, by the place in ``link``. ``work`` has a row per link: SEEN, NEED, SPARE.
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
    by_flow = np.zeros((2, flows))
    shorts = np.zeros((5, links + 1), dtype=np.int32)
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
        state=np.array([np.inf, 0.0, 0.0, 0.0, 0.0]),
        work=np.zeros((links, 4)),
        is_open=np.zeros(flows, dtype=np.uint8),
        touched=shorts[0],
        queue=shorts[1],
        ripe=shorts[2],
        bucket=shorts[3],
        next_link=shorts[4],
    )


@compiled
def join(net: Network, flows: Shorts) -> None:
    """Start flows now; they have a rate after the next filling."""
    count = int(net.state[FLOWS])
    level = net.state[LEVEL]
    for flow in flows:
        net.place[flow] = count
        net.active[count] = flow
        count += 1
        net.rate[flow] = FRESH
        net.since[flow] = net.state[CLOCK]
        net.finish[flow] = np.inf
        for e in range(net.first[flow], net.first[flow + 1]):
            j = net.link[e]
            at = net.segment_first[j] + net.users[j]
            net.segment[at] = flow
            net.slot[e] = at
            net.users[j] += 1
            net.weight_sum[j] += net.weight[e]
    for flow in flows:
        # A link cannot be full below an equal share for all on it.
        for e in range(net.first[flow], net.first[flow + 1]):
            j = net.link[e]
            level = min(level, net.room[j] / net.weight_sum[j])
    net.state[FLOWS] = count
    net.state[LEVEL] = level


@compiled
def leave(net: Network, flow: int) -> None:
    """Stop a flow now, whatever is left of it."""
    now = net.state[CLOCK]
    rate = max(net.rate[flow], 0.0)
    net.left[flow] -= rate * (now - net.since[flow])
    net.since[flow] = now
    for e in range(net.first[flow], net.first[flow + 1]):
        j = net.link[e]
        net.carried[j] += net.used[j] * (now - net.used_since[j])
        net.used_since[j] = now
        net.used[j] = max(0.0, net.used[j] - rate * net.weight[e])
        net.weight_sum[j] -= net.weight[e]
        net.users[j] -= 1
        at = net.segment_first[j] + net.users[j]
        last = net.segment[at]
        net.segment[net.slot[e]] = last
        for other in range(net.first[last], net.first[last + 1]):
            if net.link[other] == j and net.slot[other] == at:
                net.slot[other] = net.slot[e]
                break
    count = int(net.state[FLOWS]) - 1
    moved = net.active[count]
    net.active[net.place[flow]] = moved
    net.place[moved] = net.place[flow]
    net.place[flow] = -1
    net.state[FLOWS] = count
    net.state[LEVEL] = min(net.state[LEVEL], rate)
    net.rate[flow] = 0.0
    net.finish[flow] = np.inf


@compiled
def settle(net: Network) -> None:
    """Bring the bytes that links have carried up to date."""
    now = net.state[CLOCK]
    for j in range(len(net.room)):
        net.carried[j] += net.used[j] * (now - net.used_since[j])
        net.used_since[j] = now


@compiled
def _into_bucket(net: Network, j: int, bucket: int) -> None:
    net.next_link[j] = net.bucket[bucket]
    net.bucket[bucket] = j


@compiled
def _spread(net: Network, links: Shorts, size: int) -> tuple[float, float]:
    """Put links into as many buckets by fair share, up to four times the smallest, and the rest into the one behind.

    Returns the smallest share and buckets per unit of share.
    """
    low = np.inf
    for at in range(size):
        j = links[at]
        low = min(low, net.work[j, SPARE] / net.work[j, NEED])
    low = max(low, 0.0)
    per_unit = size / (3 * low) if low > 0 else 0.0
    for bucket in range(size + 1):
        net.bucket[bucket] = -1
    for at in range(size):
        j = links[at]
        _into_bucket(net, j, int(min(size, (net.work[j, SPARE] / net.work[j, NEED] - low) * per_unit)))
    return low, per_unit


@compiled
def _freeze(net: Network, j: int, level: float) -> int:
    """Stop all open flows of a full link at ``level``; returns their number."""
    now = net.state[CLOCK]
    stopped = 0
    begin = net.segment_first[j]
    for at in range(begin, begin + net.users[j]):
        flow = net.segment[at]
        if not net.is_open[flow]:
            continue
        net.is_open[flow] = 0
        stopped += 1
        for e in range(net.first[flow], net.first[flow + 1]):
            other = net.link[e]
            net.work[other, NEED] -= net.weight[e]
            net.work[other, SPARE] -= net.weight[e] * level
        rate = net.rate[flow]
        if rate != level:
            net.left[flow] -= max(rate, 0.0) * (now - net.since[flow])
            net.since[flow] = now
            net.rate[flow] = level
            net.finish[flow] = now + max(net.left[flow], 0.0) / level if level > 0 else np.inf
    return stopped


@compiled
def _open(net: Network, low: float, whole: bool) -> tuple[int, int]:
    """Open the flows that were at ``low`` or above; returns their number and that of the links they cross."""
    net.state[STAMP] += 1
    stamp = net.state[STAMP]
    flows = size = 0
    for k in range(int(net.state[FLOWS])):
        flow = net.active[k]
        rate = net.rate[flow]
        if rate < low and rate != FRESH:
            continue
        net.is_open[flow] = 1
        flows += 1
        rate = max(rate, 0.0)
        for e in range(net.first[flow], net.first[flow + 1]):
            j = net.link[e]
            if net.work[j, SEEN] != stamp:
                net.work[j, SEEN] = stamp
                net.work[j, NEED] = 0.0
                net.work[j, SPARE] = net.room[j] if whole else net.room[j] - net.used[j]
                net.touched[size] = j
                size += 1
            net.work[j, NEED] += net.weight[e]
            if not whole:
                net.work[j, SPARE] += net.weight[e] * rate
    return flows, size


@compiled
def fill(net: Network) -> None:
    """Give the flows their max-min fair rates, from the level in ``state`` upwards."""
    level = net.state[LEVEL]
    if level == np.inf:
        return
    now = net.state[CLOCK]
    net.state[FILLINGS] += 1
    if net.state[FILLINGS] >= REFRESH:
        level = 0.0
        net.state[FILLINGS] = 0
    whole = level == 0.0
    if whole:
        settle(net)
        net.used[:] = 0.0
    flows, size = _open(net, level * (1 - 1e-9), whole)
    crossed = size
    net.queue[:size] = net.touched[:size]
    reached = 0.0
    while flows:
        low, per_unit = _spread(net, net.queue, size)
        for bucket in range(size):
            while flows and net.bucket[bucket] >= 0:
                # Of those that are still due in this bucket, the fullest ones stop their flows.
                j = net.bucket[bucket]
                net.bucket[bucket] = -1
                kept = 0
                least = np.inf
                while j >= 0:
                    following = net.next_link[j]
                    if net.work[j, NEED] > 0.5:
                        share = net.work[j, SPARE] / net.work[j, NEED]
                        due = int(min(size, (share - low) * per_unit))
                        if due > bucket:
                            _into_bucket(net, j, due)
                        else:
                            net.ripe[kept] = j
                            kept += 1
                            least = min(least, share)
                    j = following
                reached = max(reached, least) if kept else reached
                for at in range(kept):
                    j = net.ripe[at]
                    if net.work[j, NEED] > 0.5:
                        if net.work[j, SPARE] / net.work[j, NEED] <= reached * (1 + TIE):
                            flows -= _freeze(net, j, reached)
                        else:
                            _into_bucket(net, j, bucket)
        # What is left lies behind the last bucket.
        j = net.bucket[size]
        rest = 0
        while j >= 0 and flows:
            if net.work[j, NEED] > 0.5:
                net.queue[rest] = j
                rest += 1
            j = net.next_link[j]
        size = rest
    for at in range(crossed):
        j = net.touched[at]
        if not whole:
            net.carried[j] += net.used[j] * (now - net.used_since[j])
            net.used_since[j] = now
        net.used[j] = net.room[j] - max(net.work[j, SPARE], 0.0)
    net.state[LEVEL] = np.inf


@compiled
def run(
    net: Network, until: float, merge: float, started: float, waited: NDArray[np.uint8], ended: Shorts, end: Floats,
    most: int,
) -> int:  # fmt: skip
    """Let flows end, one event after the other, until one ends that is ``waited`` for, or ``until``, or ``most`` ended.

    Puts these flows into ``ended``, their times into ``end``, and returns their number. All flows that end within
    the share ``merge`` of the time since ``started`` after the first one do so at their own times, but what they leave
    is given to the others only at the last of them.
    """
    count = 0
    while True:
        fill(net)
        soonest = np.inf
        for k in range(int(net.state[FLOWS])):
            soonest = min(soonest, net.finish[net.active[k]])
        if soonest > until or soonest == np.inf:
            if until != np.inf:
                net.state[CLOCK] = max(net.state[CLOCK], until)
            return count
        tied = soonest * (1 + TIE)
        close = min(max(tied, soonest + merge * (soonest - started)), max(until, tied))
        begin = count
        last = soonest
        for k in range(int(net.state[FLOWS])):
            flow = net.active[k]
            if net.finish[flow] <= close:
                ended[count] = flow
                end[count] = soonest if net.finish[flow] <= tied else net.finish[flow]
                last = max(last, end[count])
                count += 1
        net.state[CLOCK] = last
        stop = False
        for at in range(begin, count):
            flow = ended[at]
            over = last - end[at]
            if over > 0:  # it was counted as running up to the last one's end
                for e in range(net.first[flow], net.first[flow + 1]):
                    net.carried[net.link[e]] -= net.weight[e] * net.rate[flow] * over
            leave(net, flow)
            net.left[flow] = 0.0
            stop = stop or waited[flow] == 1
        if stop or count >= most:
            return count
