"""The controller's mistakes, one class per kind."""

from __future__ import annotations

from topologies.errors import RailbedError


class PolicyError(RailbedError, ValueError):
    """The routing policy names a relay that does not exist."""

    exit_code = 2


class PlacementError(RailbedError, ValueError):
    """A placement of connections is malformed, or names what the fabric does not have."""

    exit_code = 2


class PlanningError(RailbedError, ValueError):
    """A demand of a job that is to be planned is malformed, or claims another one's channels."""

    exit_code = 2


class TelemetryError(RailbedError, ValueError):
    """An item of telemetry that is malformed."""

    exit_code = 2


class RouteError(RailbedError, ValueError):
    """A path was asked for that means nothing, e.g. from a GPU to itself."""

    exit_code = 2


class AmbiguousRulesError(RailbedError):
    """Two flows of one switch with equal priority both match a packet, so its way is undefined."""


class FrameworkError(RailbedError):
    """No usable controller framework (os-ken or Ryu) is installed."""


class ListenError(RailbedError):
    """The controller cannot listen where it was told to; mostly because another process does."""


class ArgumentError(RailbedError, ValueError):
    """The controller was started with wrong arguments."""

    exit_code = 2


class BadMessageError(RailbedError):
    """A switch would refuse this OpenFlow message; the text says why."""


class NorthboundError(RailbedError, ValueError):
    """A request to the northbound interface that cannot be answered. ``status`` is HTTP's."""

    exit_code = 2

    def __init__(self, sentence: str, status: int = 400) -> None:
        """``sentence`` is for the client."""
        super().__init__(sentence)
        self.status = status
