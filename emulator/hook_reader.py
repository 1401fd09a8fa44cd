"""What the hook in a PyTorch job tells, put into the terms of the diagnosis. Pure.

The hook knows operations exactly. Of the transport it knows what the kernel counts on each TCP connection, twice a
second; single messages are gloo's own and stay unknown. So one *busy period* of a connection stands for a message: from
the first reading with bytes that the other end has not acknowledged to the first without, or with all of them gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.diagnosis.telemetry import Communicator, Message, RankOperation, Telemetry
from controller.errors import TelemetryError


@dataclass
class _Busy:
    """A busy period of a connection: its number, when it began, and what had been acknowledged by then."""

    id: int
    start_s: float
    acknowledged_before: int


@dataclass
class HookReader:
    """Reads the messages of one start of a job.

    ``numbers`` has the number of the GPU of every rank: telemetry leaves here with these in place of ranks, so that it
    stays right when a rank has moved. ``addresses`` has them by address. ``prefix`` goes before names of communicators,
    which are used again by the next start of the job. ``dropped`` counts messages that the ranks could not send.
    """

    numbers: Sequence[int]
    addresses: Mapping[str, int]
    prefix: str = ""
    dropped: int = 0
    _busy: dict[tuple[int, int], _Busy] = field(default_factory=dict)
    _open: dict[int, RankOperation] = field(default_factory=dict)
    _heard_s: dict[int, float] = field(default_factory=dict)
    _periods: int = 0

    def read(self, data: Mapping[str, Any]) -> Telemetry | None:
        """What a message says, None where that is nothing new; raises TelemetryError for what no hook sends."""
        try:
            self.dropped += int(data.get("dropped", 0))
            if data["layer"] == "communicator":
                return Communicator(self.prefix + data["id"], tuple(self.numbers[rank] for rank in data["ranks"]))
            if data["layer"] == "operation":
                return self._operation(data)
            if data["layer"] == "connection":
                return self._connection(data)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise TelemetryError(f"a rank told what can't be read: {type(error).__name__}: {error}") from None
        raise TelemetryError(f"a rank told of an unknown layer '{data['layer']}'")

    def waits_s(self, now_s: float) -> float:
        """How long any rank has been inside the operation that it is in."""
        entered = [one.entered_s for one in self._open.values() if one.left_s is None and one.entered_s is not None]
        return now_s - min(entered, default=now_s)

    def frozen(self, now_s: float, for_s: float) -> tuple[int, float] | None:
        """A GPU whose rank has told nothing for ``for_s``, and when it told something last.

        Ranks tell of their connections twice a second, even inside a collective. None unless another rank has been
        inside an operation for as long, and all others were heard of meanwhile.
        """
        silent = [number for number, heard_s in self._heard_s.items() if now_s - heard_s >= for_s]
        waiting = [
            one.rank for one in self._open.values()
            if one.left_s is None and one.entered_s is not None and now_s - one.entered_s >= for_s
        ]  # fmt: skip
        if len(silent) != 1 or len(self._heard_s) < 2 or not set(waiting) - set(silent):
            return None
        return silent[0], self._heard_s[silent[0]]

    def _operation(self, data: Mapping[str, Any]) -> RankOperation:
        number = self.numbers[data["rank"]]
        left_s = data.get("left_s")
        operation = RankOperation(
            self.prefix + data["communicator"], int(data["sequence"]), number, str(data["kind"]),
            str(data["algorithm"]), int(data["size_bytes"]), float(data["entered_s"]),
            None if left_s is None else float(left_s),
        )  # fmt: skip
        self._open[number] = operation
        self._heard_s[number] = float(data["entered_s"]) if left_s is None else float(left_s)
        return operation

    def _connection(self, data: Mapping[str, Any]) -> Message | None:
        """The busy period of a connection as it is now; None for one at rest, or to somebody who is no rank."""
        dst = self.addresses.get(data["address"])
        operation = self._open.get(src := self.numbers[data["rank"]])
        self._heard_s[src] = float(data["t_s"])
        if dst is None or operation is None:
            return None
        pending, acknowledged = int(data["pending_bytes"]), int(data["acknowledged_bytes"])
        now_s = float(data["t_s"])
        busy = self._busy.get((src, dst))
        if busy is None:
            if not pending:
                return None
            busy = self._busy[src, dst] = _Busy(self._periods, now_s, acknowledged)
            self._periods += 1
        carried = acknowledged - busy.acknowledged_before
        if not pending:
            del self._busy[src, dst]
        return Message(
            busy.id, operation.communicator, operation.sequence, src, dst, 0, max(carried + pending, 1), None,
            busy.start_s, now_s if not pending else None, carried, now_s,
        )  # fmt: skip
