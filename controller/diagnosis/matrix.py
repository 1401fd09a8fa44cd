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

MOST_BINS = 200
LEAST_BIN_S = 0.02
MOST_SAMPLES = 60
"""Messages of a class that are looked at to learn what share of a delay the load usually explains."""
MAD_TO_SIGMA = 1.4826
"""Standard deviations of a normal distribution in one median absolute deviation of it."""


@dataclass(frozen=True)
class _Seen:
    """A message as far as it went: it lasted from ``start_s`` to ``end_s``, or until now."""

    connection: Connection
    operation: tuple[str, int]
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
    cells = {connection: _unjudged(connection, seen[connection], stalled_s[connection], limits) for connection in seen}
    by_class: dict[tuple[object, ...], list[Connection]] = {}
    for connection, messages in seen.items():
        if messages:
            by_class.setdefault(_class_of(connection, messages, network), []).append(connection)
    classes = [
        _class(members, seen, network is not None, limits)
        for members in by_class.values()
        if len(members) >= limits.least_cells
    ]
    usual = [kind for kind in classes if kind is not None]
    wanted = [message for kind in usual if kind.late for message in (*kind.late, *kind.samples)]
    shares = _explained(window, network, seen, wanted) if network and wanted else {}
    for kind in usual:
        cells.update(_judged(kind, seen, shares, cells, limits))
    return cells


@dataclass(frozen=True)
class _Class:
    """Connections of one kind: their usual delay, the messages that took much longer, and some that did not."""

    members: tuple[Connection, ...]
    usual_s_per_mb: float
    far_s_per_mb: float
    late: tuple[_Seen, ...]
    samples: tuple[_Seen, ...]


def _class(
    members: Sequence[Connection], seen: Mapping[Connection, Sequence[_Seen]], knows_load: bool, limits: Thresholds
) -> _Class | None:
    """None where no message of these connections has ended.

    Where the load of links is known, it is what decides, and all that took noticeably longer than is usual are looked
    at; else the delays alone tell.
    """
    over = [one.delay_s_per_mb for member in members for one in seen[member] if one.is_over]
    if not over:
        return None
    usual = statistics.median(over)
    spread = max(MAD_TO_SIGMA * median_deviation(over), limits.least_spread * usual)
    late_from = (
        limits.late_ratio * usual if knows_load else max(limits.slow_ratio * usual, usual + limits.sigmas * spread)
    )
    newest = [_told(seen[member], usual)[-limits.slow_messages :] for member in members]
    late, samples = [], []
    for messages in newest:
        slow = [
            one
            for one in messages
            if one.delay_s_per_mb >= late_from and one.end_s - one.start_s >= limits.least_message_s
        ]
        late += slow
        samples += messages[-1:] if not slow else []
    far = max(limits.far_ratio * usual, usual + limits.sigmas * spread)
    return _Class(tuple(members), usual, far, tuple(late), tuple(samples[:MOST_SAMPLES]))


def _told(messages: Sequence[_Seen], usual_s_per_mb: float) -> list[_Seen]:
    """Those that say something: one on its way only does once it has taken longer than is usual."""
    return [one for one in messages if one.is_over or one.delay_s_per_mb > usual_s_per_mb]


def _seen(one: Message, connection: Connection, now_s: float) -> _Seen:
    assert one.start_s is not None
    end_s = now_s if one.end_s is None else one.end_s
    carried = one.received_bytes if one.end_s is None else one.size_bytes
    delay = (end_s - one.start_s) / one.size_bytes * 1e6
    return _Seen(
        connection, (one.communicator, one.sequence), one.start_s, end_s, carried, delay, one.end_s is not None
    )


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
    kind: _Class,
    seen: Mapping[Connection, Sequence[_Seen]],
    shares: Mapping[_Seen, float],
    cells: Mapping[Connection, Cell],
    limits: Thresholds,
) -> dict[Connection, Cell]:
    """The cells of one class of connections, held against its median."""
    known = [shares[one] for one in kind.samples if one in shares]
    usual_share = max(statistics.median(known), 1e-9) if known else 1.0
    spread = max(MAD_TO_SIGMA * median_deviation(known), limits.least_spread) if known else limits.least_spread
    least_share = min(limits.explained * usual_share, usual_share - limits.share_sigmas * spread)
    if not shares:
        slow = set(kind.late)
    elif usual_share < limits.least_usual:
        slow = {
            one
            for one in kind.late
            if one.delay_s_per_mb >= kind.far_s_per_mb and shares.get(one, 0.0) < limits.explained
        }
    else:
        slow = {one for one in kind.late if shares.get(one, -1.0) < least_share}
    judged = {}
    for member in kind.members:
        told = _told(seen[member], kind.usual_s_per_mb)
        if not told:
            continue
        newest, cell = told[-1], cells[member]
        ratio = newest.delay_s_per_mb / kind.usual_s_per_mb if kind.usual_s_per_mb else 1.0
        explained = shares[newest] / usual_share if newest in shares else None
        running = [] if cell.is_hung else list(takewhile(slow.__contains__, reversed(told)))
        usual_s = kind.usual_s_per_mb * (newest.end_s - newest.start_s) / max(newest.delay_s_per_mb, 1e-12)
        judged[member] = Cell(
            *member, cell.messages, newest.delay_s_per_mb, ratio, explained, cell.stalled_s, len(running), cell.is_hung,
            newest.start_s, newest.end_s,
            newest.end_s - newest.start_s - usual_s, tuple(dict.fromkeys(one.operation for one in running)),
        )  # fmt: skip
    return judged


def median_deviation(values: Sequence[float]) -> float:
    """Median absolute deviation from the median."""
    middle = statistics.median(values)
    return statistics.median(abs(value - middle) for value in values)


def _explained(
    window: Window, network: Network, seen: Mapping[Connection, Sequence[_Seen]], wanted: Sequence[_Seen]
) -> dict[_Seen, float]:
    """For every message in ``wanted`` how well the load of the lanes on its way explains its rate, 0 to 1.

    With max-min fair rates every flow has a lane on its way, at every moment, that is full and on which no flow is
    faster: there it gets at least an equal share. Where no lane is such, something else holds the flow up. This is the
    mean over its life of the best lane's load, or of its own rate over an equal share if that is less. The load is what
    the messages of the window carry, or more if the counters of the links say so.
    """
    begin_s, end_s = min(one.start_s for one in wanted), window.now_s
    carriers = [one for messages in seen.values() for one in messages if one.end_s > begin_s]
    count = max(1, min(MOST_BINS, int((end_s - begin_s) / LEAST_BIN_S)))
    edges = np.linspace(begin_s, max(end_s, begin_s + LEAST_BIN_S), count + 1)
    width_s = float(edges[1] - edges[0])
    ways = {
        connection: [lane for lane in network.lanes(connection) if np.isfinite(network.room_bytes_per_s(lane))]
        for connection in {one.connection for one in carriers}
    }
    row = {lane: number for number, lane in enumerate(dict.fromkeys(lane for way in ways.values() for lane in way))}
    crosses = np.zeros((len(row), len(carriers)))
    for number, one in enumerate(carriers):
        crosses[[row[lane] for lane in ways[one.connection]], number] = 1.0
    start_s = np.array([one.start_s for one in carriers])[:, np.newaxis]
    life_s = np.maximum(np.array([one.end_s for one in carriers])[:, np.newaxis] - start_s, 1e-9)
    in_bin = np.diff(np.clip((edges - start_s) / life_s, 0.0, 1.0), axis=1)
    carried = crosses @ (np.array([one.carried_bytes for one in carriers])[:, np.newaxis] * in_bin)
    flows = crosses @ (life_s * in_bin) / width_s
    room = np.array([network.room_bytes_per_s(lane) for lane in row])[:, np.newaxis] * width_s
    counted = _counted(window, network, list(row), edges) if window.counters else carried
    load = np.minimum(np.maximum(carried, counted) / room, 1.0)
    # The load for each byte of a flow's equal share: what a flow's own rate is held against.
    per_share = load * np.divide(flows, carried, out=np.zeros_like(carried), where=carried > 0) * width_s
    found = {}
    for one in wanted:
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
