"""Mistakes in the use of the command line that are not mistakes in a fabric."""

from topologies.errors import RailbedError


class LauncherOnlyError(RailbedError):
    """The command belongs to the launcher of a checkout and cannot run from an installed package."""

    exit_code = 2


class AmbiguousFabricError(RailbedError):
    """Several fabrics are up and none was named."""

    exit_code = 2


class ConsoleError(RailbedError):
    """What was typed into a console is not possible; the message says why, and what is."""

    exit_code = 2


class CaptureFileError(RailbedError):
    """Captured packets cannot be written where they should be."""


class NoSuchProgramError(RailbedError):
    """The program that is to run on the GPUs is not on this machine."""

    exit_code = 2
