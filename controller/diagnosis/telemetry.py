"""What engines and training jobs tell of their collectives, at three layers: communicator, operation, transport.

Every item may come again with what is known by then: the newest one holds. Times are seconds of one clock for all
ranks (emulated seconds of a run, or a job's own clock), sizes are bytes as they cross the wires.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

from controller.errors import TelemetryError


class Connection(NamedTuple):
    """A connection from rank ``src`` to rank ``dst``."""

    src: int
    dst: int
    channel: int = 0


@dataclass(frozen=True, slots=True)
class Communicator:
    """A group of global ranks that make collectives together; ``id`` is its name among all jobs."""

    id: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankOperation:
    """What one rank does in one operation: the ``sequence``-th of its communicator.

    ``entered_s`` is when the rank was ready for it (its computing before was done), ``left_s`` when its last part was
    done; None where that has not happened yet. ``size_bytes`` is that of the whole operation, 0 where unknown.
    """

    communicator: str
    sequence: int
    rank: int
    kind: str
    algorithm: str
    size_bytes: int
    entered_s: float | None
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message of an operation on the connection (``src``, ``dst``, ``channel``).

    ``posted_s`` is when its sender had all that it takes to send it, ``start_s`` when its first byte left, ``end_s``
    when its last one had arrived; None where that has not happened yet. ``received_bytes`` is what had arrived by
    ``seen_s``. ``id`` is its own among all messages of the run.
    """

    id: int
    communicator: str
    sequence: int
    src: int
    dst: int
    channel: int
    size_bytes: int
    posted_s: float | None
    start_s: float | None
    end_s: float | None
    received_bytes: float
    seen_s: float

    @property
    def connection(self) -> Connection:
        """The connection that it is on."""
        return Connection(self.src, self.dst, self.channel)


Telemetry: TypeAlias = Communicator | RankOperation | Message

_LAYERS: dict[str, type[Communicator] | type[RankOperation] | type[Message]] = {
    "communicator": Communicator,
    "operation": RankOperation,
    "transport": Message,
}


def to_dict(item: Telemetry) -> dict[str, Any]:
    """A JSON-ready form that :func:`from_dict` reads back: the fields, and ``layer``."""
    layer = next(name for name, kind in _LAYERS.items() if isinstance(item, kind))
    return {"layer": layer, **asdict(item)}


def from_dict(data: Mapping[str, Any]) -> Telemetry:
    """Inverse of :func:`to_dict`; raises TelemetryError for an unknown layer, and for missing or unknown keys."""
    kind = _LAYERS.get(str(data.get("layer")))
    if kind is None:
        raise TelemetryError(f"telemetry of the layer {data.get('layer')!r}: the layers are {', '.join(_LAYERS)}")
    fields = {key: value for key, value in data.items() if key != "layer"}
    if "ranks" in fields:
        fields["ranks"] = tuple(fields["ranks"])
    try:
        return kind(**fields)
    except TypeError as error:
        raise TelemetryError(f"telemetry of the layer '{data['layer']}' has wrong keys: {error}") from None
