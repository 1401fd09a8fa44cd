"""The delay matrix of a window: how long every connection took for a byte, and whether the load explains it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from controller.diagnosis.collector import Window
from controller.diagnosis.network import Lane, Network
from controller.diagnosis.telemetry import Connection, Message
from controller.diagnosis.thresholds import Thresholds
from controller.diagnosis.verdict import Cell

Floats = NDArray[np.float64]

MOST_BINS = 400
LEAST_BIN_S = 0.02
MAD_TO_SIGMA = 1.4826
"""Standard deviations of a normal distribution in one median absolute deviation of it."""


@dataclass(frozen=True)
class _Seen:
    """A message as far as it went: it lasted from ``start_s`` to ``end_s``, or until now."""

    connection: Connection
    start_s: float
    end_s: float
    carried_bytes: float
    delay_s_per_mb: float
    is_over: bool


def delay_matrix(window: Window, network: Network | None, limits: Thresholds) -> dict[Connection, Cell]:
    """Every connection of the window on which a message has started.

    A message on its way counts by its age, as if it ended now, while it moves; one that stands still counts for hangs
    alone. Without ``network`` all connections are one class, and nothing is known of the load of links.
    """
    seen: dict[Connection, list[_Seen]] = {}
    stalled_s: dict[Connection, float] = {}
    for one in window.messages:
        if one.start_s is None:
            continue
        connection = one.connection
        still_s = 0.0 if one.end_s is not None else window.now_s - window.moved_s.get(one.id, one.start_s)
        stalled_s[connection] = max(still_s, stalled_s.get(connection, 0.0))
        of_connection = seen.setdefault(connection, [])
        if one.end_s is not None or still_s < limits.every_s:
            of_connection.append(_seen(one, connection, window.now_s))
    for messages in seen.values():
        messages.sort(key=lambda one: one.start_s)
    shares = _explained(window, network, [one for messages in seen.values() for one in messages]) if network else {}
    classes: dict[tuple[object, ...], list[Connection]] = {}
    for connection, messages in seen.items():
        if messages:
            classes.setdefault(_class_of(connection, messages, network), []).append(connection)
    cells = {connection: _unjudged(connection, seen[connection], stalled_s[connection], limits) for connection in seen}
    for members in classes.values():
        if len(members) >= limits.least_cells:
            cells.update(_judged(members, seen, shares, cells, limits))
    return cells


def _seen(one: Message, connection: Connection, now_s: float) -> _Seen:
    assert one.start_s is not None
    end_s = now_s if one.end_s is None else one.end_s
    carried = one.received_bytes if one.end_s is None else one.size_bytes
    delay = (end_s - one.start_s) / one.size_bytes * 1e6
    return _Seen(connection, one.start_s, end_s, carried, delay, one.end_s is not None)


def _class_of(connection: Connection, messages: Sequence[_Seen], network: Network | None) -> tuple[object, ...]:
    """Connections are alike that cross the same kinds of links with messages of about the same size."""
    size = max(one.carried_bytes for one in messages)
    size_class = round(math.log2(max(size, 1.0))) if any(one.is_over for one in messages) else None
    if network is None:
        return (size_class,)
    return (*(network.fabric.link(lane.link_id).kind for lane in network.lanes(connection)), size_class)


def _unjudged(connection: Connection, messages: Sequence[_Seen], stalled_s: float, limits: Thresholds) -> Cell:
    over = [one.delay_s_per_mb for one in messages if one.is_over]
    delay = over[-1] if over else None
    return Cell(*connection, len(messages), delay, None, None, stalled_s, 0, stalled_s >= limits.hang_s)


def _judged(
    members: Sequence[Connection],
    seen: Mapping[Connection, Sequence[_Seen]],
    shares: Mapping[_Seen, float],
    cells: Mapping[Connection, Cell],
    limits: Thresholds,
) -> dict[Connection, Cell]:
    """The cells of one class of connections, held against its median."""
    over = [one.delay_s_per_mb for member in members for one in seen[member] if one.is_over]
    if not over:
        return {}
    usual = statistics.median(over)
    spread = max(MAD_TO_SIGMA * median_deviation(over), limits.least_spread * usual)
    usual_share = statistics.median(shares[one] for member in members for one in seen[member]) if shares else 1.0

    def is_slow(one: _Seen) -> bool:
        return (
            one.delay_s_per_mb >= max(limits.slow_ratio * usual, usual + limits.sigmas * spread)
            and one.end_s - one.start_s >= limits.least_message_s
            and (not shares or shares[one] < limits.explained * usual_share)
        )

    judged = {}
    for member in members:
        # One on its way only counts once it has taken longer than is usual.
        told = [one for one in seen[member] if one.is_over or one.delay_s_per_mb > usual]
        if not told:
            continue
        newest, cell = told[-1], cells[member]
        explained = shares[newest] / max(usual_share, 1e-9) if shares else None
        slow = list(takewhile(is_slow, reversed(told))) if not cell.is_hung else []
        judged[member] = Cell(
            *member, cell.messages, newest.delay_s_per_mb, newest.delay_s_per_mb / usual if usual else 1.0, explained,
            cell.stalled_s, len(slow), cell.is_hung, newest.start_s, newest.end_s,
        )  # fmt: skip
    return judged


def median_deviation(values: Sequence[float]) -> float:
    """Median absolute deviation from the median."""
    middle = statistics.median(values)
    return statistics.median(abs(value - middle) for value in values)


def _explained(window: Window, network: Network, seen: Sequence[_Seen]) -> dict[_Seen, float]:
    """For every message the mean over its life of how well the load of some lane on its way explains its rate, 0 to 1.

    With max-min fair rates every flow has a lane on its way, at every moment, that is full and on which no flow is
    faster: there it gets at least an equal share. Where no lane is such, something else holds the flow up. The load is
    what the messages of the window carry, or more if the counters of the links say so.
    """
    if not seen:
        return {}
    begin_s, end_s = min(one.start_s for one in seen), window.now_s
    count = max(1, min(MOST_BINS, int((end_s - begin_s) / LEAST_BIN_S)))
    edges = np.linspace(begin_s, max(end_s, begin_s + LEAST_BIN_S), count + 1)
    width_s = float(edges[1] - edges[0])
    ways = {
        connection: [lane for lane in network.lanes(connection) if np.isfinite(network.room_bytes_per_s(lane))]
        for connection in {one.connection for one in seen}
    }
    row = {lane: number for number, lane in enumerate(dict.fromkeys(lane for way in ways.values() for lane in way))}
    carried, flows = np.zeros((len(row), count + 1)), np.zeros((len(row), count + 1))
    for one in seen:
        by_then = np.clip((edges - one.start_s) / max(one.end_s - one.start_s, 1e-9), 0.0, 1.0)
        rows = [row[lane] for lane in ways[one.connection]]
        carried[rows] += one.carried_bytes * by_then
        flows[rows] += (one.end_s - one.start_s) * by_then
    carried, flows = np.diff(carried, axis=1), np.diff(flows, axis=1) / width_s
    room = np.array([network.room_bytes_per_s(lane) for lane in row])[:, np.newaxis] * width_s
    counted = _counted(window, network, list(row), edges) if window.counters else carried
    load = np.minimum(np.maximum(carried, counted) / room, 1.0)
    # The load for each byte of a flow's equal share: what a flow's own rate is held against.
    per_share = load * np.divide(flows, carried, out=np.zeros_like(carried), where=carried > 0) * width_s
    found = {}
    for one in seen:
        rows = [row[lane] for lane in ways[one.connection]]
        first = int((one.start_s - begin_s) / width_s)
        last = max(first + 1, math.ceil((one.end_s - begin_s) / width_s - 1e-6))
        if not rows or first >= count:
            found[one] = 1.0
            continue
        rate = one.carried_bytes / max(one.end_s - one.start_s, 1e-9)
        fair = np.minimum(load[rows, first:last], rate * per_share[rows, first:last])
        found[one] = float(fair.max(axis=0).mean())
    return found


def _counted(window: Window, network: Network, lanes: Iterable[Lane], edges: Floats) -> Floats:
    """Payload bytes on every lane between the edges by the counters of links; 0 where they say nothing."""
    from_s = np.array([one.t_s for one in window.counters])
    place = {link_id: number for number, link_id in enumerate(window.link_ids)}
    rows = []
    for lane in lanes:
        at = place[lane.link_id]
        sides = [one.a_to_b_bytes[at] if lane.direction == "out" else one.b_to_a_bytes[at] for one in window.counters]
        rows.append(np.diff(np.interp(edges, from_s, np.array(sides, dtype=float))))
    return np.array(rows)
