"""Which engine replays a schedule on live hosts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from statistics import mean

from emulator import iperf3
from topologies.model import Fabric
from topologies.scale import Scale
from workloads.schedule import Schedule, Transfer

LONG_ENOUGH_S = 1.0
"""A phase that lasts less than this is too short for iperf3, which needs a third of it to start and notes ten times a
second what has arrived: shuffles of 0.15 s between bulk phases took twice that (docs/prediction.md)."""


class Engine(str, Enum):
    """IPERF3: two programs for every transfer, phase by phase. AGENT: the resident agent, dependency by dependency."""

    IPERF3 = "iperf3"
    AGENT = "agent"


def engine_for(schedule: Schedule, fabric: Fabric, scale: Scale) -> Engine:
    """iperf3 for bulk phases, the agent for all that iperf3 can't replay or would replay badly.

    Bulk phases have barriers between them and no computing. In each of them the average transfer of one kind (over
    NVLink within a domain, or over NICs) lasts at least a second when it has the link for itself.
    """
    if not schedule.is_phased or not schedule.transfers:
        return Engine.AGENT
    shortest_s = min(_phase_s(phase, fabric, scale) for phase in schedule.phases())
    return Engine.IPERF3 if shortest_s >= LONG_ENOUGH_S else Engine.AGENT


def _phase_s(phase: Sequence[Transfer], fabric: Fabric, scale: Scale) -> float:
    """What the average transfer of a phase takes alone, in emulated seconds: over NVLink or over NICs, the longer."""
    sizes: dict[float, list[int]] = {}
    for transfer in phase:
        src, dst = fabric.gpu_of_rank(transfer.src), fabric.gpu_of_rank(transfer.dst)
        spec = fabric.spec
        rate_mbps = spec.nvlink_rate_mbps if src.domain == dst.domain else spec.nic_rate_mbps
        sizes.setdefault(rate_mbps, []).append(transfer.size_bytes)
    return max(
        scale.emulated_bytes(mean(found)) * 8 / 1e6 / scale.emulated_rate_mbps(rate_mbps)
        for rate_mbps, found in sizes.items()
    )


def start_delay_s(engine: Engine) -> float:
    """What the engine needs to start a transfer (for iperf3: a phase), in emulated seconds."""
    return iperf3.START_S if engine is Engine.IPERF3 else 0.0
