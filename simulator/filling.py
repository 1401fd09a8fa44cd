"""Max-min fair rates from event to event, in compiled loops over the arrays of a network.

Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2): all flows grow at the
same pace, the link with the smallest fair share fills first, its flows stop there, the others grow on. Links wait in
buckets by share; a link whose share has grown moves on when its bucket is due. When flows come
or go, everything that had stopped below the lowest level that they can touch stays as it is; only the flows above are
filled again.

When few flows go, only what hangs on them is filled again: the fastest flows of the links that they had filled, the
fastest of the full links that those cross, and so on. Every other flow still has a full link on which none is faster.
Only a link that fills at a lower level than some flow on it that was left out breaks this; such flows are then opened
too, and the filling is done again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import compiled
from simulator.network import (
    CHANGES,
    CLOCK,
    FILLINGS,
    FLOWS,
    FOLLOWED,
    LEVEL,
    NEED,
    REACH,
    SEED,
    SEEDS,
    SEEN,
    SPARE,
    STAMP,
    Floats,
    Network,
    Shorts,
)

TIE = 1e-12
"""Flows that would end within this share of the time end together; links with such shares fill together."""

REFRESH = 512
"""Partial fillings after which everything is filled anew, so that rounding errors do not add up."""

FRESH = -1.0
"""Rate of a flow that has joined since the last filling."""

FULL = 1e-7
"""Links with less than this share of their capacity left count as full."""

FEW = 16
"""Flows that may go at once for only their surroundings to be filled again."""

ROUNDS = 6
"""Times that the surroundings grow before all flows above the level are filled again."""

SLACK = 0.95
"""How far below the level at which a link filled its flows are opened, so that few rounds are enough."""

OPEN, STOPPED = 1, 2
"""Values of :attr:`Network.is_open` of a flow in the filling under way; 0: it has no part in it."""


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
    net.state[CHANGES] = np.inf


@compiled
def _seed(net: Network, j: int) -> None:
    """Fill again from this link."""
    if net.work[j, SEED] == 0:
        net.work[j, SEED] = 1
        net.seeds[int(net.state[SEEDS])] = j
        net.state[SEEDS] += 1


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
        if net.used[j] >= net.room[j] * (1 - FULL):
            _seed(net, j)
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
    net.state[CHANGES] += 1
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
def _freeze(net: Network, j: int, level: float) -> tuple[int, bool]:
    """Stop all open flows of a full link at ``level``; their number, and whether a flow that was left out is faster."""
    stopped = 0
    is_fastest = True
    begin = net.segment_first[j]
    for at in range(begin, begin + net.users[j]):
        flow = net.segment[at]
        if net.is_open[flow] != OPEN:
            if net.is_open[flow] == 0 and net.rate[flow] > level * (1 + 1e-9):
                is_fastest = False
            continue
        net.is_open[flow] = STOPPED
        net.next_rate[flow] = level
        stopped += 1
        for e in range(net.first[flow], net.first[flow + 1]):
            other = net.link[e]
            net.work[other, NEED] -= net.weight[e]
            net.work[other, SPARE] -= net.weight[e] * level
    return stopped, is_fastest


@compiled
def _open(net: Network, flow: int, flows: int, size: int, whole: bool) -> int:
    """Open a flow, the ``flows``-th; returns the number of links that all open ones cross."""
    stamp = net.state[STAMP]
    net.is_open[flow] = OPEN
    net.opened[flows] = flow
    rate = max(net.rate[flow], 0.0)
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
    return size


@compiled
def _open_above(net: Network, low: float, whole: bool) -> tuple[int, int]:
    """Open the flows that were at ``low`` or above; returns their number and that of the links they cross."""
    net.state[STAMP] += 1
    flows = size = 0
    for k in range(int(net.state[FLOWS])):
        flow = net.active[k]
        if net.rate[flow] >= low or net.rate[flow] == FRESH:
            size = _open(net, flow, flows, size, whole)
            flows += 1
    return flows, size


@compiled
def _open_near(net: Network, low: float) -> tuple[int, int]:
    """Open the flows whose rates hang on the links in ``seeds``; returns as :func:`_open_above`."""
    net.state[STAMP] += 1
    stamp = net.state[STAMP]
    flows = size = 0
    waiting = int(net.state[SEEDS])
    for at in range(waiting):
        net.queue[at] = net.seeds[at]
        net.work[net.seeds[at], FOLLOWED] = stamp
    while waiting:
        waiting -= 1
        j = net.queue[waiting]
        begin, behind = net.segment_first[j], net.segment_first[j] + net.users[j]
        top = low
        for at in range(begin, behind):
            top = max(top, net.rate[net.segment[at]])
        least = min(top, net.work[j, REACH]) * (1 - 1e-9)
        for at in range(begin, behind):
            flow = net.segment[at]
            if net.rate[flow] < least or net.is_open[flow]:
                continue
            size = _open(net, flow, flows, size, False)
            flows += 1
            for e in range(net.first[flow], net.first[flow + 1]):
                other = net.link[e]
                if net.work[other, FOLLOWED] != stamp and net.used[other] >= net.room[other] * (1 - FULL):
                    net.work[other, FOLLOWED] = stamp
                    net.queue[waiting] = other
                    waiting += 1
    return flows, size


@compiled
def _close(net: Network, opened: int) -> None:
    for at in range(opened):
        net.is_open[net.opened[at]] = 0


@compiled
def _raise(net: Network, flows: int, size: int) -> bool:
    """Find the rates of all open flows; returns whether none is slower than one that was left out at its full link.

    Links where one is become seeds, to be opened down to below the level at which they filled.
    """
    is_fair = True
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
                            stopped, is_fastest = _freeze(net, j, reached)
                            flows -= stopped
                            if not is_fastest:
                                is_fair = False
                                _seed(net, j)
                                net.work[j, REACH] = reached * SLACK
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
    return is_fair


@compiled
def _fill_near(net: Network, low: float) -> tuple[int, int]:
    """Find the rates of what hangs on the seeds; the flows and links, or -1 flows if it grows too often."""
    for _ in range(ROUNDS):
        flows, size = _open_near(net, low)
        if _raise(net, flows, size):
            return flows, size
        _close(net, flows)
    return -1, 0


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
    low = level * (1 - 1e-9)
    flows, size = -1, 0
    if not whole and net.state[CHANGES] <= FEW:
        flows, size = _fill_near(net, low)
    if flows < 0:
        flows, size = _open_above(net, low, whole)
        _raise(net, flows, size)
    for at in range(flows):
        flow = net.opened[at]
        net.is_open[flow] = 0
        rate, found = net.rate[flow], net.next_rate[flow]
        if rate != found:
            net.left[flow] -= max(rate, 0.0) * (now - net.since[flow])
            net.since[flow] = now
            net.rate[flow] = found
            net.finish[flow] = now + max(net.left[flow], 0.0) / found if found > 0 else np.inf
    for at in range(size):
        j = net.touched[at]
        if not whole:
            net.carried[j] += net.used[j] * (now - net.used_since[j])
            net.used_since[j] = now
        net.used[j] = net.room[j] - max(net.work[j, SPARE], 0.0)
    for at in range(int(net.state[SEEDS])):
        net.work[net.seeds[at], SEED] = 0
        net.work[net.seeds[at], REACH] = np.inf
    net.state[SEEDS] = 0
    net.state[CHANGES] = 0
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
