"""What every rank did in every collective call, read off a run: what a fault diagnosis needs to know. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from workloads.algorithms import SEND_RECV
from workloads.records import RunRecord, TransferRecord, TransferStatus
from workloads.schedule import Schedule, Transfer


@dataclass(frozen=True)
class CollectiveCall:
    """One call of a collective by one group: the ``sequence``-th of that collective and group, from 0.

    ``size_bytes`` is what all its ranks send together, in real bytes.
    """

    collective: str
    group: str
    sequence: int
    algorithm: str
    size_bytes: int
    transfers: tuple[Transfer, ...] = field(repr=False)


@dataclass(frozen=True)
class RankInCall:
    """What one rank did in one call; times in emulated seconds of the run, bytes emulated.

    ``entered_s`` is when it sent its first byte, ``left_s`` when the last transfer that it took part in had ended. None
    where it did not: a rank that never entered, or a call that was never over for it. A rank that only receives enters
    nothing.
    """

    rank: int
    entered_s: float | None
    left_s: float | None
    sent_bytes: float
    received_bytes: float


def calls(schedule: Schedule) -> list[CollectiveCall]:
    """The collective calls of a schedule, in order of their first transfers.

    A group starts its next call of a collective where a step of it (operation, phase, source and destination) comes
    again, unless it waits for the same computations as before: then it is a further step of the same call. Every
    send-recv is a call of its own. Nothing in a schedule joins the pieces of a stepwise broadcast or reduce: each
    counts as a call.
    """
    open_calls: dict[tuple[str, str], list[Transfer]] = {}
    seen: dict[tuple[str, str], dict[tuple[str, int, int, int], frozenset[int]]] = {}
    computed = {one.id for one in schedule.computations}
    found: list[list[Transfer]] = []
    for transfer in sorted(schedule.transfers, key=lambda one: one.id):
        tag = transfer.tag
        key = tag.collective, tag.group
        step = tag.operation, tag.phase, transfer.src, transfer.dst
        waits = frozenset(computed.intersection(transfer.after)) if computed else frozenset()
        comes_again = key in open_calls and step in seen[key] and not (waits and waits == seen[key][step])
        if key not in open_calls or comes_again or tag.collective == SEND_RECV:
            open_calls[key], seen[key] = [], {}
            found.append(open_calls[key])
        open_calls[key].append(transfer)
        seen[key][step] = waits
    sequences: dict[tuple[str, str], int] = {}
    made = []
    for transfers in found:
        tag = transfers[0].tag
        sequence = sequences.get((tag.collective, tag.group), 0)
        sequences[tag.collective, tag.group] = sequence + 1
        size_bytes = sum(one.size_bytes for one in transfers)
        made.append(
            CollectiveCall(tag.collective, tag.group, sequence, schedule.algorithm, size_bytes, tuple(transfers))
        )
    return made


def ranks_in_calls(record: RunRecord) -> Iterator[tuple[CollectiveCall, tuple[RankInCall, ...]]]:
    """Every call of a run with what each of its ranks did, by rank."""
    made = {one.transfer_id: one for one in record.transfers}
    for call in calls(record.schedule):
        own: dict[int, tuple[list[TransferRecord | None], list[TransferRecord | None]]] = {}
        for transfer in call.transfers:
            own.setdefault(transfer.src, ([], []))[0].append(made.get(transfer.id))
            own.setdefault(transfer.dst, ([], []))[1].append(made.get(transfer.id))
        yield call, tuple(_rank(rank, *own[rank]) for rank in sorted(own))


def _rank(
    rank: int, sent: Sequence[TransferRecord | None], received: Sequence[TransferRecord | None]
) -> RankInCall:  # fmt: skip
    starts = [one.start_s for one in sent if one is not None and one.start_s is not None]
    ends = [
        one.end_s if one is not None and one.status is TransferStatus.COMPLETE else None for one in (*sent, *received)
    ]
    return RankInCall(
        rank,
        min(starts, default=None),
        max((end for end in ends if end is not None), default=None) if None not in ends else None,
        sum(one.received_bytes for one in sent if one is not None),
        sum(one.received_bytes for one in received if one is not None),
    )
