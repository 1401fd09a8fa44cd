"""R3: what relaying costs an all-to-all on rail-only, from the schedules run on the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from experiments.reference.row import Expected, Mark, Reference, ReferenceRow, Told, exactly
from experiments.reference.solve import duration_s
from simulator.closed_forms import forwarding_overhead
from topologies.builders import build, preset_spec
from topologies.model import Fabric, FabricKind, FabricSpec
from workloads.algorithms import ALL_TO_ALL, DIRECT, TWO_PHASE, Flow, uneven_flows
from workloads.schedule import Schedule, Tag, Transfer

PRESETS = {"A100": "dgx-a100", "H100": "dgx-h100"}
DOMAIN_SIZES = (8, 16, 32, 64, 128, 256)
BLOCK_BYTES = 1 << 20
"""Bytes from each GPU to each GPU of another domain."""

RANGE = Expected(8.2, 11.2, Mark.PUBLISHED, 0.05)
OLD_RANGE = Expected(4.1, 5.6, Mark.PUBLISHED, 0.05)
"""That of version 4 of the paper."""


def cross_domain_flows(fabric: Fabric, algorithm: str) -> list[list[Flow]]:
    """The flows of an all-to-all between domains, as stages that follow one another; those of a stage start together.

    Every GPU sends a block to every GPU of the other domains, and nothing to its own domain: that part is the same on
    every fabric. A stage is all of the algorithm's flows of the same name (``shuffle in the domain``).
    """
    ranks, rails = len(fabric.gpus), fabric.spec.rails
    splits = tuple(
        tuple(0 if src // rails == dst // rails else BLOCK_BYTES for dst in range(ranks)) for src in range(ranks)
    )
    made = uneven_flows(splits, algorithm, rails).flows
    return [list(stage) for _, stage in groupby(made, key=lambda flow: flow.operation)]


def in_stages(name: str, stages: Sequence[Sequence[Flow]], ranks: int) -> Schedule:
    """One schedule with a barrier between stages."""
    transfers: list[Transfer] = []
    before: tuple[int, ...] = ()
    for number, stage in enumerate(stages):
        first = len(transfers)
        tag = Tag(stage[0].operation, ALL_TO_ALL, "all", number)
        transfers += [
            Transfer(first + place, flow.src, flow.dst, flow.size_bytes, before, tag)
            for place, flow in enumerate(stage)
        ]
        before = tuple(range(first, len(transfers)))
    size_bytes = BLOCK_BYTES * ranks
    return Schedule(name, ALL_TO_ALL, "all at once", ranks, ranks, size_bytes, "send buffer of a rank", 0,
                    tuple(transfers))  # fmt: skip


def between_domains_s(fabric: Fabric, stages: Sequence[Sequence[Flow]]) -> float:
    """Completion time on the real machine, in seconds."""
    return duration_s(fabric, in_stages("all-to-all between domains", stages, len(fabric.gpus)))


def any_to_any(spec: FabricSpec) -> Fabric:
    """All NICs on one switch: a rail-optimized fabric on which no two paths ever meet in the spines."""
    return build(replace(spec, kind=FabricKind.SPINE_LEAF, domains_per_leaf=spec.domains))


def overheads(preset: str, rails: int) -> tuple[float, float]:
    """Shares by which rail-only lengthens the all-to-all: phases one after the other, and relayed in one go."""
    spec = preset_spec(preset, FabricKind.RAIL_ONLY, max(2, 64 // rails), rails)
    rail_only = build(spec)
    direct = cross_domain_flows(rail_only, DIRECT)
    baseline_s = between_domains_s(any_to_any(spec), direct)
    serial_s = between_domains_s(rail_only, cross_domain_flows(rail_only, TWO_PHASE))
    overlapped_s = between_domains_s(rail_only, direct)
    return serial_s / baseline_s - 1, overlapped_s / baseline_s - 1


def all_to_all(told: Told) -> list[ReferenceRow]:
    """Overheads by machine and domain size."""
    rows = []
    for machine, preset in PRESETS.items():
        for rails in DOMAIN_SIZES:
            told(f"all-to-all on {machine}, K = {rails}")
            serial, overlapped = overheads(preset, rails)
            rows += _rows(machine, preset, rails, 100 * serial, 100 * overlapped)
    return rows


def _rows(machine: str, preset: str, rails: int, serial: float, overlapped: float) -> list[ReferenceRow]:
    spec = preset_spec(preset, FabricKind.RAIL_ONLY, 2, rails)
    formula = 100 * forwarding_overhead(rails, spec.nic_rate_mbps, spec.nvlink_rate_mbps)
    case = f"{machine}, K = {rails}"
    in_phases, at_once = "shuffle, then rails", "relayed as it goes"
    rows = [
        ReferenceRow("R3", f"{case}: {in_phases}", "%", serial, exactly(formula, tolerance=1e-6),
                     "the formula (K-1)/K C_S/C_F", f"{machine}, {in_phases}", rails),
        ReferenceRow("R3", f"{case}: {at_once}", "%", abs(overlapped), exactly(0.0, tolerance=1e-6),
                     "NVLink is faster than the NIC, so a relay that does not wait costs nothing",
                     f"{machine}, {at_once}", rails),
    ]  # fmt: skip
    if rails == max(DOMAIN_SIZES):
        rows.append(ReferenceRow("R3", f"{case}: against the published range", "%", serial, RANGE))
        both = f"{case}: the same, NVLink counted in both directions"
        rows.append(
            ReferenceRow("R3", both, "%", serial / 2, OLD_RANGE, "half: the data sheets' NVLink rates are sums")
        )
    elif not RANGE.low <= serial <= RANGE.high and rails == min(DOMAIN_SIZES):
        note = f"(K-1)/K is {(rails - 1) / rails:.3f} with K = {rails}; the paper's domains have 256 GPUs"
        rows.append(ReferenceRow("R3", f"{case}: against the published range", "%", serial, RANGE, note))
    return rows


R3 = Reference(
    "R3",
    "An all-to-all takes 8.2 % to 11.2 % longer on rail-only (version 4 of the paper: 4.1 % to 5.6 %).",
    "The all-to-all between domains on rail-only and on one switch for all NICs, both on the simulator: relayed in two "
    "phases by the GPUs, and relayed by the switches as it goes.",
    all_to_all,
    ("All-to-all through relays on rail-only", "GPUs of a domain, K", "longer than on any-to-any by (%)"),
    {"published": (RANGE.low, RANGE.high), "published, version 4": (OLD_RANGE.low, OLD_RANGE.high)},
)
