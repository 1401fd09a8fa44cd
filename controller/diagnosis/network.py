"""What the routing knows of the network that connections cross: their lanes, and what each can carry."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from controller.diagnosis.telemetry import Connection
from controller.routing import Routes
from topologies.model import Fabric, LinkKind
from topologies.scale import Scale, link_rate_mbps

GOODPUT = 1448 / 1514
"""Payload share of a full Ethernet frame: MTU 1500, IPv4 and TCP with time stamps, 14 bytes of Ethernet header."""


class Lane(NamedTuple):
    """One direction of a link: ``out`` from its first end (the GPU or leaf), or ``in`` towards it."""

    link_id: str
    direction: str


class Network:
    """A fabric under the routes in force, for ranks. ``scale`` makes the emulated rates that telemetry is of."""

    def __init__(self, routes: Routes, scale: Scale) -> None:
        self.fabric: Fabric = routes.fabric
        self._routes = routes
        self._scale = scale
        self.lanes = lru_cache(maxsize=None)(self._lanes)

    def name(self, rank: int) -> str:
        """Id of the GPU of a rank."""
        return self.fabric.gpu_of_rank(rank).id

    def room_bytes_per_s(self, lane: Lane) -> float:
        """Payload that a lane carries a second when it is whole; infinite for the link of a GPU to its own switch."""
        link = self.fabric.link(lane.link_id)
        if link.kind is LinkKind.HOST:
            return float("inf")
        return link_rate_mbps(link, self._scale) * 1e6 / 8 * GOODPUT

    def _lanes(self, connection: Connection) -> tuple[Lane, ...]:
        """The lanes from the sender's memory to the receiver's, in order; none where no path leads there."""
        src, dst = self.fabric.gpu_of_rank(connection.src), self.fabric.gpu_of_rank(connection.dst)
        path = self._routes.path(src, dst, connection.channel)
        if path is None:
            return ()
        senders = (src.id, *(hop.switch_id for hop in path.hops))
        return tuple(
            Lane(link_id, "out" if self.fabric.link(link_id).a == sender else "in")
            for link_id, sender in zip(path.links, senders, strict=True)
        )
