"""Which engine replays a schedule on live hosts. Pure."""

from __future__ import annotations

from enum import Enum

from emulator import iperf3
from topologies.model import Fabric
from topologies.scale import Scale
from workloads.schedule import Schedule

LONG_ENOUGH_S = 1.0
"""Transfers that last less than this are too short for iperf3, whose start costs a third of it."""


class Engine(str, Enum):
    """IPERF3: two programs for every transfer, phase by phase. AGENT: the resident agent, dependency by dependency."""

    IPERF3 = "iperf3"
    AGENT = "agent"


def engine_for(schedule: Schedule, fabric: Fabric, scale: Scale) -> Engine:
    """iperf3 for bulk phases, the agent for all that iperf3 can't replay or would replay badly.

    Bulk phases have barriers between them, no computing, and an average transfer that lasts at least a second when it
    has a NIC for itself.
    """
    if not schedule.is_phased or not schedule.transfers:
        return Engine.AGENT
    bytes_per_s = scale.emulated_rate_mbps(fabric.spec.nic_rate_mbps) * 1e6 / 8
    mean_bytes = scale.emulated_bytes(schedule.total_bytes / len(schedule.transfers))
    return Engine.IPERF3 if mean_bytes / bytes_per_s >= LONG_ENOUGH_S else Engine.AGENT


def start_delay_s(engine: Engine) -> float:
    """What the engine needs to start a transfer (for iperf3: a phase), in emulated seconds."""
    return iperf3.START_S if engine is Engine.IPERF3 else 0.0
