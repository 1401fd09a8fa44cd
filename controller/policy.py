"""What the routing is free to choose: where cross-rail traffic is relayed, and the seed of the path hash."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from controller.errors import PolicyError
from controller.placement import Placement
from topologies.model import Fabric, FabricKind


class Relay(str, Enum):
    """Who forwards between two GPUs of different domains and different rails.

    SOURCE: a GPU of the source's domain, reached by NVLink (NCCL's PXN). DESTINATION: a GPU of the destination's
    domain, reached by the source's own NIC. BALANCED: the one or the other, so that both kinds carry half of the pairs
    (rails that are both even or both odd: the source's domain). DIRECT: nobody, the spines join the rails.
    """

    SOURCE = "source"
    DESTINATION = "destination"
    BALANCED = "balanced"
    DIRECT = "direct"


@dataclass(frozen=True)
class RoutingPolicy:
    """``relay`` holds on rail-only fabrics; fabrics with spines route directly. ``seed`` salts the path hash.

    ``local_repair`` lets switches send packets around a dead port by themselves until the controller has new rules.
    ``placement`` names the links of single connections; all other traffic is hashed by source and destination.
    """

    relay: Relay = Relay.SOURCE
    seed: int = 0
    local_repair: bool = True
    placement: Placement | None = None

    def relay_on(self, fabric: Fabric) -> Relay:
        """The relay that is in force on ``fabric``."""
        return self.relay if fabric.kind is FabricKind.RAIL_ONLY else Relay.DIRECT


RELAYS = tuple(relay.value for relay in Relay if relay is not Relay.DIRECT)
"""Names of the relays to choose from on a rail-only fabric."""


def relay_named(name: str) -> Relay:
    """The relay called ``name``: source, destination or balanced; raises PolicyError for any other text."""
    if name in RELAYS:
        return Relay(name)
    choices = f"{', '.join(RELAYS[:-1])} or {RELAYS[-1]}"
    raise PolicyError(f"unknown relay '{name}': the relay of cross-rail traffic is {choices}")
