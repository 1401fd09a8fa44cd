"""What the simulator refuses to run."""

from topologies.errors import RailbedError


class SimulationError(RailbedError, ValueError):
    """The fabric, the schedule and the paths do not fit together; the message says which part does not."""

    exit_code = 2
