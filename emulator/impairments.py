"""Links that work badly: blackholes, lower rates, delay and loss, set on single links and read back from the kernel.

What is set lives in the kernel only; nothing is remembered here, so what is shown is what is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum

from pyroute2 import IPRoute

from emulator.asking import Ask, held_qdiscs
from emulator.errors import ImpairmentError, NotEmulatedError
from emulator.names import link_interfaces
from emulator.netem import Netem, netem_batch
from emulator.shape import QUEUES, Shape, change_rate_batch
from emulator.shaping import Queues, read_queues, read_rates
from emulator.tc import run_batch
from topologies.model import Link

BLACKHOLE_LIMIT_BYTES = 1
"""No packet fits: everything is dropped, while both ends stay up. The kernel has no action that drops at this place."""


class Direction(str, Enum):
    """Which way a link is impaired. OUT: away from its GPU (or its leaf), IN: towards it."""

    BOTH = "both"
    OUT = "out"
    IN = "in"


@dataclass(frozen=True)
class LinkImpairment:
    """What is wrong with one link, as the kernel holds it; ``rate_mbps`` None is its own rate, ``own_rate_mbps``."""

    link_id: str
    down: bool
    blackhole: tuple[Direction, ...]
    rate_mbps: float | None
    netem: Netem
    own_rate_mbps: float

    def to_dict(self) -> dict[str, object]:
        """JSON-ready form."""
        return {
            "link": self.link_id,
            "down": self.down,
            "blackhole": [direction.value for direction in self.blackhole],
            "rate_mbps": self.rate_mbps,
            "own_rate_mbps": self.own_rate_mbps,
            **asdict(self.netem),
        }

    def __bool__(self) -> bool:
        return bool(self.down or self.blackhole or self.rate_mbps is not None or self.netem)


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
        lines += [f"qdisc replace dev {name} parent 1:{leaf} handle {leaf}: bfifo limit {limit}" for leaf in QUEUES]
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


def netem_of_link(queues: Queues, link: Link, index: Mapping[str, int]) -> Netem:
    """What a link does to packets now, by what the kernel holds at its first end; both ends are always set alike."""
    return queues.netem.get(index[link_interfaces(link)[0]], Netem())


def set_netem(
    netlink: IPRoute, link: Link, wanted: Netem, index: Mapping[str, int], shapes: Mapping[str, Shape], available: bool
) -> None:
    """Delay and lose packets in both directions of a link; rate, queue and blackholes stay what the kernel holds.

    Raises NotEmulatedError on kernels without netem and ImpairmentError for impossible values.
    """
    wanted.check(link.id)
    queues = read_queues(netlink)
    if wanted and not available:
        raise NotEmulatedError("this kernel has no netem, so delay and loss are not emulated here; they are in the VM")
    rates = read_rates(netlink, [index[name] for name in link_interfaces(link)])
    lines = []
    for name in link_interfaces(link):
        number = index[name]
        present = replace(
            shapes[name], rate_bytes_per_s=rates[number], queue_bytes=queues.limit_bytes[number]
        )  # a degraded or blackholed link stays one
        lines += netem_batch(name, wanted, queues.netem.get(number, Netem()), present)
    if lines:
        _tc(lines)


def read(
    netlink: IPRoute,
    links: Iterable[Link],
    up: Mapping[str, bool],
    index: Mapping[str, int],
    shapes: Mapping[str, Shape],
) -> list[LinkImpairment]:
    """The state of the given links, read from the kernel; one with nothing wrong is false."""
    queues = read_queues(netlink)
    links = tuple(links)
    rates = read_rates(netlink, [index[link_interfaces(link)[0]] for link in links])
    found = []
    for link in links:
        out, back = link_interfaces(link)
        swallowed = tuple(
            direction
            for direction, name in ((Direction.OUT, out), (Direction.IN, back))
            if queues.limit_bytes.get(index[name]) == BLACKHOLE_LIMIT_BYTES
        )
        rate = rates.get(index[out], 0)
        one = LinkImpairment(
            link_id=link.id,
            down=not up[link.id],
            blackhole=swallowed,
            rate_mbps=None if rate == shapes[out].rate_bytes_per_s else rate * 8 / 1e6,
            netem=netem_of_link(queues, link, index),
            own_rate_mbps=shapes[out].rate_mbps,
        )
        found.append(one)
    return found


def netem_available(ask: Ask) -> bool:
    """Whether this kernel can delay and lose packets; tried, so that its module is loaded."""
    return held_qdiscs({"netem": "netem delay 1ms"}, ask) == ["netem"]


def _tc(lines: Iterable[str]) -> None:
    complaint = run_batch("\n".join(lines) + "\n")
    if complaint:
        raise ImpairmentError(f"the kernel refused the change: {complaint}")
