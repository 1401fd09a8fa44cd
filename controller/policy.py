"""What the routing is free to choose: where cross-rail traffic is relayed, and the seed of the path hash."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from controller.errors import PolicyError
from topologies.model import Fabric, FabricKind


class Relay(str, Enum):
    """Who forwards between two GPUs of different domains and different rails.

    SOURCE: a GPU of the source's domain, reached by NVLink (NCCL's PXN). DESTINATION: a GPU of the destination's
    domain, reached by the source's own NIC. DIRECT: nobody, the spines join the rails.
    """

    SOURCE = "source"
    DESTINATION = "destination"
    DIRECT = "direct"


@dataclass(frozen=True)
class RoutingPolicy:
    """``relay`` holds on rail-only fabrics; fabrics with spines route directly. ``seed`` salts the path hash.

    ``local_repair`` lets switches send packets around a dead port by themselves until the controller has new rules.
    """

    relay: Relay = Relay.SOURCE
    seed: int = 0
    local_repair: bool = True

    def relay_on(self, fabric: Fabric) -> Relay:
        """The relay that is in force on ``fabric``."""
        return self.relay if fabric.kind is FabricKind.RAIL_ONLY else Relay.DIRECT


def relay_named(name: str) -> Relay:
    """The relay called ``name``, "source" or "destination"; raises PolicyError for any other text."""
    choices = {relay.value: relay for relay in (Relay.SOURCE, Relay.DESTINATION)}
    try:
        return choices[name]
    except KeyError:
        raise PolicyError(f"unknown relay '{name}': the relay of cross-rail traffic is source or destination") from None
