"""What a run leaves behind: a record of every transfer, and the counters of links over time."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.filling import settle
from simulator.network import Network
from topologies.model import Fabric
from workloads.failures import LinkFailure
from workloads.records import LinkSeries, Progress, TransferRecord, TransferStatus
from workloads.schedule import Transfer

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SAMPLED = 20_000_000
"""Link counters kept at most, over all links and samples; beyond it every second sample is dropped."""


class Counters:
    """Samples of what classes of links have carried, in payload bytes."""

    def __init__(self, net: Network, failures: Sequence[LinkFailure]) -> None:
        """Samples at the moments of ``failures`` are never dropped."""
        self._moments = {t_s for failure in failures for t_s in (failure.at_s, failure.restore_s)}
        self._samples = [(0.0, net.carried.copy())]

    def sample(self, net: Network, now_s: float) -> None:
        """Take one now."""
        settle(net)
        self._samples.append((now_s, net.carried.copy()))
        if len(self._samples) * len(net.room) > SAMPLED:
            self._samples = [
                one for at, one in enumerate(self._samples) if at % 2 == 0 or one[0] in self._moments
            ]  # fmt: skip

    def series(self, fabric: Fabric, link_class: Ints, goodput: float) -> LinkSeries:
        """Counters of every link, in bytes of whole frames."""
        counters = np.stack([carried for _, carried in self._samples])[:, link_class] / goodput
        return LinkSeries(
            tuple(link.id for link in fabric.links),
            np.array([t_s for t_s, _ in self._samples]),
            counters[:, 0::2],
            counters[:, 1::2],
        )


class Reports:
    """What flows on their way have brought, every ``every_s`` seconds; never where that is None."""

    def __init__(self, every_s: float | None) -> None:
        self._every_s = every_s
        self._made: list[tuple[float, dict[int, int]]] = []
        self.due_s = math.inf if every_s is None else every_s

    def take(self, net: Network, now_s: float, size_bytes: Ints, running: Sequence[int]) -> None:
        """Report of the ``running`` flows, whose sizes are in ``size_bytes`` by flow."""
        received = {}
        for flow in running:
            rate = max(float(net.rate[flow]), 0.0) if net.place[flow] >= 0 else 0.0
            left = float(net.left[flow]) - rate * (now_s - float(net.since[flow]))
            received[flow] = int(size_bytes[flow] - max(left, 0.0))
        self._made.append((now_s, received))
        if self._every_s is not None:
            self.due_s = (math.floor(now_s / self._every_s + 1e-6) + 1) * self._every_s

    def progress(self, transfers: Sequence[Transfer], flow_of: Ints) -> tuple[Progress, ...]:
        """The reports by transfer; ``flow_of`` is the flow of each."""
        members: dict[int, list[int]] = {}
        for transfer, flow in zip(transfers, flow_of.tolist(), strict=False):
            members.setdefault(flow, []).append(transfer.id)
        return tuple(
            Progress(now_s, transfer_id, count)
            for now_s, received in self._made
            for flow, count in received.items()
            for transfer_id in members[flow]
        )


class Flows(NamedTuple):
    """How flows ended. ``of_item`` is the flow of every transfer, ``size_bytes`` by transfer; the arrays that follow
    are by flow. Flows in ``incomplete`` stood still for ever; ``reasons`` are by transfer."""

    of_item: Ints
    size_bytes: Ints
    start_s: Floats
    end_s: Floats
    complete: NDArray[np.bool_]
    left: Floats
    incomplete: Collection[int]
    reasons: Mapping[int, str]


def transfer_records(transfers: Sequence[Transfer], flows: Flows) -> tuple[TransferRecord, ...]:
    """The record of every transfer, in order."""
    left = np.maximum(flows.left, 0.0).tolist()
    start, end, is_complete = flows.start_s.tolist(), flows.end_s.tolist(), flows.complete.tolist()
    records = []
    complete = TransferStatus.COMPLETE
    rows = zip(transfers, flows.of_item.tolist(), flows.size_bytes.tolist(), strict=False)
    for at, (transfer, flow, size) in enumerate(rows):
        if is_complete[flow]:
            records.append(TransferRecord(transfer.id, complete, start[flow], end[flow], size, size))
            continue
        status = TransferStatus.INCOMPLETE if flow in flows.incomplete else TransferStatus.FAILED
        started = None if math.isnan(start[flow]) else start[flow]
        received = 0.0 if started is None else size - left[flow]
        reason = flows.reasons.get(at, "waited for a transfer that stood still")
        records.append(TransferRecord(transfer.id, status, started, None, received, size, reason))
    return tuple(records)
