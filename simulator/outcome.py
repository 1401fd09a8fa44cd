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
from workloads.records import LinkSeries, TransferRecord, TransferStatus
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
