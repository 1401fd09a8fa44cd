"""R6 and R7: what is left of the network when a rail switch or one of two uplinks is down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from controller.routing import Routes
from experiments.reference.row import Expected, Mark, Reference, ReferenceRow, Told, exactly
from experiments.reference.solve import duration_s, iteration_s
from simulator.routes import controller_router
from simulator.shares import fair_rates_mbps
from topologies.builders import build, preset_spec
from topologies.model import NO_FAILURES, Fabric, FabricKind, Failures, Gpu
from topologies.scale import Scale
from workloads.algorithms import ALL_REDUCE
from workloads.models import find_model
from workloads.schedule import Schedule, Tag, Transfer
from workloads.training import Plan, training_iteration

SWITCH = {FabricKind.RAIL_ONLY: "rail0", FabricKind.RAIL_OPTIMIZED: "leaf0"}
"""The switch that goes down: that of rail 0."""

MODEL = "gpt3-175b"
PLAN = Plan(tp=8, pp=8, dp=8, sequence_parallel=True)
SLOWER = {
    FabricKind.RAIL_ONLY: Expected(46.2, 46.2, Mark.SECONDARY, 0.05),
    FabricKind.RAIL_OPTIMIZED: Expected(46.9, 46.9, Mark.SECONDARY, 0.05),
}
"""By how much an iteration of GPT-3 on 4,096 GPUs is said to be slower, in percent."""

DOMAINS = 31
BUFFER_BYTES = 512 << 20


def rings_per_rail(fabric: Fabric, strides: Sequence[int], size_bytes: int) -> Schedule:
    """All-gather by rings on every rail at once: one ring for each stride, each with its part of the buffer.

    A ring of stride s goes from domain d to d+s; as the number of domains is prime it passes all of them.
    """
    rails, domains = fabric.spec.rails, fabric.spec.domains
    part = size_bytes // len(strides) * (domains - 1) // domains
    transfers = [
        Transfer(number, domain * rails + rail, (domain + stride) % domains * rails + rail, part, (),
                 Tag("all-gather", ALL_REDUCE, f"rail{rail} ring{ring}", 0))
        for number, (rail, (ring, stride), domain) in enumerate(
            (rail, ring, domain)
            for rail in range(rails) for ring in enumerate(strides) for domain in range(domains)
        )
    ]  # fmt: skip
    return Schedule("rings on every rail", ALL_REDUCE, "pipelined ring", len(fabric.gpus), domains, size_bytes,
                    "buffer of a rank", 0, tuple(transfers))  # fmt: skip


def switch_down_factor(fabric: Fabric, strides: Sequence[int]) -> float:
    """By what the rings take longer with the switch of rail 0 down."""
    schedule = rings_per_rail(fabric, strides, BUFFER_BYTES)
    down = sorted(link.id for link in fabric.links_of(SWITCH[fabric.kind]))
    return duration_s(fabric, schedule, down=down) / duration_s(fabric, schedule)


def spreading_strides(fabric: Fabric) -> tuple[int, ...]:
    """For each surviving rail a stride whose orphans from rail 0 all take that rail, from the controller's routes.

    With one ring for each of them the orphaned traffic is spread evenly, as a planner of connections would choose it.
    """
    domains, rails = fabric.spec.domains, fabric.spec.rails
    routes = Routes(fabric, Failures(nodes=frozenset({SWITCH[fabric.kind]})))
    stride_of: dict[int, int] = {}
    for stride in range(1, domains):
        taken = set()
        for domain in range(domains):
            path = routes.path(Gpu(domain, 0), Gpu((domain + stride) % domains, 0))
            assert path is not None, "NVLink leads to the other rails"
            taken.add(path.relays[0].rail)
        if len(taken) == 1:
            stride_of.setdefault(taken.pop(), stride)
    assert len(stride_of) == rails - 1, "every other rail takes some destinations"
    return tuple(stride_of[rail] for rail in sorted(stride_of))


def switch_down(told: Told) -> list[ReferenceRow]:
    """Factors by which the network time grows, with one flow a ring and with enough of them."""
    rows = []
    for kind in SWITCH:
        fabric = build(preset_spec("dgx-h100", kind, DOMAINS))
        rails = fabric.spec.rails
        told(f"switch of a rail down on {kind.value}")
        single = switch_down_factor(fabric, (1,))
        spread = switch_down_factor(fabric, spreading_strides(fabric))
        rows += [
            ReferenceRow("R6", f"{kind.value}, one flow a ring: network time x", "", single,
                         exactly(2.0, tolerance=1e-6),
                         "the orphaned flow shares one other rail: half the rate"),
            ReferenceRow("R6", f"{kind.value}, K-1 = {rails - 1} flows a ring: bandwidth lost", "%",
                         100 * (1 - 1 / spread), exactly(100 / rails, tolerance=1e-6),
                         "spread over the K-1 other rails: 1/K"),
        ]  # fmt: skip
    return rows


def iteration_with_switch_down(told: Told) -> list[ReferenceRow]:
    """How much longer an iteration of GPT-3 takes with the switch of rail 0 down throughout."""
    rows = []
    for kind, switch in SWITCH.items():
        for count, published in ((1, SLOWER[kind]), (4, None)):
            plan = replace(PLAN, micro_batches=count)
            told(f"iteration of {MODEL} with {switch} down, {count} micro-batches")
            fabric = build(preset_spec("dgx-h100", kind, plan.ranks // 8))
            made = training_iteration(find_model(MODEL), plan, ranks=plan.ranks, domain_size=8)
            down = sorted(link.id for link in fabric.links_of(switch))
            slower = 100 * (iteration_s(fabric, made, down=down) / iteration_s(fabric, made) - 1)
            case = f"{kind.value}, {MODEL} on {plan.ranks:,} GPUs, {count * plan.dp} sequences"
            note = (
                f"one flow a ring: gradients take twice as long, and they are {slower:.1f} % of the iteration here; "
                "46 % would need that share; the source's batch, rates and overlap are not known"
            )
            rows.append(ReferenceRow("R6", f"{case}: iteration longer by", "%", slower, published, note))
    return rows


def uplink_down(told: Told) -> list[ReferenceRow]:
    """What a host loses with one of its sixteen uplinks."""
    told("one uplink of a dual-homed NIC down")
    spec = replace(preset_spec("dgx-h100", FabricKind.RAIL_ONLY, 3), uplinks=2)
    fabric = build(spec)
    rails = spec.rails
    # Domain 0 sends on every rail to both others; the parity of the domains puts these two flows on different uplinks.
    pairs = [(rail, domain * rails + rail) for rail in range(rails) for domain in (1, 2)]
    link_id = next(link.id for link in fabric.links_of("s0r0") if link.id.startswith("d0r0-rail0"))
    router = controller_router(fabric)
    healthy, failed = (
        sum(fair_rates_mbps(fabric, router(failures), pairs, Scale(1, 1), goodput=1.0))
        for failures in (NO_FAILURES, Failures(links=frozenset({link_id})))
    )
    return [
        ReferenceRow("R7", f"{link_id} of {len(pairs)} uplinks of a host down: bandwidth lost", "%",
                     100 * (1 - failed / healthy), Expected(6.25, 6.25, Mark.PUBLISHED, 1e-6)),
        ReferenceRow("R7", "rate of the healthy host", "Gbit/s", healthy / 1000,
                     exactly(rails * spec.nic_rate_mbps / 1000, tolerance=1e-6)),
    ]  # fmt: skip


R6 = Reference(
    "R6",
    "With one rail switch down GPT-3 on 4,096 GPUs is 46.2 % slower on rail-only and 46.9 % on rail-optimized; spread "
    "evenly, 1/K of the bandwidth between domains is lost.",
    "Rings on every rail and whole iterations, healthy and with the switch of rail 0 down, on the controller's routes.",
    lambda told: switch_down(told) + iteration_with_switch_down(told),
)
R7 = Reference(
    "R7",
    "One of two uplinks of one of a host's 8 dual-homed NICs down costs 1/16 of its bandwidth.",
    "Max-min fair rates of 16 flows out of a host, each on an uplink of its own, on the controller's routes.",
    uplink_down,
)
