"""What the bill of materials refuses to reckon with."""

from topologies.errors import FabricError, RailbedError


class BillError(FabricError):
    """No network of the wanted kind can be built from the wanted switches; the message names the value."""


class PriceBookError(RailbedError, ValueError):
    """A price book is missing, not readable or wrong; the message names the file, the key and what was expected."""

    exit_code = 2


class DowntimeInputsError(RailbedError, ValueError):
    """Inputs of the downtime model are missing, not readable or impossible; the message names file, key and value."""

    exit_code = 2
