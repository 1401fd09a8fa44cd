import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import SimulationError
from simulator.fluid import TCP_GOODPUT, simulate
from simulator.paths import busiest_link, directed_links, link_loads, link_positions
from tests.simulator.routes import shortest
from topologies.builders import build
from topologies.errors import UnknownElementError
from topologies.model import NO_FAILURES, Fabric, FabricKind, FabricSpec, LinkKind
from topologies.scale import Scale
from workloads.collectives import all_ranks, all_to_all, collective, rail_rings, ring_all_reduce
from workloads.failures import FailureKind, LinkFailure
from workloads.records import EventKind, RunRecord, TransferStatus
from workloads.schedule import Computation, Schedule, Tag, Transfer

REAL = Scale(1, 1)
KINDS = [FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED, FabricKind.SPINE_LEAF]
TAG = Tag("send-recv", "send-recv", "all", 0)


def fabric_of(kind: FabricKind = FabricKind.RAIL_ONLY, domains: int = 4, rails: int = 4) -> Fabric:
    return build(FabricSpec(kind, domains, rails, nic_rate_mbps=800.0, nvlink_rate_mbps=7200.0))


def sends(fabric: Fabric, *triples: tuple[int, int, int]) -> Schedule:
    transfers = tuple(Transfer(k, src, dst, size, (), TAG) for k, (src, dst, size) in enumerate(triples))
    return Schedule("sends", "send-recv", "direct", len(fabric.gpus), 2, 1, "bytes sent", 0, transfers)


def run(fabric: Fabric, schedule: Schedule, *failures: LinkFailure, delay_s: float = 0.5, goodput: float = 1.0,
        scale: Scale = REAL, silent_s: float | None = None) -> RunRecord:  # fmt: skip
    return simulate(fabric, schedule, shortest(fabric), scale=scale, failures=failures, repair_delay_s=delay_s,
                    silent_repair_delay_s=silent_s, goodput=goodput)  # fmt: skip


def ends(record: RunRecord) -> list[float | None]:
    return [transfer.end_s for transfer in record.transfers]


@pytest.mark.parametrize("kind", [FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED])
@pytest.mark.parametrize("domains", [2, 3, 5])
def test_rail_rings_take_the_closed_form(kind: FabricKind, domains: int) -> None:
    """2(n-1)/n S over the NIC's rate, where a rail has a switch of its own. 800 Mbit/s = 1e8 byte/s."""
    fabric = fabric_of(kind, domains, 2)
    size = domains * 10**8
    record = run(fabric, ring_all_reduce(rail_rings(fabric), size, 2 * domains))
    assert record.complete
    expected_s = 2 * (domains - 1) / domains * size / 1e8
    assert max(end for end in ends(record) if end) == pytest.approx(expected_s, rel=1e-9)


def test_ring_of_all_ranks_is_as_fast_as_its_nic_hops() -> None:
    for kind in KINDS:
        fabric = fabric_of(kind)
        record = run(fabric, ring_all_reduce(all_ranks(fabric), 16 * 10**8, 16))
        assert max(end for end in ends(record) if end) == pytest.approx(2 * 15 / 16 * 16, rel=1e-9)


def test_fabrics_differ_where_theory_says_so() -> None:
    """A shift by a whole domain and one rail: relayed over NVLink on rail-only, which costs nothing in a fluid, but
    two pairs whose relay is the same GPU share its NIC."""
    only, spine = fabric_of(FabricKind.RAIL_ONLY, 2, 2), fabric_of(FabricKind.RAIL_OPTIMIZED, 2, 2)
    triples = ((0, 3, 10**8), (1, 3, 10**8))
    assert ends(run(only, sends(only, *triples))) == pytest.approx([2.0, 2.0], rel=1e-9)
    apart = ((0, 2, 10**8), (1, 3, 10**8))
    assert ends(run(only, sends(only, *apart))) == pytest.approx([1.0, 1.0], rel=1e-9)
    assert ends(run(spine, sends(spine, *apart))) == pytest.approx([1.0, 1.0], rel=1e-9)


def test_incast_and_what_is_left_after_it() -> None:
    """Three to one: a third each; the small one ends first and leaves its share to the others."""
    fabric = fabric_of(domains=4, rails=1)
    record = run(fabric, sends(fabric, (0, 3, 10**8), (1, 3, 2 * 10**8), (2, 3, 3 * 10**8)))
    assert ends(record) == pytest.approx([3.0, 5.0, 6.0], rel=1e-9)


def test_goodput_and_scale() -> None:
    fabric = fabric_of(domains=2, rails=1)
    record = run(fabric, sends(fabric, (0, 1, 4 * 10**8)), goodput=TCP_GOODPUT, scale=Scale(rate=40, time=2))
    assert record.transfers[0].size_bytes == 2 * 10**7
    assert record.transfers[0].end_s == pytest.approx(2e7 * 8 / (20e6 * TCP_GOODPUT), rel=1e-9)
    assert record.links.total_bytes("d0r0-rail0") == pytest.approx(2e7 / TCP_GOODPUT, rel=1e-9)


def test_a_failure_stops_reroutes_and_comes_back() -> None:
    """1 s at full rate, 0.5 s of silence, 1 s on the detour (shared with another flow), then alone again."""
    fabric = fabric_of(domains=2, rails=2)
    schedule = sends(fabric, (0, 2, 4 * 10**8), (1, 3, 4 * 10**8))
    record = run(fabric, schedule, LinkFailure("d0r0-rail0", 1.0, 2.0))
    # Down from 1 to 2, detour from 1.5 to 2.5. Rail 1: 1.5 s alone, 1 s at half rate, 1.5 s alone.
    # Rail 0: 1 s at full rate, nothing, 1 s at half rate, then 2.5 s to go.
    assert ends(record) == pytest.approx([5.0, 4.5], rel=1e-9)
    around = record.links.around_outage("d0r0-rail0", 1.0, 2.0)
    assert around.before == pytest.approx(1e8, rel=1e-9)
    assert around.during == 0.0
    assert around.after == pytest.approx(2.5e8, rel=1e-9)
    kinds = [(event.t_s, event.kind) for event in record.events if event.subject == "d0r0-rail0"]
    assert kinds == [(1.0, EventKind.LINK_DOWN), (1.5, EventKind.REROUTED), (2.0, EventKind.LINK_UP),
                     (2.5, EventKind.REROUTED)]  # fmt: skip


def test_no_path_is_failed_with_a_reason() -> None:
    fabric = fabric_of(domains=2, rails=1)
    first = Transfer(0, 0, 1, 2 * 10**8, (), TAG)
    schedule = Schedule("s", "send-recv", "direct", 2, 2, 1, "", 0, (first, Transfer(1, 1, 0, 5, (0,), TAG)))
    record = run(fabric, schedule, LinkFailure("d0r0-rail0", 1.0))
    cut, waiting = record.transfers
    assert cut.status is TransferStatus.FAILED
    assert cut.reason == "no path from d0r0 to d1r0 while d0r0-rail0 is down"
    assert cut.received_bytes == pytest.approx(1e8)
    assert cut.duration_s is None
    assert waiting.reason == "no path from d1r0 to d0r0 while d0r0-rail0 is down"
    assert not record.complete


def test_what_waits_for_a_failed_transfer_goes_on() -> None:
    fabric = fabric_of(domains=2, rails=1)
    first = Transfer(0, 0, 1, 2 * 10**8, (), TAG)
    schedule = Schedule("s", "send-recv", "direct", 2, 2, 1, "", 0, (first, Transfer(1, 1, 0, 10**8, (0,), TAG)))
    record = run(fabric, schedule, LinkFailure("d0r0-rail0", 1.0, 1.7))
    cut, waiting = record.transfers
    assert cut.status is waiting.status is TransferStatus.FAILED
    slow = Transfer(2, 1, 0, 10**8, (0,), TAG)
    later = Schedule("s", "send-recv", "direct", 4, 4, 1, "", 0, (first, dataclasses.replace(slow, src=2, dst=3)))
    record = run(fabric_of(domains=4, rails=1), later, LinkFailure("d0r0-rail0", 1.0), delay_s=0.25)
    assert record.transfers[0].status is TransferStatus.FAILED
    assert record.transfers[1].start_s == pytest.approx(1.25)
    assert record.transfers[1].status is TransferStatus.COMPLETE


def test_without_repair_a_flow_stands_still() -> None:
    fabric = fabric_of(domains=2, rails=2)
    record = run(fabric, sends(fabric, (0, 2, 2 * 10**8)), LinkFailure("d0r0-rail0", 1.0), delay_s=float("inf"))
    assert record.transfers[0].status is TransferStatus.INCOMPLETE
    assert "stood still: d0r0-rail0" in record.transfers[0].reason
    assert record.transfers[0].received_bytes == pytest.approx(1e8)


def test_a_short_outage_without_repair_only_delays() -> None:
    fabric = fabric_of(domains=2, rails=2)
    record = run(fabric, sends(fabric, (0, 2, 2 * 10**8)), LinkFailure("d0r0-rail0", 1.0, 1.25), delay_s=float("inf"))
    assert ends(record) == pytest.approx([2.25], rel=1e-9)


def test_failed_before_the_start() -> None:
    fabric = fabric_of(domains=2, rails=2)
    record = run(fabric, sends(fabric, (0, 2, 10**8)), LinkFailure("d0r0-rail0", 0.0), delay_s=0.0)
    assert ends(record) == pytest.approx([1.0], rel=1e-9)
    assert record.links.total_bytes("d0r0-rail0") == 0
    assert record.links.total_bytes("d0r1-rail1") == pytest.approx(1e8)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    data=st.data(),
    kind=st.sampled_from(KINDS),
    domains=st.integers(2, 3),
    rails=st.integers(1, 3),
)
def test_bytes_are_conserved_and_no_link_is_above_its_rate(
    data: st.DataObject, kind: FabricKind, domains: int, rails: int
) -> None:
    fabric = fabric_of(kind, domains, rails)
    rank = st.integers(0, domains * rails - 1)
    pair = st.tuples(rank, rank, st.integers(10**6, 10**8)).filter(lambda triple: triple[0] != triple[1])
    schedule = sends(fabric, *data.draw(st.lists(pair, min_size=1, max_size=12)))
    targets = sorted(link.id for link in fabric.failure_targets())
    at_s = data.draw(st.floats(0.01, 0.5))
    failures = [LinkFailure(data.draw(st.sampled_from(targets)), at_s, at_s + 0.3)] if data.draw(st.booleans()) else []
    record = run(fabric, schedule, *failures, delay_s=0.05)

    for made in record.transfers:
        if made.status is TransferStatus.COMPLETE:
            assert made.received_bytes == made.size_bytes
    into = dict.fromkeys(range(domains * rails), 0.0)
    for transfer, made in zip(schedule.transfers, record.transfers, strict=True):
        into[transfer.dst] += made.received_bytes
        into[transfer.src] -= made.received_bytes
    for rank_, surplus in into.items():
        net = 0.0
        for link in fabric.links_of(fabric.gpu_of_rank(rank_).switch_id):
            if link.kind is not LinkKind.HOST:
                column = record.links.link_ids.index(link.id)
                net += record.links.b_to_a_bytes[-1, column] - record.links.a_to_b_bytes[-1, column]
        assert net == pytest.approx(surplus, rel=1e-9, abs=1e-3)
    width_s = np.diff(record.links.t_s)
    for column, link in enumerate(fabric.links):
        room = link.rate_mbps * 1e6 / 8 * width_s * (1 + 1e-9) + 1e-3
        for counters in (record.links.a_to_b_bytes, record.links.b_to_a_bytes):
            moved = np.diff(counters[:, column])
            assert np.all(moved >= 0)
            assert np.all(moved <= room)


def test_the_same_run_twice_is_the_same() -> None:
    fabric = fabric_of(domains=3, rails=3)
    schedule = all_to_all(all_ranks(fabric), 9 * 10**7, 9)
    first, second = (run(fabric, schedule, LinkFailure("d1r1-rail1", 0.5, 1.0)) for _ in range(2))
    assert first.transfers == second.transfers
    assert first.events == second.events
    assert np.array_equal(first.links.a_to_b_bytes, second.links.a_to_b_bytes)


def test_phases_are_events_in_order() -> None:
    fabric = fabric_of(domains=2, rails=1)
    record = run(fabric, ring_all_reduce(all_ranks(fabric), 2 * 10**8, 2))
    got = [(event.kind, event.subject, event.t_s) for event in record.events]
    assert got == [(EventKind.PHASE_START, "0", 0.0), (EventKind.PHASE_END, "0", 1.0),
                   (EventKind.PHASE_START, "1", 1.0), (EventKind.PHASE_END, "1", 2.0)]  # fmt: skip


def test_progress_reaches_one() -> None:
    fabric = fabric_of(domains=2, rails=2)
    told: list[float] = []
    simulate(fabric, all_to_all(all_ranks(fabric), 4000, 4), shortest(fabric), scale=REAL, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_loads_and_the_busiest_nic() -> None:
    fabric = fabric_of(domains=3, rails=2)
    schedule = sends(fabric, (0, 2, 100), (0, 4, 50), (1, 3, 120))
    paths = shortest(fabric)(NO_FAILURES)
    assert busiest_link(fabric, schedule, paths) == "d0r0-rail0"
    loads = link_loads(fabric, schedule, paths)
    positions = link_positions(fabric)
    assert loads[2 * positions["d0r0-rail0"]] == 150
    assert loads[2 * positions["d0r0-rail0"] + 1] == 0
    assert loads[2 * positions["d1r0-rail0"] + 1] == 100
    with pytest.raises(SimulationError, match="uses no nic link"):
        busiest_link(fabric, sends(fabric, (0, 1, 100)), paths)


def test_parts_that_do_not_fit_are_refused() -> None:
    fabric = fabric_of(domains=2, rails=2)
    good = sends(fabric, (0, 1, 10))
    with pytest.raises(SimulationError, match="for 6 ranks, but the fabric has 4"):
        run(fabric, sends(fabric_of(domains=3, rails=2), (0, 1, 10)))
    with pytest.raises(UnknownElementError):
        run(fabric, good, LinkFailure("nonsense", 1.0))
    with pytest.raises(SimulationError, match="goodput"):
        run(fabric, good, goodput=0.0)
    with pytest.raises(SimulationError, match="repair_delay_s"):
        run(fabric, good, delay_s=-1.0)
    with pytest.raises(SimulationError, match="does not touch s0r0"):
        directed_links(fabric, link_positions(fabric), 0, 1, ["d1r1-rail1"])
    with pytest.raises(SimulationError, match="ends at rail0"):
        directed_links(fabric, link_positions(fabric), 0, 1, ["d0r0-rail0"])


def test_a_start_delay_precedes_every_transfer_and_is_not_part_of_its_duration() -> None:
    fabric = fabric_of(domains=2, rails=2)
    schedule = ring_all_reduce(all_ranks(fabric), 4_000_000, 4)
    router = shortest(fabric)
    plain = simulate(fabric, schedule, router, scale=Scale(20_000, 1000))
    delayed = simulate(fabric, schedule, router, scale=Scale(20_000, 1000), start_delay_s=0.5)
    for before, after in zip(plain.transfers, delayed.transfers, strict=True):
        phase = schedule.by_id[before.transfer_id].tag.phase
        assert before.start_s is not None
        assert after.start_s == pytest.approx(before.start_s + 0.5 * (phase + 1))
        assert after.duration_s == pytest.approx(before.duration_s)


def test_computing_delays_what_waits_for_it() -> None:
    """1 s of sending, 0.5 s of computing, 1 s back; computing on the side ends when it ends."""
    fabric = fabric_of(domains=2, rails=1)
    schedule = Schedule(
        "s", "send-recv", "direct", 2, 2, 1, "", 0,
        (
            Transfer(0, 0, 1, 10**8, (), TAG),
            Transfer(1, 1, 0, 10**8, (0,), TAG, 0.5),
            Transfer(2, 0, 1, 10**8, (10, 11), TAG, 0.25),
        ),
        (Computation(10, 0, 3.0, (), ""), Computation(11, 1, 1.0, (1,), ""), Computation(12, 1, 7.0, (10, 2), "")),
    )  # fmt: skip
    record = run(fabric, schedule)
    assert ends(record) == pytest.approx([1.0, 2.5, 4.75], rel=1e-9)
    assert record.transfers[1].start_s == pytest.approx(1.5)
    assert record.last_computation_s == pytest.approx(11.75)
    slower = run(fabric, schedule, scale=Scale(1, 4))
    assert ends(slower) == pytest.approx([4.0, 10.0, 19.0], rel=1e-9)
    assert slower.last_computation_s == pytest.approx(47.0)


def test_delays_of_one_gate_differ_and_keep_their_order() -> None:
    fabric = fabric_of(domains=4, rails=1)
    plain = sends(fabric, (0, 1, 10**8), (1, 2, 10**8), (2, 3, 10**8))
    late = zip(plain.transfers, (2.0, 0.5, 1.0), strict=True)
    delayed = tuple(dataclasses.replace(transfer, delay_s=delay_s) for transfer, delay_s in late)
    record = run(fabric, dataclasses.replace(plain, transfers=delayed))
    assert [transfer.start_s for transfer in record.transfers] == pytest.approx([2.0, 0.5, 1.0])


def test_a_schedule_of_computing_alone() -> None:
    fabric = fabric_of(domains=2, rails=1)
    alone = (Computation(0, 0, 1.0, (), ""), Computation(1, 1, 2.0, (0,), ""))
    schedule = dataclasses.replace(sends(fabric), computations=alone)
    shares: list[float] = []
    record = simulate(fabric, schedule, shortest(fabric), scale=REAL, progress=shares.append)
    assert record.last_computation_s == pytest.approx(3.0)
    assert record.complete


def test_stepwise_rings_take_as_long_as_bulk_ones() -> None:
    fabric = fabric_of(domains=4, rails=1)
    for form in ("bulk", "stepwise"):
        record = run(fabric, collective("all-reduce", all_ranks(fabric), 4 * 10**8, 4, form=form))
        assert max(end for end in ends(record) if end) == pytest.approx(6.0, rel=1e-9)


def test_a_blackhole_stands_still_until_somebody_notices() -> None:
    fabric = fabric_of(domains=2, rails=2)
    schedule = sends(fabric, (0, 2, 4 * 10**8))
    hole = LinkFailure("d0r0-rail0", 1.0, 2.0, FailureKind.BLACKHOLE)
    record = run(fabric, schedule, hole)
    assert ends(record) == pytest.approx([5.0], rel=1e-9)
    kinds = [(event.t_s, event.kind) for event in record.events if event.subject == "d0r0-rail0"]
    assert kinds == [(1.0, EventKind.IMPAIRED), (2.0, EventKind.MENDED)]
    noticed = run(fabric, schedule, hole, silent_s=0.5)
    assert ends(noticed) == pytest.approx([4.5], rel=1e-9)
    never = run(fabric, schedule, dataclasses.replace(hole, restore_s=None))
    assert never.transfers[0].reason == "stood still: d0r0-rail0 was swallowing packets and no route led around it"


def test_a_blackhole_of_one_direction_leaves_the_other() -> None:
    fabric = fabric_of(domains=2, rails=1)
    schedule = sends(fabric, (0, 1, 10**8), (1, 0, 10**8))
    record = run(fabric, schedule, LinkFailure("d0r0-rail0", 0.5, 2.0, FailureKind.BLACKHOLE, direction="out"))
    assert ends(record) == pytest.approx([2.5, 1.0], rel=1e-9)


def test_a_degraded_link_keeps_its_share_and_its_routes() -> None:
    fabric = fabric_of(domains=2, rails=1)
    slow = LinkFailure("d0r0-rail0", 1.0, 3.0, FailureKind.DEGRADE, rate_share=0.25)
    record = run(fabric, sends(fabric, (0, 1, 4 * 10**8)), slow)
    assert ends(record) == pytest.approx([1 + 2 + 2.5], rel=1e-9)
    assert not [event for event in record.events if event.kind is EventKind.REROUTED]


def test_delay_and_loss_are_said_not_to_be_modelled() -> None:
    fabric = fabric_of(domains=2, rails=1)
    late = LinkFailure("d0r0-rail0", 0.0, None, FailureKind.DELAY, delay_s=0.005)
    record = run(fabric, sends(fabric, (0, 1, 10**8)), late)
    assert ends(record) == pytest.approx([1.0], rel=1e-9)
    assert record.notes[-1] == "Not modelled: delay on links."


def test_failures_of_one_link_may_overlap() -> None:
    fabric = fabric_of(domains=2, rails=1)
    schedule = sends(fabric, (0, 1, 2 * 10**8))
    twice = (LinkFailure("d0r0-rail0", 0.5, 1.5), LinkFailure("d0r0-rail0", 1.0, 2.0))
    record = run(fabric, schedule, *twice, delay_s=10.0)
    assert ends(record) == pytest.approx([3.5], rel=1e-9)
