"""Seeded injections: what goes wrong, where and when, under which traffic. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from controller.diagnosis.verdict import Syndrome
from topologies.model import Fabric, FabricKind, LinkKind, SwitchKind
from workloads.collectives import collective_on
from workloads.failures import DIRECTIONS, FailureKind, LinkFailure
from workloads.jobs import at_once
from workloads.patterns import RANDOM_PAIRS, pattern_on
from workloads.repeated import RankFault, RankFaultKind, posted_together, repeated
from workloads.schedule import Schedule


class Traffic(str, Enum):
    """TOGETHER: all-to-all with all messages posted at once. IN_TURN: one message of a rank after the other. RINGS: an
    all-reduce on every rail."""

    TOGETHER = "all-to-all, posted together"
    IN_TURN = "all-to-all, in turn"
    RINGS = "rings"


@dataclass(frozen=True)
class Setting:
    """A fabric kind, the traffic on it, and whether other jobs load the fabric too."""

    kind: FabricKind
    traffic: Traffic
    background: bool


@dataclass(frozen=True)
class Truth:
    """What a diagnosis should say: the syndrome and the id of the component."""

    syndrome: Syndrome
    component: str


class LinkFault(NamedTuple):
    """A link that fails; ``share`` is what a degraded one keeps of its rate."""

    link_id: str
    kind: FailureKind
    direction: str
    share: float


@dataclass(frozen=True)
class Injection:
    """What goes wrong in one run, at the iteration ``at_iteration`` (and a part of it, for links)."""

    number: int
    what: str
    setting: Setting
    at_iteration: float
    links: tuple[LinkFault, ...]
    ranks: tuple[RankFault, ...]
    truths: tuple[Truth, ...]

    def failures(self, iteration_s: float) -> tuple[LinkFailure, ...]:
        """The failures of links in a run whose healthy iterations last ``iteration_s`` emulated seconds."""
        at_s = self.at_iteration * iteration_s
        return tuple(
            LinkFailure(one.link_id, at_s, None, one.kind, one.direction, 1.0 if one.kind is BLACKHOLE else one.share)
            for one in self.links
        )


ITERATIONS = 9
COMPUTING_S = 0.0004
"""Seconds of the real machine that a rank computes before each collective; 0.4 emulated ones at the default scales."""

SIZES = {Traffic.TOGETHER: 36_000_000, Traffic.IN_TURN: 36_000_000, Traffic.RINGS: 36_000_000}
"""Bytes of the collective: about a second and a half at the default scale of 16 GPUs."""

BACKGROUND_BYTES, BACKGROUND_ROUNDS = 12_000_000, 12
"""Of the other jobs: bytes of a transfer, and how often each pair makes one."""

EARLIEST, LATEST = 2.2, 4.2
"""Iterations after which links go wrong: the diagnosis has seen some that were whole."""

RANK_ITERATIONS = (2, 4)
"""First and last iteration in which a rank may go wrong."""


def schedule_of(
    fabric: Fabric, setting: Setting, faults: Sequence[RankFault] = (), seed: int = 0, iterations: int = ITERATIONS
) -> Schedule:
    """The traffic of a setting: the collective again and again, beside pairs of other jobs where there are any."""
    collective, group = ("all-reduce", "rails") if setting.traffic is Traffic.RINGS else ("all-to-all", "all")
    form = "stepwise" if setting.traffic is Traffic.IN_TURN else "bulk"
    one = collective_on(fabric, collective, group, SIZES[setting.traffic], form=form, name=setting.traffic.value)
    if setting.traffic is Traffic.TOGETHER:
        one = posted_together(one)
    job = repeated(one, iterations, COMPUTING_S, faults)
    if not setting.background:
        return job
    pairs = pattern_on(fabric, RANDOM_PAIRS, BACKGROUND_BYTES, flows=len(fabric.gpus) // 2, seed=seed)
    rounds = BACKGROUND_ROUNDS * iterations // ITERATIONS
    return at_once([job, repeated(pairs, rounds, 0.0)], f"{job.name}, beside other jobs")


NIC, NVLINK, FABRIC = LinkKind.NIC, LinkKind.NVLINK, LinkKind.FABRIC
DEGRADE, BLACKHOLE = FailureKind.DEGRADE, FailureKind.BLACKHOLE

LINK_FAULTS = {
    "degraded NIC": (NIC, DEGRADE),
    "silent NIC": (NIC, BLACKHOLE),
    "degraded NVLink": (NVLINK, DEGRADE),
    "silent NVLink": (NVLINK, BLACKHOLE),
    "degraded leaf-spine link": (FABRIC, DEGRADE),
    "silent leaf-spine link": (FABRIC, BLACKHOLE),
}
RANK_FAULTS = {
    "absent rank": (RankFaultKind.ABSENT, Syndrome.NON_COMMUNICATION_HANG),
    "stopped rank": (RankFaultKind.STOPS, Syndrome.NON_COMMUNICATION_HANG),
    "slow rank": (RankFaultKind.SLOW, Syndrome.NON_COMMUNICATION_SLOW),
}
SWITCH, TWO, IN_RINGS = "degraded switch", "degraded NIC and slow rank", "degraded NIC, rings alone"

WHATS = (*LINK_FAULTS, *RANK_FAULTS, SWITCH, TWO, IN_RINGS)
"""All kinds of injections, in the order in which they take turns."""

_SYNDROMES = {DEGRADE: Syndrome.COMMUNICATION_SLOW, BLACKHOLE: Syndrome.COMMUNICATION_HANG}
_KINDS = (FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED, FabricKind.SPINE_LEAF)


def injections(
    fabrics: Mapping[FabricKind, Fabric],
    count: int,
    seed: int = 0,
    whats: Sequence[str] = WHATS,
    traffics: Sequence[Traffic] = (Traffic.TOGETHER, Traffic.IN_TURN),
) -> Iterator[Injection]:
    """``count`` injections on ``fabrics``, the same for the same seed: ``whats`` in turn, place and time drawn.

    Their traffic is drawn from ``traffics``, but for those that are about rings.
    """
    for number in range(count):
        rng = random.Random(f"injection/{seed}/{number}")
        yield _injection(number, whats[number % len(whats)], fabrics, rng, traffics)


def _injection(
    number: int, what: str, fabrics: Mapping[FabricKind, Fabric], rng: random.Random, traffics: Sequence[Traffic]
) -> Injection:
    link_kind, failure = LINK_FAULTS.get(what, (NIC, DEGRADE))
    kinds = [kind for kind in _KINDS if kind in fabrics and (link_kind is not FABRIC or kind is not _KINDS[0])]
    if what == SWITCH:
        kinds = [kind for kind in kinds if kind is not FabricKind.SPINE_LEAF]
    kind = rng.choice(kinds)
    fabric = fabrics[kind]
    traffic = Traffic.RINGS if what == IN_RINGS else rng.choice(traffics)
    setting = Setting(kind, traffic, rng.random() < 0.5)
    iteration = rng.randint(*RANK_ITERATIONS)
    at_iteration = rng.uniform(EARLIEST, LATEST)
    ranks: tuple[RankFault, ...] = ()
    links: tuple[LinkFault, ...] = ()
    truths: list[Truth] = []
    if what in RANK_FAULTS or what == TWO:
        fault, syndrome = RANK_FAULTS.get(what, RANK_FAULTS["slow rank"])
        rank = rng.randrange(len(fabric.gpus))
        ranks = (RankFault(rank, fault, iteration, rng.uniform(3.0, 6.0)),)
        truths.append(Truth(syndrome, fabric.gpu_of_rank(rank).id))
    if what == SWITCH:
        switch = rng.choice([one.id for one in fabric.switches if one.kind in (SwitchKind.RAIL, SwitchKind.LEAF)])
        share = rng.uniform(0.15, 0.3)
        links = tuple(LinkFault(one.id, DEGRADE, "both", share) for one in fabric.links_of(switch))
        truths.append(Truth(Syndrome.COMMUNICATION_SLOW, switch))
    elif what not in RANK_FAULTS:
        link_id = rng.choice([one.id for one in fabric.links if one.kind is link_kind])
        direction = rng.choice(DIRECTIONS) if failure is BLACKHOLE else "both"
        links = (LinkFault(link_id, failure, direction, _share(rng, link_kind, fabric)),)
        truths.append(Truth(_SYNDROMES[failure], link_id))
    return Injection(number, what, setting, at_iteration, links, ranks, tuple(truths))


def _share(rng: random.Random, kind: LinkKind, fabric: Fabric) -> float:
    """What a degraded link keeps: so little that it limits the traffic that crosses it."""
    share = rng.uniform(0.15, 0.45)
    return share * fabric.spec.nic_rate_mbps / fabric.spec.nvlink_rate_mbps if kind is NVLINK else share
