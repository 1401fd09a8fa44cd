"""Takes the stream of telemetry and keeps what a diagnosis looks at, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller.diagnosis.telemetry import Communicator, Message, RankOperation, Telemetry
from controller.diagnosis.thresholds import DEFAULT

MOST_MESSAGES = 50_000
MOST_OPERATIONS = 50_000
MOST_COMMUNICATORS = 4_096
MOST_COUNTERS = 400
KEPT_OPERATIONS = 4
"""Operations of a communicator that are kept however long ago they were: slow jobs are looked at too."""


@dataclass(frozen=True)
class LinkCounters:
    """Cumulative bytes of all links at ``t_s``, in the order of ``link_ids`` of the window, in both directions."""

    t_s: float
    a_to_b_bytes: Sequence[float]
    b_to_a_bytes: Sequence[float]


@dataclass(frozen=True)
class Window:
    """What is known at ``now_s``.

    ``moved_s`` is when the newest byte of each message on its way was seen to arrive (or its start), by message id.
    ``counters`` are those of ``link_ids``, oldest first, empty where nobody tells them. ``dropped`` items were
    forgotten for want of room.
    """

    now_s: float
    communicators: Mapping[str, Communicator]
    operations: tuple[RankOperation, ...]
    messages: tuple[Message, ...]
    moved_s: Mapping[int, float]
    link_ids: tuple[str, ...] = ()
    counters: tuple[LinkCounters, ...] = ()
    dropped: int = 0

    @property
    def from_s(self) -> float:
        """When the oldest thing in it began; ``now_s`` where there is nothing."""
        begins = [one.entered_s for one in self.operations if one.entered_s is not None]
        begins += [one.start_s for one in self.messages if one.start_s is not None]
        return min(begins, default=self.now_s)


@dataclass
class Collector:
    """Keeps what ended within ``window_s``, the last operations of every communicator, and all that has not ended.

    Of more items than ``most_messages`` or ``most_operations`` the oldest are dropped and counted.
    """

    window_s: float = DEFAULT.window_s
    most_messages: int = MOST_MESSAGES
    most_operations: int = MOST_OPERATIONS
    link_ids: tuple[str, ...] = ()
    dropped: int = 0
    _communicators: dict[str, Communicator] = field(default_factory=dict)
    _operations: dict[tuple[str, int, int], RankOperation] = field(default_factory=dict)
    _messages: dict[int, Message] = field(default_factory=dict)
    _moved_s: dict[int, float] = field(default_factory=dict)
    _newest: dict[str, int] = field(default_factory=dict)
    _counters: deque[LinkCounters] = field(default_factory=lambda: deque(maxlen=MOST_COUNTERS))

    def take(self, item: Telemetry) -> None:
        """Add an item, or put it in the place of an older one about the same thing."""
        if isinstance(item, Communicator):
            self._communicators[item.id] = item
            self._bound(self._communicators, MOST_COMMUNICATORS)
            return
        self._newest[item.communicator] = max(item.sequence, self._newest.get(item.communicator, -1))
        if isinstance(item, RankOperation):
            self._operations[item.communicator, item.sequence, item.rank] = item
            self._bound(self._operations, self.most_operations)
            return
        before = self._messages.get(item.id)
        if item.end_s is not None:
            self._moved_s.pop(item.id, None)
        elif item.start_s is not None and (before is None or before.received_bytes < item.received_bytes):
            self._moved_s[item.id] = item.seen_s if item.received_bytes else item.start_s
        self._messages[item.id] = item
        if len(self._messages) > self.most_messages:
            oldest = next(iter(self._messages))
            del self._messages[oldest]
            self._moved_s.pop(oldest, None)
            self.dropped += 1

    def take_counters(self, counters: LinkCounters) -> None:
        """Add a reading of the counters of all links."""
        self._counters.append(counters)

    def window(self, now_s: float) -> Window:
        """What is known at ``now_s``; what is too old is forgotten."""
        since_s = now_s - self.window_s

        def keep(communicator: str, sequence: int, over_s: float | None) -> bool:
            recent = sequence > self._newest.get(communicator, -1) - KEPT_OPERATIONS
            return over_s is None or over_s >= since_s or recent

        self._messages = {
            key: one for key, one in self._messages.items() if keep(one.communicator, one.sequence, one.end_s)
        }
        self._operations = {
            key: one for key, one in self._operations.items() if keep(one.communicator, one.sequence, one.left_s)
        }
        return Window(
            now_s, dict(self._communicators), tuple(self._operations.values()), tuple(self._messages.values()),
            dict(self._moved_s), self.link_ids, tuple(self._counters), self.dropped,
        )  # fmt: skip

    def _bound(self, kept: dict[str, Communicator] | dict[tuple[str, int, int], RankOperation], most: int) -> None:
        if len(kept) > most:
            del kept[next(iter(kept))]  # type: ignore[arg-type]
            self.dropped += 1
