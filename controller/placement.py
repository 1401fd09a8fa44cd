"""Placement: which links single connections are to take where their routes have a choice, decided from outside.

A connection is (source, destination, channel); its channel shows on the wire as the destination TCP port. A placement
is plain data. It never makes a path longer: at a switch with several ports on shortest paths, a placed connection takes
the port whose link it was given. Where that link is dead, and everywhere else, it goes like all other traffic.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from controller.errors import PlacementError
from topologies.errors import UnknownElementError
from topologies.model import Fabric, Gpu, parse_gpu_id

CHANNEL_BASE_PORT = 7000
"""TCP port of channel 0, if a placement names no other; the emulator's own senders use it."""

MAX_PORT = 65535


class Connection(NamedTuple):
    """One connection of a pair; its channels are told apart by their TCP ports."""

    src: Gpu
    dst: Gpu
    channel: int = 0


@dataclass(frozen=True)
class Placement:
    """The links given to each connection, and the TCP port of channel 0."""

    ways: tuple[tuple[Connection, frozenset[str]], ...]
    base_port: int = CHANNEL_BASE_PORT

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Policies are keys of caches, and a placement can be long.
        return hash((self.ways, self.base_port))

    @classmethod
    def of(cls, ways: Mapping[Connection, Iterable[str]], base_port: int = CHANNEL_BASE_PORT) -> Placement:
        """The placement that gives each connection those link ids."""
        return cls(tuple((connection, frozenset(ways[connection])) for connection in sorted(ways)), base_port)

    @cached_property
    def links_of(self) -> dict[Connection, frozenset[str]]:
        """The links given to each connection."""
        return dict(self.ways)

    def tcp_port(self, channel: int) -> int:
        """The destination TCP port of a channel."""
        return self.base_port + channel

    def check(self, fabric: Fabric) -> None:
        """Raise PlacementError if it names a GPU, link or channel that ``fabric`` and TCP do not have."""
        for connection, links in self.ways:
            try:
                for gpu in (connection.src, connection.dst):
                    fabric.gpu(gpu.id)
                for link_id in sorted(links):
                    fabric.link(link_id)
            except UnknownElementError as error:
                raise PlacementError(f"the placement does not fit the fabric: {error}") from None
            if connection.src == connection.dst:
                raise PlacementError(f"the placement has a connection from {connection.src.id} to itself")
            if connection.channel < 0 or not 0 < self.tcp_port(connection.channel) <= MAX_PORT:
                raise PlacementError(
                    f"channel {connection.channel} would be TCP port {self.tcp_port(connection.channel)}: "
                    f"ports are 1 to {MAX_PORT}; the base port is {self.base_port}"
                )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form that :meth:`from_dict` reads back."""
        return {
            "base_port": self.base_port,
            "connections": [
                {"src": each.src.id, "dst": each.dst.id, "channel": each.channel, "links": sorted(links)}
                for each, links in self.ways
            ],
        }

    @classmethod
    def from_dict(cls, data: Any) -> Placement:
        """Inverse of :meth:`to_dict`; raises PlacementError that says which entry is wrong."""
        if not isinstance(data, dict) or not isinstance(data.get("connections"), list):
            raise PlacementError("a placement is an object with the key 'connections', a list")
        base_port = data.get("base_port", CHANNEL_BASE_PORT)
        if isinstance(base_port, bool) or not isinstance(base_port, int):
            raise PlacementError(f"base_port is {base_port!r}; it must be a TCP port")
        ways: dict[Connection, list[str]] = {}
        for number, entry in enumerate(data["connections"]):
            ways.update([_connection(number, entry)])
        return cls.of(ways, base_port)


def read_placement(path: Path, fabric: Fabric) -> Placement:
    """The placement in a JSON file; raises PlacementError if it can't be read, is wrong or does not fit ``fabric``."""
    placement = placement_in(path)
    placement.check(fabric)
    return placement


def placement_in(path: Path) -> Placement:
    """The placement in a JSON file, for whatever fabric; raises PlacementError if it can't be read or is wrong."""
    try:
        return Placement.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise PlacementError(f"cannot read the placement file {path}: {error.strerror}") from None
    except ValueError as error:
        if isinstance(error, PlacementError):
            raise
        raise PlacementError(f"the placement file {path} is not JSON: {error}") from None


def _connection(number: int, entry: Any) -> tuple[Connection, list[str]]:
    where = f"connection {number} of the placement"
    if not isinstance(entry, dict) or not {"src", "dst", "links"} <= set(entry) <= {"src", "dst", "links", "channel"}:
        raise PlacementError(f"{where} must have the keys src, dst and links, and may have channel")
    channel, links = entry.get("channel", 0), entry["links"]
    if isinstance(channel, bool) or not isinstance(channel, int):
        raise PlacementError(f"{where}: channel is {channel!r}; it must be a whole number")
    if not isinstance(links, list) or not all(isinstance(link_id, str) for link_id in links):
        raise PlacementError(f"{where}: links must be a list of link ids")
    try:
        return Connection(parse_gpu_id(str(entry["src"])), parse_gpu_id(str(entry["dst"])), channel), links
    except UnknownElementError as error:
        raise PlacementError(f"{where}: {error}") from None
