"""What engines and training jobs tell of their collectives, at three layers: communicator, operation, transport.

Every item may come again with what is known by then: the newest one holds. Times are seconds of one clock for all
ranks (emulated seconds of a run, or a job's own clock), sizes are bytes as they cross the wires.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple, TypeAlias

from controller.errors import TelemetryError


class Connection(NamedTuple):
    """A connection from rank ``src`` to rank ``dst``."""

    src: int
    dst: int
    channel: int = 0


@dataclass(frozen=True, slots=True)
class Communicator:
    """A group of global ranks that make collectives together; ``id`` is its name among all jobs.

    Where several jobs share a fabric, an id begins with the job's name and a slash.
    """

    id: str
    ranks: tuple[int, ...]


def job_of(communicator_id: str) -> str:
    """The job that a communicator is of; empty where its id names none."""
    job, slash, _ = communicator_id.partition("/")
    return job if slash else ""


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
    values = {key: value for key, value in data.items() if key != "layer"}
    if "ranks" in values:
        values["ranks"] = tuple(values["ranks"])
    try:
        return kind(**values)
    except TypeError as error:
        raise TelemetryError(f"telemetry of the layer '{data['layer']}' has wrong keys: {error}") from None


_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in _LAYERS.values()}
_LETTERS: dict[str, type[Communicator] | type[RankOperation] | type[Message]] = {
    layer[0]: kind for layer, kind in _LAYERS.items()
}


def to_row(item: Telemetry) -> list[Any]:
    """A short JSON-ready form that :func:`from_row` reads back: the first letter of the layer, and the fields."""
    kind = type(item)
    letter = next(letter for letter, one in _LETTERS.items() if one is kind)
    return [letter, *(getattr(item, name) for name in _FIELDS[kind])]


def from_row(row: Sequence[Any]) -> Telemetry:
    """Inverse of :func:`to_row`."""
    kind = _LETTERS[row[0]]
    return Communicator(row[1], tuple(row[2])) if kind is Communicator else kind(*row[1:])
