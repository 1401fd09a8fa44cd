"""Links that work badly: blackholes, lower rates, delay and loss, set on single links and read back from the kernel.

What is set lives in the kernel only; nothing is remembered here, so what is shown is what is.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from pyroute2 import IPRoute

from emulator.errors import ImpairmentError, NotEmulatedError
from emulator.names import link_interfaces
from emulator.shape import Shape, change_rate_batch
from emulator.shaping import read_leaves, read_rates
from emulator.tc import run_batch
from topologies.model import Link

BLACKHOLE_LIMIT_BYTES = 1
"""No packet fits: everything is dropped, while both ends stay up. The kernel has no action that drops at this place."""

LARGEST_DELAY_MS = 10_000.0


class Direction(str, Enum):
    """Which way a link is impaired. OUT: away from its GPU (or its leaf), IN: towards it."""

    BOTH = "both"
    OUT = "out"
    IN = "in"


@dataclass(frozen=True)
class LinkImpairment:
    """What is wrong with one link, as the kernel holds it; ``rate_mbps`` None is the full rate."""

    link_id: str
    down: bool
    blackhole: tuple[Direction, ...]
    rate_mbps: float | None
    delay_ms: float
    loss_share: float

    def to_dict(self) -> dict[str, object]:
        """JSON-ready form."""
        return {
            "link": self.link_id,
            "down": self.down,
            "blackhole": [direction.value for direction in self.blackhole],
            "rate_mbps": self.rate_mbps,
            "delay_ms": self.delay_ms,
            "loss_share": self.loss_share,
        }

    def __bool__(self) -> bool:
        return bool(self.down or self.blackhole or self.rate_mbps is not None or self.delay_ms or self.loss_share)


def direction_named(name: str) -> Direction:
    """The direction called ``name``; raises ImpairmentError for any other text."""
    try:
        return Direction(name)
    except ValueError:
        names = ", ".join(direction.value for direction in Direction)
        raise ImpairmentError(f"unknown direction '{name}': it is one of {names}") from None


def ends(link: Link, direction: Direction) -> tuple[str, ...]:
    """The interfaces whose outgoing packets a direction means."""
    out, back = link_interfaces(link)
    return {Direction.BOTH: (out, back), Direction.OUT: (out,), Direction.IN: (back,)}[direction]


def blackhole(link: Link, direction: Direction, shapes: Mapping[str, Shape], on: bool) -> None:
    """Swallow all packets of a link in one or both directions, or stop doing so; its ports stay up."""
    lines = []
    for name in ends(link, direction):
        limit = BLACKHOLE_LIMIT_BYTES if on else shapes[name].queue_bytes
        lines += [f"qdisc replace dev {name} parent 1:{leaf} handle {leaf}: bfifo limit {limit}" for leaf in (2, 3)]
    _tc(lines)


def set_rate(link: Link, rate_mbps: float | None, shapes: Mapping[str, Shape]) -> None:
    """Give both directions of a link a lower rate (emulated Mbit/s), or None for its own.

    Raises ImpairmentError unless the rate is above 0 and at most the link's own.
    """
    own = shapes[link_interfaces(link)[0]].rate_mbps
    if rate_mbps is not None and not 0 < rate_mbps <= own:
        raise ImpairmentError(
            f"link {link.id} cannot be degraded to {rate_mbps:g} Mbit/s: its own emulated rate is {own:g} Mbit/s"
        )
    _tc([line for name in link_interfaces(link) for line in change_rate_batch(name, shapes[name], rate_mbps)])


def set_netem(link: Link, delay_ms: float, loss_share: float, shapes: Mapping[str, Shape], available: bool) -> None:
    """Delay and lose packets of both directions of a link; 0 and 0 take both away.

    The delay sits in the place of the link's queue, below its shaper, so that it does not touch the rate. Raises
    NotEmulatedError on kernels without netem and ImpairmentError for values outside 0-10,000 ms and 0-1.
    """
    if not available:
        raise NotEmulatedError("this kernel has no netem, so delay and loss are not emulated here; they are in the VM")
    if not 0 <= delay_ms <= LARGEST_DELAY_MS or not 0 <= loss_share <= 1:
        raise ImpairmentError(
            f"a delay of {delay_ms:g} ms with a loss of {loss_share:g} cannot be set: "
            f"use 0 to {LARGEST_DELAY_MS:g} ms and a share of 0 to 1"
        )
    lines = []
    for name in link_interfaces(link):
        for leaf in (2, 3):
            kind = (
                f"netem limit 10000 delay {delay_ms:g}ms loss {loss_share * 100:g}%"
                if delay_ms or loss_share
                else f"bfifo limit {shapes[name].queue_bytes}"
            )
            lines.append(f"qdisc replace dev {name} parent 1:{leaf} handle {leaf}: {kind}")
    _tc(lines)


def read(
    netlink: IPRoute,
    links: Iterable[Link],
    up: Mapping[str, bool],
    index: Mapping[str, int],
    shapes: Mapping[str, Shape],
) -> list[LinkImpairment]:
    """The state of the given links, read from the kernel: only those with something wrong."""
    leaves = read_leaves(netlink)
    links = tuple(links)
    rates = read_rates(netlink, [index[link_interfaces(link)[0]] for link in links])
    found = []
    for link in links:
        out, back = link_interfaces(link)
        swallowed = tuple(
            direction
            for direction, name in ((Direction.OUT, out), (Direction.IN, back))
            if leaves.get(index[name], {}).get("limit") == BLACKHOLE_LIMIT_BYTES
        )
        rate = rates.get(index[out], 0)
        one = LinkImpairment(
            link_id=link.id,
            down=not up[link.id],
            blackhole=swallowed,
            rate_mbps=None if rate == shapes[out].rate_bytes_per_s else rate * 8 / 1e6,
            delay_ms=float(leaves.get(index[out], {}).get("delay_ms", 0.0)),
            loss_share=float(leaves.get(index[out], {}).get("loss_share", 0.0)),
        )
        if one:
            found.append(one)
    return found


def netem_available() -> bool:
    """Whether this kernel can delay and lose packets; tried on a throw-away interface of the fabric's namespace."""
    add = ["ip", "link", "add", "rb-netem", "type", "dummy"]
    if subprocess.run(add, capture_output=True, check=False).returncode != 0:
        return False
    try:
        probe = ["tc", "qdisc", "add", "dev", "rb-netem", "root", "netem", "delay", "1ms"]
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0
    finally:
        subprocess.run(["ip", "link", "del", "rb-netem"], capture_output=True, check=False)


def _tc(lines: Iterable[str]) -> None:
    complaint = run_batch("\n".join(lines) + "\n")
    if complaint:
        raise ImpairmentError(f"the kernel refused the change: {complaint}")
