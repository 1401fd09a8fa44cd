"""C7 to C11 and rail-only: what traffic planning is worth beside hashing, on the simulator at the papers' sizes.

All jobs are rings that leave every domain by every rail's NIC; a ring's edge from one domain to the next is one demand
of several channels. The hops inside a domain are left out: NVLink is nine times as fast and not shared between jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean

from controller.planning.optimum import least_busiest_s
from controller.planning.planner import followed, hashed, planned, replanned
from controller.planning.traffic import Demand, Plan
from controller.policy import RoutingPolicy
from experiments.reference.row import Expected, Mark, Reference, ReferenceRow, Told, exactly
from simulator.rounds import levelled_by_measuring, round_times_s
from topologies.builders import build
from topologies.model import NO_FAILURES, Fabric, FabricKind, FabricSpec, Failures, Gpu

EDGE_BYTES = 1e9
"""Bytes of a ring's edge in one round; shares of the ideal do not depend on it."""

CHANNELS = 8
SEEDS = range(10)
FLOW_SEEDS = range(300)
"""Hash seeds for one flow a job, whose mean is compared with a formula."""

ONE_NIC = FabricSpec(FabricKind.SPINE_LEAF, 16, 1, spines=8, domains_per_leaf=8)
"""Eight domains of one GPU at each of two leaves with eight uplinks: the case of the arithmetic."""

BY_SERVER = replace(ONE_NIC, rails=8, parallel_links=8)
"""128 GPUs: eight servers of eight NICs at each of two leaves, eight uplinks to each of eight spines, 1:1."""

POLICY = RoutingPolicy()
"""Plans are made with the seed of this policy."""


@dataclass(frozen=True)
class Shares:
    """Bus bandwidth as a share of the ideal, in which every NIC sends at its full rate."""

    jobs: tuple[float, ...]

    @property
    def slowest(self) -> float:
        """That of the slowest job."""
        return min(self.jobs)

    @property
    def mean(self) -> float:
        """The mean over the jobs."""
        return mean(self.jobs)


def rings(name: str, fabric: Fabric, domains: Sequence[int], size_bytes: float, channels: int) -> list[Demand]:
    """The edges of a job's rings, one ring a rail, through ``domains`` in that order and back to the first."""
    return [
        Demand(name, Gpu(domain, rail), Gpu(domains[(place + 1) % len(domains)], rail), size_bytes, channels)
        for rail in range(fabric.spec.rails)
        for place, domain in enumerate(domains)
    ]


def eight_jobs(fabric: Fabric, channels: int = CHANNELS) -> list[Demand]:
    """Eight jobs of two domains each, one at either leaf, so that every edge crosses a spine."""
    return [demand for job in range(8) for demand in rings(f"job{job}", fabric, (job, 8 + job), EDGE_BYTES, channels)]


def one_flow_a_job(fabric: Fabric) -> list[Demand]:
    """Eight jobs of one flow each, all from the first leaf to the second."""
    return [Demand(f"job{job}", Gpu(job, 0), Gpu(8 + job, 0), EDGE_BYTES, 1) for job in range(8)]


def shares(fabric: Fabric, plan: Plan) -> Shares:
    """Bus bandwidth of every job of equal edges, as a share of the ideal."""
    ideal_s = _ideal_s(fabric, plan)
    return Shares(tuple(ideal_s / taken for taken in round_times_s(fabric, plan).values()))


def _ideal_s(fabric: Fabric, plan: Plan) -> float:
    return plan.demands[0].size_bytes * 8e-6 / fabric.spec.nic_rate_mbps


def hashed_shares(fabric: Fabric, demands: Sequence[Demand], seeds: range = SEEDS) -> list[Shares]:
    """The shares that hashing gives, by seed."""
    return [shares(fabric, hashed(fabric, demands, RoutingPolicy(seed=seed))) for seed in seeds]


def _of_optimum(
    name: str, fabric: Fabric, plan: Plan, failures: Failures = NO_FAILURES, case: str = ""
) -> ReferenceRow:
    best_s = least_busiest_s(fabric, plan.demands, POLICY, failures)
    return ReferenceRow(
        name, f"{case}planned, busiest link: share of the optimum of a linear program", "",
        best_s / plan.busiest_s(fabric), Expected(0.98, 1.0, Mark.DERIVED), "a target, not a published number",
    )  # fmt: skip


def concurrent_jobs(told: Told) -> list[ReferenceRow]:
    """C7: eight jobs at 1:1, one flow a job and eight channels an edge."""
    told("one flow a job")
    small, whole = build(ONE_NIC), build(BY_SERVER)
    flows = hashed_shares(small, one_flow_a_job(small), FLOW_SEEDS)
    noise = f"mean of {len(FLOW_SEEDS)} hashes; the tolerance is about three standard errors"
    told("eight jobs of 16 GPUs, hashed")
    demands = eight_jobs(whole)
    found = hashed_shares(whole, demands)
    told("eight jobs of 16 GPUs, planned")
    plan = planned(whole, demands, POLICY)
    good = shares(whole, plan)
    band = Expected(0.48, 0.73, Mark.UNCHECKED, 0.005)
    return [
        ReferenceRow("C7", "one flow a job, hashed: slowest job", "", mean(one.slowest for one in flows),
                     exactly(0.41, Mark.DERIVED, 0.018), noise),
        ReferenceRow("C7", "one flow a job, hashed: mean job", "", mean(one.mean for one in flows),
                     exactly(0.656, Mark.DERIVED, 0.018), noise),
        ReferenceRow("C7", "one flow a job, planned: slowest job", "",
                     shares(small, planned(small, one_flow_a_job(small), POLICY)).slowest, exactly(1.0)),
        ReferenceRow("C7", f"hashed: slowest job, mean of {len(SEEDS)} hashes", "",
                     mean(one.slowest for one in found), band, _EIGHT),
        ReferenceRow("C7", f"hashed: fastest job, mean of {len(SEEDS)} hashes", "",
                     mean(max(one.jobs) for one in found), band, _EIGHT),
        ReferenceRow("C7", "planned: slowest job", "", good.slowest, Expected(0.98, 1.0, Mark.UNCHECKED, 0.005)),
        _of_optimum("C7", whole, plan),
    ]  # fmt: skip


_EIGHT = (
    "8 channels an edge and 64 edges a direction; a job is as slow as its slowest channel. How many connections the "
    "source's jobs had is not stated"
)


def replanning(told: Told) -> list[ReferenceRow]:
    """C8: one of eight uplinks down, the plan kept, made anew without and with re-weighting."""
    rows = []
    for name, spec in (("8 NICs a server", BY_SERVER), ("1 NIC a server", ONE_NIC)):
        told(f"one of eight uplinks down, {name}")
        fabric = build(spec)
        down = frozenset(
            link.id for link in fabric.links if link.id.startswith("leaf0-") and link.other("leaf0") == "spine0"
        )
        failures = Failures(links=down)
        before = planned(fabric, eight_jobs(fabric), POLICY)
        static = shares(fabric, followed(fabric, before.demands, before.placement, POLICY, failures, before.bytes_of))
        equal = replanned(before, fabric, POLICY, failures, reweight=False)
        evenly = shares(fabric, equal)
        told(f"one of eight uplinks down, {name}, bytes by measuring")
        measured = shares(fabric, levelled_by_measuring(fabric, equal))
        after = replanned(before, fabric, POLICY, failures)
        dynamic = shares(fabric, after)
        hash_only = mean(
            shares(fabric, hashed(fabric, before.demands, RoutingPolicy(seed=seed), failures)).mean for seed in SEEDS
        )
        rows += [
            ReferenceRow("C8", f"{name}: hashed, mean job", "", hash_only),
            ReferenceRow("C8", f"{name}: static plan, mean job", "", static.mean, exactly(0.52, Mark.UNCHECKED, 0.005),
                         "only the dead link's channels are hashed anew here; what the source's switches do is not "
                         "stated"),
            ReferenceRow("C8", f"{name}: static plan, slowest job", "", static.slowest),
            ReferenceRow("C8", f"{name}: re-planned, equal bytes a channel, mean job", "", evenly.mean),
            ReferenceRow("C8", f"{name}: re-planned, bytes by measuring, mean job", "", measured.mean,
                         Expected(0.84, 0.875, Mark.UNCHECKED, 0.005), "the bound is 0.875"),
            ReferenceRow("C8", f"{name}: re-planned, bytes by measuring, slowest job", "", measured.slowest,
                         Expected(0.84, 0.875, Mark.UNCHECKED, 0.005), "the bound is 0.875"),
            ReferenceRow("C8", f"{name}: re-planned and re-weighted, mean job", "", dynamic.mean, None, _STEP),
            ReferenceRow("C8", f"{name}: re-planned and re-weighted, slowest job", "", dynamic.slowest, None, _STEP),
            ReferenceRow("C8", f"{name}: re-planned and re-weighted, busiest link", "", _ideal_s(fabric, after) /
                         after.busiest_s(fabric), exactly(0.875, tolerance=0.875 * 0.02), "target: 0.98 of the bound"),
            _of_optimum("C8", fabric, after, failures, f"{name}: "),
        ]  # fmt: skip
    fabric = build(ONE_NIC)
    single = shares(fabric, planned(fabric, one_flow_a_job(fabric), POLICY, Failures(frozenset({"leaf0-spine0"}))))
    return [
        *rows,
        ReferenceRow("C8", "one flow a job, planned: mean job", "", single.mean, exactly(0.875)),
        ReferenceRow("C8", "one flow a job, planned: slowest job", "", single.slowest, exactly(0.5)),
    ]


_STEP = (
    "bytes as the planner sees them, nothing measured: a link is shared evenly among flows, not among bytes, so a "
    "channel with more bytes than those beside it ends late; only the busiest link is at the bound"
)


def oversubscribed(told: Told) -> list[ReferenceRow]:
    """C9: the same eight jobs at 2:1."""
    told("eight jobs at 2:1")
    rows = []
    for name, spec in (
        ("uplinks of half the rate", replace(BY_SERVER, oversubscription=2.0)),
        ("half as many uplinks", replace(BY_SERVER, oversubscription=2.0, parallel_links=4)),
    ):
        fabric = build(spec)
        demands = eight_jobs(fabric)
        plan = planned(fabric, demands, POLICY)
        good, found = shares(fabric, plan), hashed_shares(fabric, demands)
        gain = 100 * (good.mean / mean(one.mean for one in found) - 1)
        rows += [
            ReferenceRow("C9", f"{name}: planned, slowest job", "", good.slowest, exactly(0.5, tolerance=0.01)),
            ReferenceRow("C9", f"{name}: planned over hashed, mean job", "%", gain, exactly(65, Mark.UNCHECKED, 0.5),
                         f"mean of {len(SEEDS)} hashes, {CHANNELS} channels an edge; it depends on how many channels "
                         "collide on how many uplinks"),
            _of_optimum("C9", fabric, plan, NO_FAILURES, f"{name}: "),
        ]  # fmt: skip
    return rows


def large_fabric(uplinks: int) -> FabricSpec:
    """512 GPUs in 64 servers of eight NICs, with so many uplinks each, at four leaves (or pairs of them), 1:1."""
    return FabricSpec(FabricKind.SPINE_LEAF, 64, 8, spines=64, domains_per_leaf=16, uplinks=uplinks)


def four_jobs(fabric: Fabric, across: bool, channels: int = 4) -> list[Demand]:
    """Four jobs of 16 servers, four at each of four leaves, in the order of the leaves or (``across``) across them."""
    demands = []
    for job in range(4):
        places = [(leaf, number) for leaf in range(4) for number in range(4)]
        places.sort(key=(lambda place: place[::-1]) if across else None)
        servers = [16 * leaf + 4 * job + number for leaf, number in places]
        demands += rings(f"job{job}", fabric, servers, EDGE_BYTES, channels)
    return demands


def large(told: Told) -> list[ReferenceRow]:
    """C10: four all-reduces on 512 GPUs with dual-homed NICs."""
    rows = []
    for case, uplinks, across in (
        ("servers by leaf", 2, False), ("servers by leaf, single-homed", 1, False), ("servers across leaves", 2, True)
    ):  # fmt: skip
        fabric = build(large_fabric(uplinks))
        demands = four_jobs(fabric, across)
        told(f"four all-reduces on 512 GPUs, {case}")
        good = shares(fabric, planned(fabric, demands, POLICY)).mean
        found = [one.mean for one in hashed_shares(fabric, demands, range(5))]
        most, middle = 100 * (good / min(found) - 1), 100 * (good / mean(found) - 1)
        published = None if across else exactly(34.7, Mark.PUBLISHED, 0.05)
        rows += [
            ReferenceRow("C10", f"{case}: planned, mean job", "", good, Expected(0.98, 1.0, Mark.DERIVED), "a target"),
            ReferenceRow("C10", f"{case}: planned over hashed, worst of 5 hashes", "%", most, published, _ORDERS),
            ReferenceRow("C10", f"{case}: planned over hashed, mean of 5 hashes", "%", middle),
        ]  # fmt: skip
    fabric = build(large_fabric(2))
    for channels in MORE_CHANNELS:
        told(f"four all-reduces on 512 GPUs, {channels} channels an edge")
        found = [one.mean for one in hashed_shares(fabric, four_jobs(fabric, False, channels), range(2))]
        label = f"servers by leaf, {channels} channels an edge: ideal over hashed, mean of 2 hashes"
        rows.append(ReferenceRow("C10", label, "%", 100 * (1 / mean(found) - 1)))
    return rows


MORE_CHANNELS = (8, 16, 64)
"""Connections of a ring's edge in C10, beside 4: the fewer, the worse is the unluckiest of a job's edges."""

_ORDERS = (
    "4 channels an edge; by leaf a quarter of the rings' edges cross a spine, across leaves all do; hashed channels "
    "collide on the two ports of a NIC too, and the unluckiest edge counts. The source states neither the order nor "
    "the number of connections, on which it depends most: see below"
)


@dataclass(frozen=True)
class TrainingJob:
    """A job of C11 on 128 GPUs. ``edge_bytes`` cross every NIC in an iteration; ``gain`` is recalled, in percent."""

    name: str
    compute_s: float
    edge_bytes: float
    gain: float
    inputs: str


FLOPS = 200e12
"""Assumed: what a GPU computes a second while it does not wait for the network."""


def training_jobs() -> tuple[TrainingJob, ...]:
    """The three jobs, from assumed batches: the sources state none."""
    tokens, gpus = 2048, 128
    compute_22b = 6 * 22e9 * tokens * 128 / gpus / FLOPS
    compute_7b = 6 * 7e9 * 2 * tokens * 128 / gpus / FLOPS
    compute_175b = 6 * 175e9 * tokens * 16 * 4 / gpus / FLOPS
    return (
        TrainingJob("GPT-22B, TP8 DP16", compute_22b, 2 * 15 / 16 * 22e9 * 2 / 8, 15.96,
                    "128 sequences of 2,048 tokens an iteration"),
        TrainingJob("Llama-7B, ZeRO", compute_7b, 3 * 127 / 128 * 7e9 * 2 / 8, 14.09,
                    "128 sequences of 4,096 tokens; two gathers and one reduction of all parameters"),
        TrainingJob("GPT-175B, 16 accumulations", compute_175b, 175e9 * 2 / 64, 0.0,
                    "TP8 PP8 DP2, 16 micro-batches of 2 sequences of 2,048 tokens for each of 2 replicas"),
    )  # fmt: skip


def moderate_communication(told: Told) -> list[ReferenceRow]:
    """C11: the gain depends on the share of communication."""
    fabric = build(BY_SERVER)
    order = [place // 2 + 8 * (place % 2) for place in range(16)]
    rows = []
    for job in training_jobs():
        told(job.name)
        demands = rings(job.name, fabric, order, job.edge_bytes, CHANNELS)
        compute_s = {job.name: job.compute_s}
        good_s = round_times_s(fabric, planned(fabric, demands, POLICY), compute_s, rounds=2)[job.name]
        hashed_s = [
            round_times_s(fabric, hashed(fabric, demands, RoutingPolicy(seed=seed)), compute_s, rounds=2)[job.name]
            for seed in SEEDS
        ]
        share = 100 * (1 - job.compute_s / mean(hashed_s))
        assumed = f"assumed: {job.inputs}; {FLOPS / 1e12:g} TFLOP/s a GPU; nothing of the communication is overlapped"
        rows += [
            ReferenceRow("C11", f"{job.name}: share of communication, hashed", "%", share),
            ReferenceRow("C11", f"{job.name}: more iterations, planned over hashed", "%",
                         100 * (mean(hashed_s) / good_s - 1), exactly(job.gain, Mark.UNCHECKED, 0.5), assumed),
        ]  # fmt: skip
    return rows


def rail_only(told: Told) -> list[ReferenceRow]:
    """What rail-only avoids by construction, and what planning adds: healthy, a NIC link down, a rail switch down."""
    rows = []
    cases = {
        FabricKind.SPINE_LEAF: (BY_SERVER, "d0r0-leaf0", None),
        FabricKind.RAIL_OPTIMIZED: (FabricSpec(FabricKind.RAIL_OPTIMIZED, 16, 8, domains_per_leaf=8, spines=8),
                                    "d0r0-leaf0", "leaf0"),
        FabricKind.RAIL_ONLY: (FabricSpec(FabricKind.RAIL_ONLY, 16, 8), "d0r0-rail0", "rail0"),
    }  # fmt: skip
    for kind, (spec, nic, switch) in cases.items():
        fabric = build(spec)
        demands = eight_jobs(fabric)
        broken = {"healthy": NO_FAILURES, "a NIC link down": Failures(links=frozenset({nic}))}
        if switch is not None:
            broken["a rail switch down"] = Failures(nodes=frozenset({switch}))
        for state, failures in broken.items():
            told(f"{kind.value}, {state}")
            unplanned = [shares(fabric, hashed(fabric, demands, RoutingPolicy(seed=seed), failures)) for seed in SEEDS]
            good = shares(fabric, planned(fabric, demands, POLICY, failures))
            before, after = _RAIL_ONLY_EXPECTED[state] if kind is FabricKind.RAIL_ONLY else (None, None)
            rows += [
                ReferenceRow("RP", f"{kind.value}, {state}: unplanned, slowest job", "",
                             mean(one.slowest for one in unplanned), before),
                ReferenceRow("RP", f"{kind.value}, {state}: planned, slowest job", "", good.slowest, after),
            ]  # fmt: skip
    return rows


_RAIL_ONLY_EXPECTED = {
    "healthy": (exactly(1.0), exactly(1.0)),
    "a NIC link down": (None, exactly(7 / 8, tolerance=0.01)),
    "a rail switch down": (None, exactly(7 / 8, tolerance=0.01)),
}
"""Unplanned and planned. Planned, seven NICs carry the bytes of eight."""


C7 = Reference(
    "C7",
    "Eight concurrent all-reduce jobs on a 1:1 spine-leaf fabric reach 0.48 to 0.73 of the ideal bus bandwidth with "
    "hashing and at least 0.98 planned.",
    "16 servers at two leaves, eight uplinks to each of eight spines; every job has a server at each leaf.",
    concurrent_jobs,
)
C8 = Reference(
    "C8",
    "With one of eight uplinks down a static plan gives 0.52, a re-planned one 0.84 of the ideal; the bound is 0.875.",
    "The fabric of C7 without the links between a leaf and a spine; channels are moved and their bytes re-weighted.",
    replanning,
)
C9 = Reference(
    "C9",
    "At 2:1 oversubscription eight planned jobs are 65 % faster than hashed ones.",
    "The fabric of C7 with half of its capacity to the spines.",
    oversubscribed,
)
C10 = Reference(
    "C10",
    "Four all-reduces on 512 GPUs are up to 34.7 % faster on disjoint, least loaded paths.",
    "64 servers with dual-homed NICs at four pairs of leaves, 64 uplinks a leaf, 1:1.",
    large,
)
C11 = Reference(
    "C11",
    "Planning speeds up jobs with a moderate share of communication (GPT-22B 16 %, Llama-7B 14 %), and not a GPT-175B "
    "that accumulates gradients.",
    "One job at a time on 128 GPUs, rings through all servers in an order in which every edge crosses a spine.",
    moderate_communication,
)
RP = Reference(
    "RP",
    "Rail-only has no spines to collide on; planning adds nothing to it while it is whole, and spreads the orphaned "
    "traffic over all surviving rails when it is not.",
    "The jobs of C7 on three fabrics of 128 GPUs. On the two with rails they keep to their rails.",
    rail_only,
)
