"""Mistakes in the description of what the GPUs send."""

from topologies.errors import RailbedError


class ScheduleError(RailbedError, ValueError):
    """A schedule is not one: an unknown dependency, a cycle, a size of zero, a rank that does not exist."""

    exit_code = 2


class CollectiveError(RailbedError, ValueError):
    """A collective cannot be made over this group of ranks or with this size."""

    exit_code = 2


class ModelError(RailbedError, ValueError):
    """A language model is described with numbers that no model can have, or by a name that is not known."""

    exit_code = 2


class PlanError(RailbedError, ValueError):
    """A model cannot be trained by this plan on these GPUs; the message gives the numbers that don't fit."""

    exit_code = 2
