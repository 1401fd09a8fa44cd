"""Failures over the time of a run, as both back ends take them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from topologies.model import Fabric, LinkKind
from workloads.errors import ScheduleError


@dataclass(frozen=True)
class LinkFailure:
    """Link ``link_id`` goes down ``at_s`` emulated seconds after the start of the run, and up again at ``restore_s``.

    ``restore_s`` None: it stays down until the run ends. Both directions fail, and both ends see their port go down.
    """

    link_id: str
    at_s: float
    restore_s: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.at_s) and self.at_s >= 0):
            raise ScheduleError(f"link {self.link_id} fails at {self.at_s} s; the time must be 0 or more")
        if self.restore_s is not None and not self.restore_s > self.at_s:
            raise ScheduleError(
                f"link {self.link_id} fails at {self.at_s:g} s and comes back at {self.restore_s:g} s; "
                "it must come back later than it fails"
            )


def check_failures(fabric: Fabric, failures: Sequence[LinkFailure]) -> None:
    """Raise UnknownElementError for a link that does not exist and ScheduleError for one that may not be failed."""
    for failure in failures:
        if fabric.link(failure.link_id).kind is LinkKind.HOST:
            raise ScheduleError(
                f"link {failure.link_id} joins a GPU to its own switch and cannot fail; choose a NIC, NVLink or "
                "fabric link"
            )
