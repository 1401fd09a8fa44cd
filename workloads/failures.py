"""Failures over the time of a run, as both back ends take them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from topologies.model import Fabric, LinkKind
from workloads.errors import ScheduleError


class FailureKind(str, Enum):
    """What is wrong with a link meanwhile.

    DOWN: both ends see their port go down. BLACKHOLE: packets vanish while the ports stay up. DEGRADE: it keeps a share
    of its rate. DELAY and LOSS: packets come later, or not all of them.
    """

    DOWN = "down"
    BLACKHOLE = "blackhole"
    DEGRADE = "degrade"
    DELAY = "delay"
    LOSS = "loss"


DIRECTIONS = ("both", "out", "in")
"""Which way a blackhole swallows packets: ``out`` is away from the link's GPU (or leaf), ``in`` towards it."""


@dataclass(frozen=True)
class LinkFailure:
    """Link ``link_id`` fails ``at_s`` emulated seconds after the start of the run, and is whole again at ``restore_s``.

    ``restore_s`` None: it stays so until the run ends. ``direction`` is that of a blackhole; the other kinds hold both
    ways. ``rate_share`` is what a degraded link keeps of its rate, above 0 and below 1; ``delay_s`` what a delayed one
    adds for each direction, in emulated seconds; ``loss_share`` what a lossy one loses. Raises ScheduleError for values
    out of range.
    """

    link_id: str
    at_s: float
    restore_s: float | None = None
    kind: FailureKind = FailureKind.DOWN
    direction: str = "both"
    rate_share: float = 1.0
    delay_s: float = 0.0
    loss_share: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.at_s) and self.at_s >= 0):
            raise ScheduleError(f"link {self.link_id} fails at {self.at_s} s; the time must be 0 or more")
        if self.restore_s is not None and not self.restore_s > self.at_s:
            raise ScheduleError(
                f"link {self.link_id} fails at {self.at_s:g} s and comes back at {self.restore_s:g} s; "
                "it must come back later than it fails"
            )
        if self.direction not in DIRECTIONS:
            raise ScheduleError(f"link {self.link_id}: direction is '{self.direction}'; it is one of both, out and in")
        wrong = {
            FailureKind.DEGRADE: not 0 < self.rate_share < 1,
            FailureKind.DELAY: not (self.delay_s > 0 and math.isfinite(self.delay_s)),
            FailureKind.LOSS: not 0 < self.loss_share <= 1,
        }
        if wrong.get(self.kind, False):
            raise ScheduleError(
                f"link {self.link_id} cannot {self.kind.value} by rate_share {self.rate_share:g}, delay_s "
                f"{self.delay_s:g}, loss_share {self.loss_share:g}: a rate_share is above 0 and below 1, a delay_s "
                "above 0, a loss_share above 0 and at most 1"
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form that :meth:`from_dict` reads back."""
        return {**asdict(self), "kind": self.kind.value}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LinkFailure:
        """Inverse of :meth:`to_dict`."""
        return cls(**{**data, "kind": FailureKind(data.get("kind", FailureKind.DOWN.value))})

    @property
    def text(self) -> str:
        """What is wrong, to read: ``down``, ``at 25% of its rate``."""
        both = "" if self.direction == "both" else f" ({self.direction})"
        return {
            FailureKind.DOWN: "down",
            FailureKind.BLACKHOLE: f"swallowing packets{both}",
            FailureKind.DEGRADE: f"at {self.rate_share:.3g} of its rate",
            FailureKind.DELAY: f"delayed by {self.delay_s * 1000:g} ms",
            FailureKind.LOSS: f"losing {self.loss_share:.3g} of its packets",
        }[self.kind]


def check_failures(fabric: Fabric, failures: Sequence[LinkFailure]) -> None:
    """Raise UnknownElementError for a link that does not exist and ScheduleError for one that may not be failed."""
    for failure in failures:
        if fabric.link(failure.link_id).kind is LinkKind.HOST:
            raise ScheduleError(
                f"link {failure.link_id} joins a GPU to its own switch and cannot fail; choose a NIC, NVLink or "
                "fabric link"
            )
