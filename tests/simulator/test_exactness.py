"""Exact where theory is exact; what is merged stays within its bound; what cannot run is refused before it starts."""

import dataclasses

import numpy as np
import pytest

from simulator.errors import SimulationError
from simulator.fluid import simulate
from simulator.operations import simulate_operations
from simulator.paths import PairPaths, Router
from simulator.routes import controller_router
from topologies.builders import build
from topologies.model import Fabric, FabricKind, FabricSpec, Failures
from topologies.scale import Scale
from workloads.algorithms import ALL_REDUCE
from workloads.collectives import all_ranks, all_to_all, rail_rings, ring_all_reduce
from workloads.errors import ScheduleError
from workloads.families import Family
from workloads.operations import Call, Operation, OperationSchedule
from workloads.schedule import Schedule, Tag, Transfer

REAL = Scale(1, 1)
TAG = Tag("send-recv", "send-recv", "all", 0)


def fabric_of(kind: FabricKind, domains: int, rails: int) -> Fabric:
    """NICs of 1e8 byte/s, NVLink of 9e8."""
    return build(FabricSpec(kind, domains, rails, nic_rate_mbps=800.0, nvlink_rate_mbps=7200.0))


def at_once(gpus: int, size_bytes: int) -> Schedule:
    pairs = [(src, dst) for src in range(gpus) for dst in range(gpus) if src != dst]
    transfers = tuple(Transfer(number, *pair, size_bytes, (), TAG) for number, pair in enumerate(pairs))
    return Schedule("all", "all-to-all", "at once", gpus, gpus, gpus * size_bytes, "", 0, transfers)


def ends(fabric: Fabric, schedule: Schedule, **options: float) -> list[float]:
    record = simulate(fabric, schedule, controller_router(fabric), scale=REAL, goodput=1.0, **options)  # type: ignore[arg-type]
    assert record.complete
    return [transfer.end_s or 0.0 for transfer in record.transfers]


@pytest.mark.parametrize("domains", [2, 3, 8])
@pytest.mark.parametrize("rails", [1, 2, 8])
def test_rings_on_rails(domains: int, rails: int) -> None:
    """2 (n-1)/n S over the NIC's rate."""
    size_bytes = domains * 10**8
    for kind in (FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED):
        fabric = fabric_of(kind, domains, rails)
        found = max(ends(fabric, ring_all_reduce(rail_rings(fabric), size_bytes, domains * rails)))
        assert found == pytest.approx(2 * (domains - 1) / domains * size_bytes / 1e8, rel=1e-9)


@pytest.mark.parametrize("gpus", [2, 5, 16])
def test_all_to_all_on_the_ideal_fabric(gpus: int) -> None:
    """Every NVLink carries n-1 blocks each way: (n-1) b over its rate, at once or in phases."""
    fabric = fabric_of(FabricKind.IDEAL, 1, gpus)
    expected = pytest.approx((gpus - 1) * 9 * 10**7 / 9e8, rel=1e-9)
    assert max(ends(fabric, at_once(gpus, 9 * 10**7))) == expected
    assert max(ends(fabric, all_to_all(all_ranks(fabric), gpus * 9 * 10**7, gpus))) == expected


@pytest.mark.parametrize(("domains", "rails"), [(2, 2), (4, 4), (3, 8)])
def test_all_to_all_at_once_on_rail_only(domains: int, rails: int) -> None:
    """Source-side relay: each NIC carries the blocks of its whole domain to the other GPUs of its rail, K (D-1) of
    them, and NVLink has room for the relayed ones beside the domain's own."""
    fabric = fabric_of(FabricKind.RAIL_ONLY, domains, rails)
    found = max(ends(fabric, at_once(domains * rails, 10**6)))
    assert found == pytest.approx(rails * (domains - 1) * 10**6 / 1e8, rel=1e-9)


def test_incast_over_a_rail_switch() -> None:
    """n to one: the receiver's NIC is shared by all, and each small one leaves its share to the larger ones."""
    fabric = fabric_of(FabricKind.RAIL_ONLY, 6, 1)
    transfers = tuple(Transfer(src, src, 5, (src + 1) * 10**7, (), TAG) for src in range(5))
    schedule = Schedule("incast", "send-recv", "direct", 6, 2, 1, "", 0, transfers)
    expected, before, time_s = [], 0, 0.0
    for number in range(5):
        time_s += (5 - number) * ((number + 1) * 10**7 - before) / 1e8
        before = (number + 1) * 10**7
        expected.append(time_s)
    assert ends(fabric, schedule) == pytest.approx(expected, rel=1e-9)


def test_a_latency_follows_every_transfer() -> None:
    """The last byte arrives later, and so does all that waits for it; the link is free meanwhile."""
    fabric = fabric_of(FabricKind.RAIL_ONLY, 2, 1)
    transfers = (Transfer(0, 0, 1, 10**8, (), TAG), Transfer(1, 1, 0, 10**8, (0,), TAG))
    schedule = Schedule("ping", "send-recv", "direct", 2, 2, 1, "", 0, transfers)
    assert ends(fabric, schedule, latency_s=0.25) == pytest.approx([1.25, 2.5], rel=1e-9)


@pytest.mark.parametrize("domains", [4, 8, 16])
@pytest.mark.parametrize("spread", [0.0, 0.002, 0.05])
def test_merged_ends_stay_within_their_bound(domains: int, spread: float) -> None:
    """Up to 128 GPUs on a hashed fabric: no end moves by more than 0.5 %, the last by 0.1 %; no byte is lost.

    With sizes that differ by up to ``spread`` the ends crowd, and most of them are merged: as link counters are kept at
    every event, their number tells how many there were.
    """
    fabric = fabric_of(FabricKind.RAIL_OPTIMIZED, domains, 8)
    even = at_once(domains * 8, 10**6)
    sizes = np.random.default_rng(domains).integers(round(10**6 * (1 - spread)), 10**6 + 1, len(even.transfers))
    transfers = tuple(
        dataclasses.replace(transfer, size_bytes=size)
        for transfer, size in zip(even.transfers, sizes.tolist(), strict=True)
    )
    schedule = dataclasses.replace(even, transfers=transfers)
    router = controller_router(fabric)
    records = [
        simulate(fabric, schedule, router, scale=REAL, goodput=1.0, fold=False, merge=merge) for merge in (0.0, 0.001)
    ]
    exact, merged = (np.array([transfer.end_s for transfer in record.transfers]) for record in records)
    assert np.max(np.abs(merged / exact - 1)) <= 0.005
    assert merged.max() == pytest.approx(exact.max(), rel=1e-3)
    events, fewer = (len(record.links.t_s) for record in records)
    assert fewer <= events
    if spread:
        assert fewer < events / 2
    carried = [record.links.a_to_b_bytes[-1] + record.links.b_to_a_bytes[-1] for record in records]
    assert carried[1] == pytest.approx(carried[0], rel=1e-9)


def test_a_link_without_capacity_is_refused() -> None:
    fabric = fabric_of(FabricKind.RAIL_ONLY, 2, 2)
    links = tuple(
        dataclasses.replace(link, rate_mbps=0.0) if link.id == "d1r0-rail0" else link for link in fabric.links
    )
    broken = dataclasses.replace(fabric, links=links)
    with pytest.raises(SimulationError, match=r"link d1r0-rail0 has a rate of 0 Mbit/s; it must be above 0"):
        simulate(broken, at_once(4, 1000), controller_router(broken), scale=REAL)
    rings = Operation(0, "rings", (Call(Family("rings", ((2, 2),), ((2, 1),)), ALL_REDUCE, 100),))
    with pytest.raises(SimulationError, match="link d1r0-rail0 has a rate of 0"):
        simulate_operations(broken, OperationSchedule("s", 4, (rings,)), controller_router(broken), scale=REAL)


def test_a_pair_without_a_path_is_refused_before_the_run() -> None:
    fabric = fabric_of(FabricKind.RAIL_ONLY, 2, 1)

    def router(failures: Failures) -> PairPaths:
        return lambda src, dst: None

    nowhere: Router = router
    with pytest.raises(SimulationError, match="'all' sends from d0r0 to d1r0, but no path leads there"):
        simulate(fabric, at_once(2, 1000), nowhere, scale=REAL)


def test_a_cycle_is_refused_when_the_schedule_is_made() -> None:
    transfers = (Transfer(0, 0, 1, 10, (1,), TAG), Transfer(1, 1, 0, 10, (0,), TAG))
    with pytest.raises(ScheduleError, match="remove the cycle"):
        Schedule("cycle", "send-recv", "direct", 2, 2, 1, "", 0, transfers)


@pytest.mark.parametrize("options", [{"merge": 1.0}, {"merge": -0.1}, {"latency_s": -1.0}, {"latency_s": float("nan")}])
def test_shares_and_times_out_of_range_are_refused(options: dict[str, float]) -> None:
    fabric = fabric_of(FabricKind.RAIL_ONLY, 2, 1)
    with pytest.raises(SimulationError, match=next(iter(options))):
        ends(fabric, at_once(2, 1000), **options)
