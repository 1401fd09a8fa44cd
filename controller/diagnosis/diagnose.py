"""The diagnosis of a window of telemetry. Pure: the same window gives the same verdicts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from controller.diagnosis.collector import Window
from controller.diagnosis.localise import Located, locate
from controller.diagnosis.matrix import delay_matrix
from controller.diagnosis.network import Network
from controller.diagnosis.ranks import gaps_between, missing_ranks, slow_ranks, stopped_ranks
from controller.diagnosis.telemetry import Connection
from controller.diagnosis.thresholds import DEFAULT, Thresholds
from controller.diagnosis.verdict import (
    Cell,
    Component,
    ComponentKind,
    Diagnosis,
    Evidence,
    Finding,
    Pattern,
    Syndrome,
    Verdict,
)

TOGETHER_S = 0.05
"""Messages that start within so long of each other start together."""


def diagnose(window: Window, network: Network | None = None, limits: Thresholds = DEFAULT) -> Diagnosis:
    """What is wrong in the window, with the component at fault.

    ``network`` is what the routing knows of the paths of connections; without it only the rules of the matrix (cell,
    row, column) apply, and the ranks of operations, and GPUs are called by their rank. ``Finding.NOT_ENOUGH_DATA``
    where fewer connections and ranks were seen than any rule needs.
    """
    name = network.name if network else str
    cells = delay_matrix(window, network, limits)
    gaps = gaps_between(window)
    verdicts = [
        *missing_ranks(window, gaps, name, limits),
        *stopped_ranks(window, name, limits),
        *_hung(window, cells, network, limits),
        *_unlocated_hang(window, cells, limits),
    ]
    hung = {verdict.component.id for verdict in verdicts}
    slow = [*slow_ranks(window, gaps, name, limits), *_slow(window, cells, network, limits)]
    verdicts += [verdict for verdict in slow if verdict.component.id not in hung]
    span = (window.from_s, window.now_s)
    if verdicts:
        return Diagnosis(Finding.FAULT, span, tuple(verdicts), cells)
    judged = sum(cell.ratio is not None for cell in cells.values())
    compared = max((len(of_ranks) for of_ranks in gaps.values()), default=0)
    if judged < limits.least_cells and compared < limits.least_cells:
        reason = (
            f"{judged} connections and {compared} ranks can be compared with others of their kind; a verdict needs "
            f"{limits.least_cells}"
        )
        return Diagnosis(Finding.NOT_ENOUGH_DATA, span, (), cells, reason)
    return Diagnosis(Finding.HEALTHY, span, (), cells)


def _hung(
    window: Window, cells: Mapping[Connection, Cell], network: Network | None, limits: Thresholds
) -> list[Verdict]:
    """Messages that do not move though all ranks take part; sound are the connections that moved later."""
    hot = [connection for connection, cell in cells.items() if cell.is_hung]
    if not hot:
        return []
    onset_s = window.now_s - min(cells[connection].stalled_s for connection in hot)  # one may have starved before
    moved = {
        one.connection
        for one in window.messages
        if one.start_s is not None
        and (one.end_s if one.end_s is not None else window.moved_s.get(one.id, one.start_s)) > onset_s
    }
    hot_set = set(hot)
    sound = [connection for connection in cells if connection in moved and cells[connection].stalled_s < limits.every_s]
    verdicts = []
    for located in locate(hot, [one for one in sound if one not in hot_set], network, limits, {}, cells, True):
        stalled_s = [cells[one].stalled_s for one in located.explains]
        measured = {
            "stalled_connections": float(len(located.explains)),
            "longest_stalled_s": max(stalled_s),
            "moving_connections": float(len(sound)),
            "moving_against": float(located.against),
        }
        text = (
            f"on {_count(located.explains)} no byte has arrived for {min(stalled_s):.2f} s or more, while "
            f"{_count(sound)} moved"
        )
        verdicts.append(
            _verdict(
                Syndrome.COMMUNICATION_HANG,
                located,
                window,
                text,
                measured,
                {"hang_s": limits.hang_s},
                window.now_s - max(stalled_s),
            )
        )
    return verdicts


def _slow(
    window: Window, cells: Mapping[Connection, Cell], network: Network | None, limits: Thresholds
) -> list[Verdict]:
    hot = [connection for connection, cell in cells.items() if cell.is_slow]
    hot_set = set(hot)
    onset_s = min((cells[one].since_s for one in hot), default=0.0)
    sound = [
        one
        for one, cell in cells.items()
        if cell.ratio is not None and one not in hot_set and not cell.is_hung and cell.since_s >= onset_s - TOGETHER_S
    ]
    rates = {one: 1 / delay for one in (*hot, *sound) if (delay := cells[one].delay_s_per_mb)}
    verdicts = []
    found = locate(hot, sound, network, limits, rates, cells)
    for located in found:
        if not _lasts([cells[one] for one in located.explains], len(found) == 1, limits):
            continue
        ratios = [cells[one].ratio or 0.0 for one in located.explains]
        explained = [share for one in located.explains if (share := cells[one].explained) is not None]
        measured = {
            "slow_connections": float(len(located.explains)),
            "median_ratio": statistics.median(ratios),
            "sound_connections": float(len(sound)),
            "sound_against": float(located.against),
        }
        thresholds = {"ratio": limits.late_ratio if explained else limits.slow_ratio, "sigmas": limits.sigmas}
        text = f"{_count(located.explains)} took {measured['median_ratio']:.2f} times as long for a byte as is usual"
        if explained:
            measured["median_explained_share"] = statistics.median(explained)
            thresholds["explained_share"] = limits.explained
            text += f", of which the load of the links explains {measured['median_explained_share']:.0%}"
        verdicts.append(_verdict(Syndrome.COMMUNICATION_SLOW, located, window, text, measured, thresholds, None))
    return verdicts


def _lasts(cells: Sequence[Cell], is_only_one: bool, limits: Thresholds) -> bool:
    """Whether slow connections are more than a hiccup of the machine: in two operations, or in one beyond doubt."""
    if sum(cell.slow_messages for cell in cells) < limits.slow_messages:
        return False
    if len({operation for cell in cells for operation in cell.slow_operations}) >= limits.slow_operations:
        return True
    explained = statistics.median(1.0 if cell.explained is None else cell.explained for cell in cells)
    lost_s = statistics.median(cell.lost_s for cell in cells)
    return is_only_one and explained < limits.sure_explained and lost_s >= limits.sure_lost_s


def _unlocated_hang(window: Window, cells: Mapping[Connection, Cell], limits: Thresholds) -> list[Verdict]:
    """An operation that all ranks have entered and none has left for too long, of whose bytes nothing is known.

    So it is with jobs whose library does not tell of its connections: it hangs in the communication, but the telemetry
    does not say where.
    """
    if cells or window.messages:
        return []
    verdicts = []
    for communicator in window.communicators.values():
        newest: dict[int, dict[int, float]] = {}
        left: set[int] = set()
        usual_s: list[float] = []
        for one in window.operations:
            if one.communicator != communicator.id or one.entered_s is None:
                continue
            newest.setdefault(one.sequence, {})[one.rank] = one.entered_s
            if one.left_s is not None:
                left.add(one.sequence)
                usual_s.append(one.left_s - one.entered_s)
        allowed_s = max(limits.hang_s, limits.hang_gaps * statistics.median(usual_s or [0.0]))
        for sequence, entered in newest.items():
            waiting_s = window.now_s - max(entered.values())
            if sequence in left or len(entered) < len(communicator.ranks) or waiting_s < allowed_s:
                continue
            ranks = tuple(Component(ComponentKind.RANK, str(rank)) for rank in communicator.ranks)
            evidence = Evidence(
                f"all {len(entered)} ranks have entered operation {sequence} of '{communicator.id}' and none has left "
                f"it for {waiting_s:.2f} s; nothing is known of its connections",
                (window.from_s, window.now_s), {"waited_s": waiting_s}, {"hang_s": allowed_s},
            )  # fmt: skip
            verdicts.append(
                Verdict(
                    Syndrome.COMMUNICATION_HANG, ranks[0], Pattern.PATHS, evidence, ranks, True, max(entered.values())
                )
            )
    return verdicts


def _verdict(
    syndrome: Syndrome,
    located: Located,
    window: Window,
    text: str,
    measured: Mapping[str, float],
    thresholds: Mapping[str, float],
    since_s: float | None,
) -> Verdict:
    evidence = Evidence(
        text, (window.from_s, window.now_s), measured, thresholds,
        tuple(dict.fromkeys((one.src, one.dst) for one in located.explains)),
    )  # fmt: skip
    return Verdict(
        syndrome, located.component, located.pattern, evidence, located.suspects, located.is_ambiguous, since_s
    )


def _count(connections: Sequence[Connection]) -> str:
    return f"{len(connections)} connection{'s' if len(connections) != 1 else ''}"
