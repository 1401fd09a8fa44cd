"""What a switch can be given: flow rules and fast-failover groups, as plain immutable data.

Three header fields carry the controller's own marks, all of them restored before a packet reaches its GPU:

- The *version* of the routes that a packet follows is byte 4 of its source MAC address, stamped where it enters. That
  byte is 0 in every address of ours; 0 also is the version of the healthy routes, which need no stamp.
- The *mark* of a packet that a switch has sent another way than its rule says, because a port is dead, is a DSCP value.
- The DSCP value that the packet had before it was marked waits in byte 4 of the destination MAC address.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from controller.selectors import Selector

ETH_TYPE_IPV4 = 0x0800
ETH_TYPE_ARP = 0x0806
IP_PROTO_TCP = 6
ARP_REQUEST = 1
IN_PORT = 0xFFFFFFF8

MAX_VERSION = 255
MARK_DSCP = 3
"""From the pool for local use (xxxx11); traffic that carries it by itself is not repaired locally, only dropped."""

PRIORITY_STAMP = 1000
PRIORITY_ARP = 900
MARKED_OWN_GPU = 890
MARKED_BELOW = 880
MARKED_AROUND = 870
MARKED_DOMAIN = 860
MARKED_FROM_UPLINK = 850
MARKED_DEFAULT = 840
PRIORITY_CLOSED_PORT = 800
LEVEL_OWN_GPU = 700
LEVEL_HASHED = 600
LEVEL_HASHED_ANY_SOURCE = 500
LEVEL_EXACT = 400
LEVEL_DOMAIN = 300
LEVEL_RAIL = 200
LEVEL_DEFAULT = 100
PRIORITY_TABLE_MISS = 0

ABOVE_WHOLE = 10
ABOVE_RAIL = 20
ABOVE_DOMAIN = 30
ABOVE_EXACT = 40
ABOVE_PAIR = 50
ABOVE_SPREAD = 60
ABOVE_PLACED = 70
ABOVE_PLACED_HEALTHY = 7
"""Connections that were placed by name: when nothing is broken just above the healthy rule, so that every repair of it
stands above them; the repairs of the placed connections stand above all other repairs."""

ABOVE_FROM_GPU = 5
"""Added to the above for packets that the GPU itself sends."""


@dataclass(frozen=True)
class Output:
    """Send the packet out of ``port`` (IN_PORT: back where it came from)."""

    port: int


@dataclass(frozen=True)
class ToGroup:
    """Let a group of the switch decide where the packet goes."""

    group_id: int


@dataclass(frozen=True)
class DecTtl:
    """Decrement the IPv4 TTL; the packet dies when it reaches 0."""


@dataclass(frozen=True)
class ArpReply:
    """Turn an ARP request into its answer and send it back.

    The MAC address of a GPU is a copy of bits of its IPv4 address, so one rule answers for every GPU.
    """


@dataclass(frozen=True)
class Stamp:
    """Write the version of the routes into the packet and look it up again."""

    version: int


@dataclass(frozen=True)
class Mark:
    """Put the packet's DSCP value aside and set the mark in its place."""


@dataclass(frozen=True)
class Unstamp:
    """Take the version out of the packet."""


@dataclass(frozen=True)
class Unmark:
    """Give the packet its own DSCP value back."""


Action = Output | ToGroup | DecTtl | ArpReply | Stamp | Mark | Unstamp | Unmark


class Match(NamedTuple):
    """What a rule matches; a field that is None matches everything, and ``marked`` False packets with and without mark.

    ``version`` is that of the routes the packet follows, ``tcp_dst`` the destination TCP port.
    """

    eth_type: int | None = None
    src: Selector | None = None
    dst: Selector | None = None
    in_port: int | None = None
    arp_op: int | None = None
    version: int | None = None
    marked: bool = False
    tcp_dst: int | None = None

    def __str__(self) -> str:
        parts = []
        if self.in_port is not None:
            parts.append(f"in_port={self.in_port}")
        if self.version is not None:
            parts.append(f"version={self.version}")
        if self.marked:
            parts.append("marked")
        if self.eth_type is not None:
            parts.append({ETH_TYPE_IPV4: "ip", ETH_TYPE_ARP: "arp"}[self.eth_type])
        if self.src is not None:
            parts.append(f"src={self.src.address}/{self.src.address_mask}")
        if self.dst is not None:
            parts.append(f"dst={self.dst.address}/{self.dst.address_mask}")
        if self.tcp_dst is not None:
            parts.append(f"tcp_dst={self.tcp_dst}")
        return ",".join(parts) or "any"


class Rule(NamedTuple):
    """One flow table entry. Without actions it drops. ``reason`` is for people and is not sent to the switch.

    It does not say on which switch it is, so that switches whose tables are alike share one.
    """

    priority: int
    match: Match
    actions: tuple[Action, ...]
    reason: str

    @property
    def identity(self) -> tuple[int, Match]:
        """What makes it this rule on its switch: a new rule of the same identity replaces it."""
        return self.priority, self.match


@dataclass(frozen=True)
class Bucket:
    """One choice of a fast-failover group: taken if ``watch_port`` is alive; None stands for always."""

    watch_port: int | None
    actions: tuple[Action, ...]


@dataclass(frozen=True)
class Group:
    """A fast-failover group: the first bucket that is alive takes the packet. A bucket without actions drops."""

    group_id: int
    buckets: tuple[Bucket, ...]


ALWAYS_GROUP_ID = 0xFFFF_0000
"""A group that is always alive, for buckets without a port to watch: Open vSwitch wants every bucket to watch."""
