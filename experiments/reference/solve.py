"""What the reference experiments share: one run on the simulator, in units of the real machine."""

from __future__ import annotations

from collections.abc import Iterable

from controller.policy import RoutingPolicy
from simulator.fluid import simulate
from simulator.operations import simulate_operations
from simulator.routes import controller_router
from topologies.model import Fabric, Failures
from topologies.scale import Scale
from workloads.failures import LinkFailure
from workloads.operations import OperationSchedule
from workloads.schedule import Schedule


def duration_s(
    fabric: Fabric, schedule: Schedule, *, seed: int = 0, down: Iterable[str] = (), message_s: float = 0.0
) -> float:
    """Seconds from the start to the last byte on the real machine, on the controller's routes.

    The links ``down`` are down throughout and routed around; ``message_s`` passes before each transfer's first byte.
    Rates are payload: nothing is taken off for headers.
    """
    record = simulate(
        fabric,
        schedule,
        controller_router(fabric, RoutingPolicy(seed=seed)),
        scale=Scale(1, 1),
        failures=[LinkFailure(link_id, 0.0) for link_id in down],
        repair_delay_s=0.0,
        start_delay_s=message_s,
        goodput=1.0,
    )
    ends = [transfer.end_s for transfer in record.transfers if transfer.end_s is not None]
    assert len(ends) == len(record.transfers), "every pair has a path in these experiments"
    return max(*ends, record.last_computation_s or 0.0)


def iteration_s(fabric: Fabric, operations: OperationSchedule, *, seed: int = 0, down: Iterable[str] = ()) -> float:
    """Seconds that one training iteration takes on the real machine; ``down`` as in :func:`duration_s`.

    Class by class, so that its size does not matter much; the same as :func:`duration_s` of its transfers.
    """
    record = simulate_operations(
        fabric,
        operations,
        controller_router(fabric, RoutingPolicy(seed=seed)),
        scale=Scale(1, 1),
        failures=Failures(links=frozenset(down)),
        goodput=1.0,
    )
    return record.completion_s
