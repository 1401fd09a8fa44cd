"""What failures change over time: the wires at once, the routes when somebody has noticed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workloads.failures import FailureKind, LinkFailure


@dataclass(frozen=True)
class Change:
    """A failure begins or ends (``up``), for the wires or (later) for the routes."""

    t_s: float
    failure: LinkFailure
    up: bool
    routes: bool


def changes_of(
    failures: Sequence[LinkFailure], repair_delay_s: float, silent_repair_delay_s: float | None
) -> list[Change]:
    """All changes in order of time; at the same instant wires change before routes, and down before up."""
    noticed_after_s = {FailureKind.DOWN: repair_delay_s, FailureKind.BLACKHOLE: silent_repair_delay_s}
    changes = []
    for failure in failures:
        delay_s = noticed_after_s.get(failure.kind)
        for t_s, up in ((failure.at_s, False), (failure.restore_s, True)):
            if t_s is not None:
                changes.append(Change(t_s, failure, up, routes=False))
                if delay_s is not None:
                    changes.append(Change(t_s + delay_s, failure, up, routes=True))
    return sorted(changes, key=lambda change: (change.t_s, change.routes, change.up))


def dead_ends(failure: LinkFailure) -> tuple[int, ...]:
    """The directions of its link that carry nothing under a failure: 0 away from the link's first end, 1 towards it."""
    if failure.kind is FailureKind.BLACKHOLE:
        return {"both": (0, 1), "out": (0,), "in": (1,)}[failure.direction]
    return (0, 1) if failure.kind is FailureKind.DOWN else ()


def not_modelled(failures: Sequence[LinkFailure]) -> list[str]:
    """Notes on the kinds of failures that the fluid model leaves out."""
    kinds = {failure.kind for failure in failures} & {FailureKind.DELAY, FailureKind.LOSS}
    return [f"Not modelled: {kind.value} on links." for kind in sorted(kinds)]
