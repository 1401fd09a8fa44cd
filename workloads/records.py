"""What a run on either back end returns. All times are emulated seconds from the start of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from topologies.model import FabricSpec
from topologies.scale import Scale
from workloads.errors import ScheduleError
from workloads.failures import LinkFailure
from workloads.schedule import Schedule

FloatArray = NDArray[np.float64]


class TransferStatus(str, Enum):
    """How a transfer ended. INCOMPLETE: its receiver did not get all its bytes; FAILED: it could not be made."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    FAILED = "failed"


@dataclass(frozen=True)
class TransferRecord:
    """One transfer as it went. Times are the receiver's; sizes are emulated bytes.

    ``start_s`` and ``end_s`` are None where it never started or never ended; ``reason`` is empty when it is complete.
    """

    transfer_id: int
    status: TransferStatus
    start_s: float | None
    end_s: float | None
    received_bytes: float
    size_bytes: int
    reason: str = ""

    @property
    def duration_s(self) -> float | None:
        """Emulated seconds from first to last byte; None unless it started and ended."""
        if self.start_s is None or self.end_s is None:
            return None
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class ConnectionRecord:
    """What one connection carried in a run, from rank ``src`` to ``dst``.

    ``busy_s`` is the sum of the durations of its transfers. ``retransmits`` (segments) and ``rtt_s`` (smoothed) are
    what the sender's TCP says.
    """

    src: int
    dst: int
    channel: int
    messages: int
    size_bytes: int
    busy_s: float
    retransmits: int
    rtt_s: float


@dataclass(frozen=True, slots=True)
class Progress:
    """A transfer on its way at ``t_s``: the payload that its receiver has so far, in emulated bytes."""

    t_s: float
    transfer_id: int
    received_bytes: int


class EventKind(str, Enum):
    """What can happen during a run. ``subject`` of the event is the link, phase or transfer concerned."""

    LINK_DOWN = "link-down"
    LINK_UP = "link-up"
    IMPAIRED = "impaired"
    MENDED = "mended"
    REROUTED = "rerouted"
    REPLANNED = "replanned"
    PHASE_START = "phase-start"
    PHASE_END = "phase-end"
    TRANSFER_FAILED = "transfer-failed"
    NOTE = "note"


@dataclass(frozen=True)
class Event:
    """Something that happened ``t_s`` emulated seconds after the start."""

    t_s: float
    kind: EventKind
    subject: str
    detail: str = ""


@dataclass(frozen=True, eq=False)
class LinkSeries:
    """Cumulative byte counters of all links over time, one row per sample.

    Counters count whole frames, as switch ports do. ``a_to_b_bytes[i, j]`` is what link ``link_ids[j]`` had carried
    from its end ``a`` to its end ``b`` at ``t_s[i]``; times do not decrease.
    """

    link_ids: tuple[str, ...]
    t_s: FloatArray
    a_to_b_bytes: FloatArray
    b_to_a_bytes: FloatArray
    _column: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        shape = (len(self.t_s), len(self.link_ids))
        if self.a_to_b_bytes.shape != shape or self.b_to_a_bytes.shape != shape:
            raise ScheduleError(
                f"link counters of {self.a_to_b_bytes.shape} and {self.b_to_a_bytes.shape} do not fit "
                f"{shape[0]} samples of {shape[1]} links"
            )
        if np.any(np.diff(self.t_s) < 0):
            raise ScheduleError("samples of link counters must be in order of time")
        object.__setattr__(self, "_column", {link_id: column for column, link_id in enumerate(self.link_ids)})

    def carried_bytes(self, link_id: str) -> FloatArray:
        """Bytes of both directions at every sample."""
        column = self._column[link_id]
        return self.a_to_b_bytes[:, column] + self.b_to_a_bytes[:, column]

    def total_bytes(self, link_id: str) -> float:
        """Bytes of both directions over the whole run; 0 without samples."""
        carried = self.carried_bytes(link_id)
        return float(carried[-1] - carried[0]) if len(carried) else 0.0

    def rates_mbps(self, link_ids: Sequence[str]) -> FloatArray:
        """Mean rate in Mbit/s of each interval between samples, summed over links and directions."""
        columns = [self._column[link_id] for link_id in link_ids]
        carried = self.a_to_b_bytes[:, columns].sum(axis=1) + self.b_to_a_bytes[:, columns].sum(axis=1)
        width_s = np.diff(self.t_s)
        rates = np.zeros(len(width_s))
        np.divide(np.diff(carried) * 8 / 1e6, width_s, out=rates, where=width_s > 0)
        return rates

    def around_outage(self, link_id: str, down_s: float, up_s: float | None) -> OutageBytes:
        """Bytes on a link before, during and after an outage.

        A sample interval that holds the moment of failure counts as before, one that holds the moment of restoring
        as after: a dead link carries nothing, so what was counted there can only be from the other side.
        """
        carried = self.carried_bytes(link_id)
        if not len(carried):
            return OutageBytes(0.0, None, None)
        down = int(np.searchsorted(self.t_s, down_s, side="left"))
        if down >= len(carried):
            return OutageBytes(float(carried[-1] - carried[0]), None, None)
        before = float(carried[down] - carried[0])
        if up_s is None:
            return OutageBytes(before, float(carried[-1] - carried[down]), None)
        up = int(np.searchsorted(self.t_s, up_s, side="right")) - 1
        if up <= down:  # no two samples inside the outage: nothing was observed
            return OutageBytes(before, None, float(carried[-1] - carried[down]))
        after = float(carried[-1] - carried[up]) if up < len(carried) - 1 else None
        return OutageBytes(before, float(carried[up] - carried[down]), after)


@dataclass(frozen=True)
class OutageBytes:
    """Bytes on a link around its outage; None where no sample covers that time."""

    before: float
    during: float | None
    after: float | None


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One schedule on one fabric, as a back end ran it.

    ``faithful`` is False where the machine could not keep up or something is not emulated; ``notes`` says what, and
    what limits the result. ``longest_gap_s`` is the longest silence that a probe saw, None where there was no probe.
    ``last_computation_s`` is when the last computation of the schedule ended, None where there was none. ``engine`` is
    what replayed it on live hosts; ``connections`` and ``progress`` are what it can tell of its connections and of
    transfers on their way, empty where it can't.
    """

    backend: str
    fabric: FabricSpec
    scale: Scale
    schedule: Schedule
    failures: tuple[LinkFailure, ...]
    seed: int
    transfers: tuple[TransferRecord, ...]
    links: LinkSeries
    events: tuple[Event, ...]
    faithful: bool = True
    notes: tuple[str, ...] = ()
    longest_gap_s: float | None = None
    last_computation_s: float | None = None
    engine: str = ""
    connections: tuple[ConnectionRecord, ...] = ()
    progress: tuple[Progress, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every transfer of the schedule was made in full."""
        whole = [transfer for transfer in self.transfers if transfer.status is TransferStatus.COMPLETE]
        return len(whole) == len(self.schedule.transfers)
