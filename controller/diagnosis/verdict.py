"""What a diagnosis says: the syndrome, the component at fault, and the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from controller.diagnosis.telemetry import Connection


class Syndrome(str, Enum):
    """The four kinds of trouble that are told apart."""

    COMMUNICATION_HANG = "communication hang"
    COMMUNICATION_SLOW = "communication slow"
    NON_COMMUNICATION_HANG = "non-communication hang"
    NON_COMMUNICATION_SLOW = "non-communication slow"

    @property
    def is_communication(self) -> bool:
        """Whether bytes on the wires are concerned, not a rank's own work."""
        return self in (Syndrome.COMMUNICATION_HANG, Syndrome.COMMUNICATION_SLOW)


class Pattern(str, Enum):
    """What the verdict goes by: a cell, row or column of the delay matrix, the paths of several connections, a rank."""

    CELL = "cell"
    ROW = "row"
    COLUMN = "column"
    PATHS = "paths"
    RANK = "rank"


class ComponentKind(str, Enum):
    """What can be at fault."""

    RANK = "rank"
    SENDER = "sender"
    RECEIVER = "receiver"
    CONNECTION = "connection"
    LINK = "link"
    SWITCH = "switch"


@dataclass(frozen=True, order=True)
class Component:
    """A part at fault. ``id`` is that of a GPU, link or switch; of a connection ``d0r0->d1r0``.

    ``direction`` is that of a link: ``out`` is away from its GPU (or leaf), ``in`` towards it, ``both``; else empty.
    """

    kind: ComponentKind
    id: str
    direction: str = ""

    @property
    def text(self) -> str:
        """To read: ``link d0r0-rail0 (out)``."""
        way = f" ({self.direction})" if self.direction in ("out", "in") else ""
        return f"{self.kind.value} {self.id}{way}"


@dataclass(frozen=True)
class Evidence:
    """The numbers behind a verdict.

    ``text`` says in a sentence what was seen. ``measured`` are the values by name with units in the names,
    ``thresholds`` those that they were held against, ``cells`` the connections (source and destination rank) that are
    hot, ``window_s`` the stretch of time looked at.
    """

    text: str
    window_s: tuple[float, float]
    measured: Mapping[str, float]
    thresholds: Mapping[str, float]
    cells: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Verdict:
    """One fault. ``component`` is the likeliest of ``suspects``, which the telemetry can't tell apart.

    ``is_ambiguous``: the suspects are on both sides of a connection (sender, receiver or link). ``since_s`` is when the
    trouble began, as far as seen.
    """

    syndrome: Syndrome
    component: Component
    pattern: Pattern
    evidence: Evidence
    suspects: tuple[Component, ...] = ()
    is_ambiguous: bool = False
    since_s: float | None = None

    @property
    def text(self) -> str:
        """To read, in one line."""
        if self.is_ambiguous:
            return f"{self.syndrome.value}, ambiguous: {', '.join(one.text for one in self.suspects)}"
        return f"{self.syndrome.value}: {self.component.text}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {name: _plain(value) for name, value in asdict(self).items()} | {"text": self.text}


class Finding(str, Enum):
    """What a diagnosis as a whole comes to."""

    HEALTHY = "healthy"
    FAULT = "fault"
    NOT_ENOUGH_DATA = "not enough data"


@dataclass(frozen=True)
class Cell:
    """One connection between two ranks in the window; None where nothing was seen of it.

    ``delay_s_per_mb`` is what its newest message took for each 10^6 bytes, ``ratio`` that over the median of its class
    of connections, ``explained`` the share of its life in which some link on its way was full, over the
    usual share of its class. ``stalled_s`` is how long a message on its way has not moved. ``since_s`` is when the
    newest message began that the delay is of, ``until_s`` when it ended (now, if it has not). ``slow_messages`` is how
    many of the newest messages running are slow without a reason in the load, ``slow_operations`` their operations
    (communicator, sequence number), ``lost_s`` how much longer than usual the newest message took.
    """

    src: int
    dst: int
    channel: int
    messages: int
    delay_s_per_mb: float | None
    ratio: float | None
    explained: float | None
    stalled_s: float
    slow_messages: int
    is_hung: bool
    since_s: float = 0.0
    until_s: float = 0.0
    lost_s: float = 0.0
    slow_operations: tuple[tuple[str, int], ...] = ()

    @property
    def is_slow(self) -> bool:
        """Whether the newest message is slow without a reason in the load."""
        return self.slow_messages > 0

    @property
    def is_hot(self) -> bool:
        """Whether the connection is slow or hangs."""
        return self.is_slow or self.is_hung


@dataclass(frozen=True)
class Diagnosis:
    """What was found in a window of telemetry, the ranks of its matrix and every connection in it.

    ``reason`` says why there is not enough data, or what a finding leaves open; else it is empty.
    """

    finding: Finding
    window_s: tuple[float, float]
    verdicts: tuple[Verdict, ...] = ()
    cells: Mapping[Connection, Cell] = field(default_factory=dict)
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form; cells as a list."""
        return {
            "finding": self.finding.value,
            "window_s": list(self.window_s),
            "reason": self.reason,
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
            "cells": [asdict(cell) for cell in self.cells.values()],
        }


def _plain(value: Any) -> Any:
    """Enums as their values, tuples as lists, all the way down."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value
