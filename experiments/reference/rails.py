"""R8: all-reduce on rails and on one top-of-rack switch a server, and what a flow-level model can't show of it."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

from experiments.reference.row import Expected, Mark, Reference, ReferenceRow, Told
from experiments.reference.solve import duration_s
from topologies.builders import build, preset_spec
from topologies.model import Fabric, FabricKind
from workloads.algorithms import ALL_REDUCE, RING, STEPWISE
from workloads.bandwidth import bandwidth
from workloads.collectives import all_ranks, collective, rail_aligned
from workloads.schedule import Schedule, Tag, Transfer

DOMAINS, RAILS = 32, 8
SIZES = {"16 MiB": (16 << 20, 33.1, 23.3), "64 MiB": (64 << 20, 42.0, 23.7), "512 MiB": (512 << 20, 45.7, 36.2)}
"""By name: bytes, and the published bus bandwidth in GB/s on rails and on top-of-rack switches."""

SEEDS = range(10)
MESSAGE_S = 1e-6
"""Assumed start-up time of one message, to show what it does; the source's is not stated."""


def one_ring_a_nic(fabric: Fabric, size_bytes: int) -> Schedule:
    """A ring all-reduce of ``size_bytes`` on each of K rings that leave every domain by different NICs.

    Ring c enters an even domain at rail c and leaves it at rail c-1, and runs the other way through odd ones.
    """
    ranks, rails, domains = len(fabric.gpus), fabric.spec.rails, fabric.spec.domains
    transfers: list[Transfer] = []
    before: tuple[int, ...] = ()
    sent = size_bytes * (ranks - 1) // ranks
    for phase, operation in enumerate(("reduce-scatter", "all-gather")):
        first = len(transfers)
        for ring in range(rails):
            order = [(ring + step) % rails for step in range(rails)]
            members = [
                domain * rails + rail
                for domain in range(domains)
                for rail in (order if domain % 2 == 0 else reversed(order))
            ]
            tag = Tag(operation, ALL_REDUCE, f"ring{ring}", phase)
            for place, src in enumerate(members):
                transfers.append(Transfer(len(transfers), src, members[(place + 1) % ranks], sent, before, tag))
        before = tuple(range(first, len(transfers)))
    return Schedule("one ring a NIC", ALL_REDUCE, "pipelined ring", ranks, ranks, size_bytes, "buffer of a ring",
                    0, tuple(transfers))  # fmt: skip


def stepwise_ring(fabric: Fabric, size_bytes: int) -> Schedule:
    """One ring all-reduce over all GPUs in its 2(n-1) steps."""
    groups = rail_aligned(fabric, all_ranks(fabric))
    return collective(ALL_REDUCE, groups, size_bytes, len(fabric.gpus), algorithm=RING, form=STEPWISE)


def busbw_gbytes(fabric: Fabric, schedule: Schedule, seed: int = 0, message_s: float = 0.0) -> float:
    """Bus bandwidth of an all-reduce in GB/s, as nccl-tests counts it."""
    taken_s = duration_s(fabric, schedule, seed=seed, message_s=message_s)
    return bandwidth(ALL_REDUCE, schedule.group_size, schedule.size_bytes, taken_s).busbw_gbps / 8


def all_reduce(told: Told) -> list[ReferenceRow]:
    """Bus bandwidth of both fabrics: rings at full size, hashed paths, and the start-up of messages."""
    base = preset_spec("dgx-h100", FabricKind.RAIL_OPTIMIZED, DOMAINS)
    on_rails, by_server = build(base), build(replace(base, kind=FabricKind.SPINE_LEAF))
    rows = []
    told("all-reduce on rails")
    rails_found = busbw_gbytes(on_rails, one_ring_a_nic(on_rails, SIZES["512 MiB"][0]))
    hashed = []
    for seed in SEEDS:
        told(f"all-reduce by server, seed {seed}")
        hashed.append(busbw_gbytes(by_server, one_ring_a_nic(by_server, SIZES["512 MiB"][0]), seed))
    for name, (size_bytes, on_rail, at_server) in SIZES.items():
        told(f"all-reduce of {name}, step by step")
        slow = busbw_gbytes(on_rails, stepwise_ring(on_rails, size_bytes), message_s=MESSAGE_S)
        rows += [
            ReferenceRow("R8", f"{name}, rails: rates alone", "GB/s", rails_found, _published(on_rail),
                         "the NIC's rate at every size: headers, start-up and rate control are not modelled"),
            ReferenceRow("R8", f"{name}, rails: with {MESSAGE_S * 1e6:g} us for each message", "GB/s", slow,
                         _published(on_rail), "2 x 255 steps of 1/256 of the buffer; the start-up time is assumed"),
            ReferenceRow("R8", f"{name}, switch a server: mean of {len(SEEDS)} hashes", "GB/s", mean(hashed),
                         _published(at_server), "a ring edge is one flow on one path here, so the worst collision of 8 "
                         "rings sets the pace; on how many paths the source spreads it is not stated"),
        ]  # fmt: skip
    rows.append(ReferenceRow("R8", "switch a server: best hash", "GB/s", max(hashed)))
    rows.append(ReferenceRow("R8", "switch a server: worst hash", "GB/s", min(hashed)))
    single = busbw_gbytes(by_server, stepwise_ring(by_server, SIZES["512 MiB"][0]))
    alone = "one flow out of each server never collides: the difference of the fabrics is collisions"
    rows.append(ReferenceRow("R8", "switch a server: one ring in all", "GB/s", single, None, alone))
    return rows


def _published(value: float) -> Expected:
    return Expected(value, value, Mark.PUBLISHED, 0.05)


R8 = Reference(
    "R8",
    "All-reduce among 256 GPUs is faster on rails than on one top-of-rack switch a server: 33.1 / 23.3, 42.0 / 23.7 "
    "and 45.7 / 36.2 GB/s of bus bandwidth at 16, 64 and 512 MiB.",
    "Rings on both fabrics on the simulator, ten path hashes; a ring step by step with a start-up time of messages.",
    all_reduce,
)
