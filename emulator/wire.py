"""What crosses the fabric's control socket: JSON lines, requests one way, progress and one answer the other.

A request is ``{"verb": ..., **arguments}``. Each line back is ``{"progress": text}``, or the last one:
``{"result": ...}`` or ``{"error": {"message": ..., "exit_code": ...}}``. The socket belongs to root.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from emulator.errors import EmulatorError, out_of_room
from topologies.errors import RailbedError
from topologies.model import FabricSpec
from topologies.scale import Scale
from workloads.failures import LinkFailure
from workloads.records import (
    ConnectionRecord,
    Event,
    EventKind,
    LinkSeries,
    Progress,
    RunRecord,
    TransferRecord,
    TransferStatus,
)
from workloads.schedule import Schedule


class RemoteError(EmulatorError):
    """An error that the fabric reported; message and exit code are those of the original."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send one message."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def messages(connection: socket.socket) -> Iterator[dict[str, Any]]:
    """Messages as they arrive, until the other end closes."""
    with connection.makefile("rb") as lines:
        for line in lines:
            yield json.loads(line)


def error_message(error: Exception) -> dict[str, Any]:
    """The last line for a request that failed."""
    if isinstance(error, OSError):
        error = out_of_room(error, "go on")
    exit_code = error.exit_code if isinstance(error, RailbedError) else 1
    text = str(error) if isinstance(error, RailbedError) else f"{type(error).__name__}: {error}"
    return {"error": {"message": text, "exit_code": exit_code}}


def raise_error(message: dict[str, Any]) -> None:
    """Raise RemoteError if ``message`` reports an error."""
    if "error" in message:
        raise RemoteError(message["error"]["message"], message["error"]["exit_code"])


def record_to_dict(record: RunRecord) -> dict[str, Any]:
    """JSON-ready form of a run record that :func:`record_from_dict` reads back."""
    return {
        "backend": record.backend,
        "fabric": record.fabric.to_dict(),
        "scale": {"rate": record.scale.rate, "time": record.scale.time},
        "schedule": record.schedule.to_dict(),
        "failures": [failure.to_dict() for failure in record.failures],
        "seed": record.seed,
        "transfers": [
            {**{name: getattr(one, name) for name in one.__dataclass_fields__}, "status": one.status.value}
            for one in record.transfers
        ],
        "links": {
            "link_ids": list(record.links.link_ids),
            "t_s": record.links.t_s.tolist(),
            "a_to_b_bytes": record.links.a_to_b_bytes.tolist(),
            "b_to_a_bytes": record.links.b_to_a_bytes.tolist(),
        },
        "events": [[event.t_s, event.kind.value, event.subject, event.detail] for event in record.events],
        "faithful": record.faithful,
        "notes": list(record.notes),
        "longest_gap_s": record.longest_gap_s,
        "last_computation_s": record.last_computation_s,
        "engine": record.engine,
        "connections": [asdict(one) for one in record.connections],
        "progress": [[one.t_s, one.transfer_id, one.received_bytes] for one in record.progress],
    }


def record_from_dict(data: dict[str, Any]) -> RunRecord:
    """Inverse of :func:`record_to_dict`."""
    links = data["links"]
    return RunRecord(
        backend=data["backend"],
        fabric=FabricSpec.from_dict(data["fabric"]),
        scale=Scale(**data["scale"]),
        schedule=Schedule.from_dict(data["schedule"]),
        failures=tuple(LinkFailure.from_dict(failure) for failure in data["failures"]),
        seed=data["seed"],
        transfers=tuple(
            TransferRecord(**{**one, "status": TransferStatus(one["status"])}) for one in data["transfers"]
        ),
        links=LinkSeries(
            tuple(links["link_ids"]),
            np.array(links["t_s"], dtype=np.float64),
            np.array(links["a_to_b_bytes"], dtype=np.float64),
            np.array(links["b_to_a_bytes"], dtype=np.float64),
        ),
        events=tuple(Event(t_s, EventKind(kind), subject, detail) for t_s, kind, subject, detail in data["events"]),
        faithful=data["faithful"],
        notes=tuple(data["notes"]),
        longest_gap_s=data["longest_gap_s"],
        last_computation_s=data["last_computation_s"],
        engine=data["engine"],
        connections=tuple(ConnectionRecord(**one) for one in data["connections"]),
        progress=tuple(Progress(*one) for one in data["progress"]),
    )
