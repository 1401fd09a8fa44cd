"""Slots: which healthy rule of a switch serves which destinations."""

from __future__ import annotations

from typing import NamedTuple

from controller.entries import (
    LEVEL_DEFAULT,
    LEVEL_DOMAIN,
    LEVEL_EXACT,
    LEVEL_HASHED,
    LEVEL_OWN_GPU,
    LEVEL_RAIL,
)
from controller.forwarding import LEAF_KINDS, Forwarding
from controller.policy import Relay
from controller.selectors import EVERY_GPU, Selector, domain_of, exact, rail_of, with_plane_bit, with_rail_bit
from topologies.model import FabricKind, Gpu, Switch, SwitchKind


class Slot(NamedTuple):
    """The healthy rule that serves a destination at a switch: its level (priority) and match."""

    level: int
    match: Selector


def slot_of(plan: Forwarding, switch: Switch, dst: Gpu) -> Slot:
    """Where the healthy rule for ``dst`` sits."""
    kind = switch.kind
    if kind is SwitchKind.GPU:
        return _slot_of_gpu_switch(plan, switch, dst)
    if kind is SwitchKind.NVSWITCH:
        return Slot(LEVEL_RAIL, rail_of(dst))
    if kind is SwitchKind.RAIL:
        return Slot(LEVEL_DOMAIN, domain_of(dst))
    if kind is SwitchKind.RAIL_LEAF and dst.domain in plan.domains_below(switch.id):
        return Slot(LEVEL_OWN_GPU, domain_of(dst))
    if kind is SwitchKind.LEAF and dst in plan.gpus_below(switch.id):
        return Slot(LEVEL_OWN_GPU, exact(dst))
    if kind in LEAF_KINDS or len(plan.healthy_ports(switch, dst)) > 1:
        return Slot(LEVEL_HASHED, EVERY_GPU)
    if kind is SwitchKind.SPINE and plan.fabric.kind is FabricKind.RAIL_OPTIMIZED:
        return Slot(LEVEL_RAIL, rail_of(dst)) if plan.one_leaf_per_rail else Slot(LEVEL_EXACT, exact(dst))
    return Slot(LEVEL_DOMAIN, domain_of(dst))


def _slot_of_gpu_switch(plan: Forwarding, switch: Switch, dst: Gpu) -> Slot:
    if dst.domain == switch.domain:
        return Slot(LEVEL_EXACT, exact(dst)) if dst.rail == switch.rail else Slot(LEVEL_DOMAIN, domain_of(dst))
    own_rail = dst.rail == switch.rail
    by_nic = own_rail or not plan.relays_at_source(switch.rail, dst.rail)
    if own_rail and plan.relay in (Relay.SOURCE, Relay.BALANCED):
        level, match = LEVEL_RAIL, rail_of(dst)
    else:
        level, match = LEVEL_DEFAULT, with_rail_bit(EVERY_GPU, dst.rail) if plan.relay is Relay.BALANCED else EVERY_GPU
    if by_nic and len(plan.nic_ports(switch.id)) > 1:
        match = with_plane_bit(match, dst)
    return Slot(level, match)
