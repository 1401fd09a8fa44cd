"""Mistakes of those who start or use the page."""

from topologies.errors import RailbedError


class RecordingError(RailbedError):
    """The file is no recording of the page, or is damaged; the message names the file and the line."""

    exit_code = 2


class ActionError(RailbedError):
    """What a viewer asked for is not possible; the message says why."""

    exit_code = 2


class ListenError(RailbedError):
    """The page cannot be served at that address."""

    exit_code = 2
