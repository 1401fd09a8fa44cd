"""What a machine may be able to emulate or not, and what follows from a thing that is not there. Pure.

A capability that a scenario calls essential and that is missing is refused; any other that is wanted and missing is
run without and marked "not emulated". :mod:`emulator.capabilities` finds out which a machine has.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from topologies.errors import MissingCapabilityError, UnknownCapabilityError
from topologies.near import did_you_mean


class Capability(str, Enum):
    """The capabilities with fixed names; a TCP congestion control is one too, called ``tcp-NAME`` (``tcp-dctcp``)."""

    DELAY = "delay"
    JITTER = "jitter"
    LOSS = "loss"
    SHAPING = "shaping"
    FAST_FAILOVER = "fast-failover"
    KERNEL_DATAPATH = "kernel-datapath"


CONGESTION_CONTROL_PREFIX = "tcp-"
_CONGESTION_CONTROL = re.compile(CONGESTION_CONTROL_PREFIX + r"[a-z][a-z0-9_-]*\Z")


@dataclass(frozen=True)
class Missing:
    """Wanted capabilities that a machine lacks: ``essential`` ones stop a run, ``others`` only mark it."""

    essential: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a result, the terminal and the report say about a run that went on without; empty if nothing."""
        return tuple(f"not emulated: {name} (this machine cannot)" for name in self.others)

    def refuse(self) -> None:
        """Raise MissingCapabilityError if something essential is missing."""
        if self.essential:
            names = " and ".join(self.essential)
            raise MissingCapabilityError(
                f"this machine cannot emulate {names}, which the scenario calls essential: use a machine that can "
                "('sudo railbed doctor' says what is missing), or take it off the list 'essential' to run without"
            )


def check_capability(name: str) -> str:
    """``name`` if it is a capability's; raises UnknownCapabilityError with the nearest one."""
    known = [one.value for one in Capability]
    if name in known or _CONGESTION_CONTROL.match(name):
        return name
    raise UnknownCapabilityError(
        f"unknown capability '{name}': {did_you_mean(name, known)}The capabilities are {', '.join(known)}, "
        f"and {CONGESTION_CONTROL_PREFIX}NAME for a congestion control"
    )


def missing(held: Collection[str], wanted: Iterable[str], essential: Iterable[str] = ()) -> Missing:
    """Which of the ``wanted`` and ``essential`` capabilities are not among those ``held``, each once, in order.

    What is essential need not be repeated in ``wanted``. Raises UnknownCapabilityError for other names.
    """
    vital = dict.fromkeys(check_capability(name) for name in essential)
    others = dict.fromkeys(check_capability(name) for name in wanted if name not in vital)
    return Missing(
        essential=tuple(name for name in vital if name not in held),
        others=tuple(name for name in others if name not in held),
    )
