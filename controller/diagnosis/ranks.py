"""Ranks that others wait for: one that does not enter an operation, stops in the middle of it, or computes slowly."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping

from controller.diagnosis.collector import Window
from controller.diagnosis.matrix import MAD_TO_SIGMA, median_deviation
from controller.diagnosis.telemetry import Message, RankOperation, job_of
from controller.diagnosis.thresholds import Thresholds
from controller.diagnosis.verdict import Component, ComponentKind, Evidence, Pattern, Syndrome, Verdict

Name = Callable[[int], str]
"""The GPU id of a rank."""

Gaps = Mapping[tuple[str, int], Mapping[int, float]]
"""By operation (communicator, sequence) and rank: the seconds between its operation before and its entering."""

RUNNING = 2
"""Operations running in which a rank must have computed slowly."""


def gaps_between(window: Window) -> dict[tuple[str, int], dict[int, float]]:
    """What every rank did by itself before each operation: the time since it left the one of its job before.

    The first operation that the window knows of a rank has none.
    """
    by_rank: dict[tuple[str, int], list[RankOperation]] = {}
    for one in window.operations:
        if one.entered_s is not None:
            by_rank.setdefault((job_of(one.communicator), one.rank), []).append(one)
    gaps: dict[tuple[str, int], dict[int, float]] = {}
    for (_, rank), operations in by_rank.items():
        operations.sort(key=lambda one: one.entered_s or 0.0)
        left_s: float | None = None
        for one in operations:
            assert one.entered_s is not None
            if left_s is not None and one.entered_s >= left_s:
                gaps.setdefault((one.communicator, one.sequence), {})[rank] = one.entered_s - left_s
            if one.left_s is not None:
                left_s = max(one.left_s, left_s or 0.0)
    return gaps


def missing_ranks(window: Window, gaps: Gaps, name: Name, limits: Thresholds) -> list[Verdict]:
    """Ranks that have not entered an operation in which others have waited for them for too long.

    A rank that is still inside another operation of its job, or has just left one, is not at fault: that operation is
    looked at by itself.
    """
    usual_s = statistics.median([gap for of_ranks in gaps.values() for gap in of_ranks.values()] or [0.0])
    allowed_s = max(limits.hang_s, limits.hang_gaps * usual_s)
    inside, last_left_s = _inside(window), _last_left(window)
    found: dict[int, Verdict] = {}
    for (communicator, sequence), entered in _open_operations(window).items():
        group = window.communicators.get(communicator)
        absent = sorted(set(group.ranks) - set(entered)) if group else []
        if not absent or not entered:
            continue
        waiting_s = window.now_s - statistics.median(entered.values())
        if waiting_s < allowed_s:
            continue
        for rank in absent:
            part = job_of(communicator), rank
            alone_s = window.now_s - last_left_s.get(part, window.now_s - waiting_s)
            if part in inside or rank in found or alone_s < allowed_s:
                continue
            evidence = Evidence(
                f"{name(rank)} has not entered operation {sequence} of '{communicator}', for which {len(entered)} of "
                f"{len(entered) + len(absent)} ranks have waited {waiting_s:.2f} s (median)",
                (window.from_s, window.now_s),
                {"waited_s": waiting_s, "usual_computing_s": usual_s, "entered_ranks": float(len(entered))},
                {"hang_s": allowed_s},
            )  # fmt: skip
            component = Component(ComponentKind.RANK, name(rank))
            found[rank] = Verdict(
                Syndrome.NON_COMMUNICATION_HANG, component, Pattern.RANK, evidence, (component,),
                since_s=statistics.median(entered.values()),
            )  # fmt: skip
    return list(found.values())


def stopped_ranks(window: Window, name: Name, limits: Thresholds) -> list[Verdict]:
    """Ranks that entered an operation and stopped in it: nothing is on its way, and they have posted the least.

    Works for collectives in which every rank sends equally often.
    """
    by_operation: dict[tuple[str, int], list[Message]] = {}
    for message in window.messages:
        by_operation.setdefault((message.communicator, message.sequence), []).append(message)
    found = []
    for key, entered in _open_operations(window).items():
        group = window.communicators.get(key[0])
        messages = by_operation.get(key, [])
        if group is None or set(group.ranks) - set(entered) or not messages:
            continue
        if any(one.start_s is not None and one.end_s is None for one in messages):
            continue
        newest_s = max(one.end_s or one.posted_s or 0.0 for one in messages)
        still_s = window.now_s - newest_s
        posted = Counter(one.src for one in messages if one.posted_s is not None)
        least, middle = min(posted[rank] for rank in group.ranks), statistics.median(posted[one] for one in group.ranks)
        behind = [rank for rank in group.ranks if posted[rank] == least]
        if still_s < limits.hang_s or least >= middle or 2 * len(behind) >= len(group.ranks):
            continue
        for rank in behind:
            evidence = Evidence(
                f"{name(rank)} stopped in operation {key[1]} of '{key[0]}': it has posted {least} messages, the median "
                f"rank {middle:g}, and for {still_s:.2f} s nothing has been on its way",
                (window.from_s, window.now_s),
                {"still_s": still_s, "posted_messages": float(least), "median_posted_messages": float(middle)},
                {"hang_s": limits.hang_s},
            )  # fmt: skip
            component = Component(ComponentKind.RANK, name(rank))
            found.append(
                Verdict(
                    Syndrome.NON_COMMUNICATION_HANG, component, Pattern.RANK, evidence, (component,), since_s=newest_s
                )
            )
    return found


def slow_ranks(window: Window, gaps: Gaps, name: Name, limits: Thresholds) -> list[Verdict]:
    """Ranks that computed much longer than the others before each of the last operations, so that these waited."""
    entered, gaps = _entered(window), _with_open_gaps(window, gaps)
    newest: dict[str, list[int]] = {}
    for communicator, sequence in gaps:
        group = window.communicators.get(communicator)
        if group is not None and len(gaps[communicator, sequence]) == len(group.ranks) >= limits.least_cells:
            newest.setdefault(communicator, []).append(sequence)
    found: dict[int, Verdict] = {}
    for communicator, sequences in newest.items():
        last = sorted(sequences)[-RUNNING:]
        if len(last) < RUNNING or last[-1] - last[0] != RUNNING - 1:
            continue
        times = [statistics.median(entered[communicator, sequence].values()) for sequence in last]
        period_s = (times[-1] - times[0]) / (RUNNING - 1)
        for rank in gaps[communicator, last[0]]:
            judged = [_gap(gaps[communicator, sequence], rank, period_s, limits) for sequence in last]
            if not all(is_slow for is_slow, _, _ in judged):
                continue
            own_s, usual_s = statistics.fmean(one for _, one, _ in judged), statistics.fmean(one for *_, one in judged)
            evidence = Evidence(
                f"{name(rank)} computed {own_s:.3f} s before each of the last {RUNNING} operations of "
                f"'{communicator}', the median rank {usual_s:.3f} s",
                (window.from_s, window.now_s),
                {"computing_s": own_s, "median_computing_s": usual_s, "period_s": period_s},
                {"ratio": limits.slow_gap, "share_of_period": limits.least_gap_share, "sigmas": limits.sigmas},
            )  # fmt: skip
            component = Component(ComponentKind.RANK, name(rank))
            found.setdefault(
                rank,
                Verdict(
                    Syndrome.NON_COMMUNICATION_SLOW,
                    component,
                    Pattern.RANK,
                    evidence,
                    (component,),
                    since_s=entered[communicator, last[0]].get(rank, window.now_s) - own_s,
                ),
            )
    return list(found.values())


def _with_open_gaps(window: Window, gaps: Gaps) -> Gaps:
    """The gaps, and those that are still open: of ranks that others already wait for, as long as they are by now."""
    last_left_s = _last_left(window)
    inside = _inside(window)
    found = {key: dict(of_ranks) for key, of_ranks in gaps.items()}
    for (communicator, sequence), entered in _open_operations(window).items():
        group = window.communicators.get(communicator)
        for rank in set(group.ranks) - set(entered) if group else ():
            part = job_of(communicator), rank
            if part in last_left_s and part not in inside and (communicator, sequence) in found:
                found[communicator, sequence][rank] = window.now_s - last_left_s[part]
    return found


def _inside(window: Window) -> set[tuple[str, int]]:
    """Ranks, with their job, that have entered an operation and not left it."""
    return {
        (job_of(one.communicator), one.rank)
        for one in window.operations
        if one.entered_s is not None and one.left_s is None
    }


def _last_left(window: Window) -> dict[tuple[str, int], float]:
    """When each rank of each job last left an operation."""
    found: dict[tuple[str, int], float] = {}
    for one in window.operations:
        if one.left_s is not None:
            key = job_of(one.communicator), one.rank
            found[key] = max(one.left_s, found.get(key, one.left_s))
    return found


def _gap(of_ranks: Mapping[int, float], rank: int, period_s: float, limits: Thresholds) -> tuple[bool, float, float]:
    """Whether the rank's gap is much longer than those of the others; it, and the median."""
    own_s, usual_s = of_ranks[rank], statistics.median(of_ranks.values())
    spread_s = max(MAD_TO_SIGMA * median_deviation(list(of_ranks.values())), limits.least_spread * usual_s)
    is_slow = (
        own_s > limits.slow_gap * usual_s
        and own_s - usual_s > limits.sigmas * spread_s
        and own_s - usual_s > limits.least_gap_share * max(period_s, 0.0)
    )
    return is_slow, own_s, usual_s


def _entered(window: Window) -> dict[tuple[str, int], dict[int, float]]:
    found: dict[tuple[str, int], dict[int, float]] = {}
    for one in window.operations:
        if one.entered_s is not None:
            found.setdefault((one.communicator, one.sequence), {})[one.rank] = one.entered_s
    return found


def _open_operations(window: Window) -> dict[tuple[str, int], dict[int, float]]:
    """When each rank entered, by operation that some rank has entered and not every rank has left."""
    closed = Counter((one.communicator, one.sequence) for one in window.operations if one.left_s is not None)
    return {
        key: entered
        for key, entered in _entered(window).items()
        if key[0] not in window.communicators or closed[key] < len(window.communicators[key[0]].ranks)
    }
