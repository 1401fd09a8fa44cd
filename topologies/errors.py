"""The base of all errors that a user may see, and the mistakes in the description of a fabric.

Every message is one sentence that says what is wrong, where, and what to do. ``exit_code`` is what the command line
returns: 2 for wrong use, 1 for everything else that failed.
"""


class RailbedError(Exception):
    """Base of every error that Railbed raises on purpose."""

    exit_code = 1


class FabricError(RailbedError, ValueError):
    """The described fabric cannot be built; the message names the value, the place and the remedy."""

    exit_code = 2


class UnknownPresetError(FabricError):
    """A hardware preset of that name does not exist."""


class UnknownElementError(FabricError):
    """The fabric has no GPU, switch or link of that id."""


class ScaleError(FabricError):
    """The scale cannot be emulated with this fabric."""


class UnknownCapabilityError(FabricError):
    """No capability has that name."""


class MissingCapabilityError(RailbedError):
    """This machine cannot emulate what the scenario calls essential."""
