import dataclasses

import numpy as np
import pytest

from experiments.outcome import achieved, analyse, completion_s, outages, with_slowdown
from tests.experiments.cases import made, small
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec
from topologies.scale import Scale
from workloads.collectives import all_to_all
from workloads.failures import LinkFailure
from workloads.records import Event, EventKind, LinkSeries, RunRecord, TransferRecord, TransferStatus
from workloads.schedule import Computation

FABRIC = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
SCHEDULE = all_to_all({"a": [0, 1], "b": [2, 3]}, 2000, 4)  # one phase of four transfers
LINK = "d0r0-rail0"


def record(durations: list[float | None], size_bytes: int = 1000, **change: object) -> RunRecord:
    transfers = tuple(
        TransferRecord(k, TransferStatus.COMPLETE, 5.0, 5.0 + duration, size_bytes, size_bytes)
        if duration is not None
        else TransferRecord(k, TransferStatus.FAILED, None, None, 0, size_bytes, "it broke")
        for k, duration in enumerate(durations)
    )
    series = LinkSeries((LINK,), np.array([0.0, 10.0]), np.array([[0.0], [8e6]]), np.zeros((2, 1)))
    plain = RunRecord("emulator", FABRIC.spec, Scale(1, 1000), SCHEDULE, (), 0, transfers, series, ())
    return dataclasses.replace(plain, **change)  # type: ignore[arg-type]


def test_completion_is_the_sum_of_the_slowest_of_each_phase() -> None:
    schedule = all_to_all({"all": range(3)}, 3000, 4)
    transfers = tuple(
        TransferRecord(k, TransferStatus.COMPLETE, 10.0 * k, 10.0 * k + duration, 1000, 1000)
        for k, duration in enumerate([1.0, 3.0, 2.0, 4.0, 1.0, 1.0])
    )
    assert completion_s(record([], schedule=schedule, transfers=transfers)) == 7.0
    assert completion_s(record([1.0, 1.0, 1.0, None])) is None
    assert completion_s(record([1.0, 1.0, 1.0])) is None


def test_a_schedule_without_phases_lasts_from_first_to_last_byte() -> None:
    first, second = SCHEDULE.transfers[:2]
    third = dataclasses.replace(SCHEDULE.transfers[2], after=(first.id,))
    chain = dataclasses.replace(SCHEDULE, transfers=(first, second, third))
    assert not chain.is_phased
    transfers = tuple(TransferRecord(k, TransferStatus.COMPLETE, 2.0 + k, 5.0 + k, 1, 1) for k in range(3))
    assert completion_s(record([], schedule=chain, transfers=transfers)) == 5.0


def test_computing_counts_from_the_start_to_its_own_end() -> None:
    training = dataclasses.replace(SCHEDULE, computations=(Computation(9, 0, 0.002, (0,), "backward"),))
    complete = record([1.0] * 4, schedule=training, last_computation_s=8.0)
    assert completion_s(complete) == 8.0
    assert completion_s(dataclasses.replace(complete, last_computation_s=5.5)) == 6.0
    delayed = dataclasses.replace(SCHEDULE.transfers[0], delay_s=0.005)
    late = dataclasses.replace(SCHEDULE, transfers=(delayed, *SCHEDULE.transfers[1:]))
    assert completion_s(record([1.0] * 4, schedule=late)) == 6.0


def test_achieved_judges_only_long_transfers_and_counts_failed_ones() -> None:
    nominal = record([2.0, 2.0, 0.5, 4.0])
    found = achieved(record([2.5, 4.0, 5.0, None]), nominal)
    assert (found.judged, found.too_short) == (3, 1)
    assert found.worst_share == 0.0
    assert found.median_share == pytest.approx(0.5)
    assert achieved(record([2.0] * 4, size_bytes=1100), nominal).median_share == pytest.approx(1.1)
    short = achieved(record([0.1] * 4), record([0.1] * 4))
    assert (short.median_share, short.judged, short.too_short) == (None, 0, 4)


def test_bandwidths_are_of_the_real_machine() -> None:
    outcome = analyse("x", FABRIC, record([4.0] * 4), record([4.0] * 4), {})
    assert outcome.duration_s == 4.0
    assert outcome.real_duration_s == pytest.approx(0.004)
    assert outcome.algbw_gbps == pytest.approx(2000 * 8 / 0.004 / 1e9)
    assert outcome.busbw_gbps == pytest.approx(2000 * 8 / 0.004 / 1e9 / 2)


def test_a_failed_transfer_is_failed_and_never_zero() -> None:
    outcome = analyse("x", FABRIC, record([4.0, 4.0, None, None]), record([4.0] * 4), {})
    assert outcome.status == "failed"
    assert outcome.duration_s is outcome.busbw_gbps is outcome.real_duration_s is None
    assert outcome.problems == ("2 x it broke",)
    slower = with_slowdown(outcome, analyse("x", FABRIC, record([2.0] * 4), record([2.0] * 4), {}))
    assert slower.slowdown is None
    assert slower.expected_slowdown == pytest.approx(1.0)
    missing = analyse("x", FABRIC, record([4.0]), record([4.0] * 4), {})
    assert missing.status == "incomplete"
    assert missing.problems == ("3 x not reported by the back end",)


def test_slowdown() -> None:
    healthy = analyse("x", FABRIC, record([2.0] * 4), record([1.0] * 4), {})
    slower = analyse("x", FABRIC, record([3.0] * 4), record([1.1] * 4), {})
    assert with_slowdown(slower, healthy).slowdown == pytest.approx(0.5)
    assert with_slowdown(slower, healthy).expected_slowdown == pytest.approx(0.1)


def test_an_outage_is_read_from_events_before_the_plan() -> None:
    times = np.arange(0.0, 11.0)
    carried = np.array([0, 1, 2, 3, 4, 4, 4, 4, 5, 6, 7]) * 1e6
    series = LinkSeries((LINK, "d0r1-rail1"), times, np.stack([carried, carried[::-1].max() - carried[::-1]], axis=1),
                        np.zeros((11, 2)))  # fmt: skip
    events = (Event(3.9, EventKind.LINK_DOWN, LINK), Event(4.1, EventKind.REROUTED, LINK),
              Event(7.2, EventKind.LINK_UP, LINK), Event(7.3, EventKind.REROUTED, LINK))  # fmt: skip
    run = record([1.0] * 4, links=series, events=events, failures=(LinkFailure(LINK, 4.0, 7.0),), longest_gap_s=0.2)
    (outage,) = outages(run, {LINK: ["d0r1-rail1"]})
    assert (outage.down_s, outage.up_s) == (3.9, 7.2)
    assert outage.rerouted_after_s == pytest.approx(0.2)
    assert (outage.traffic.before_bytes, outage.traffic.during_bytes, outage.traffic.after_bytes) == (4e6, 0.0, 3e6)
    assert outage.traffic.before_mbps == pytest.approx(4 * 8 / 3.9)
    assert [link.link_id for link in outage.detour] == ["d0r1-rail1"]
    assert outage.rerouted_after_s
    (planned,) = outages(dataclasses.replace(run, events=()), {})
    assert (planned.down_s, planned.up_s, planned.rerouted_after_s) == (4.0, 7.0, None)
    late = (
        Event(3.9, EventKind.LINK_DOWN, LINK),
        Event(7.2, EventKind.LINK_UP, LINK),
        Event(7.3, EventKind.REROUTED, LINK),
    )
    assert outages(dataclasses.replace(run, events=late), {})[0].rerouted_after_s is None


def test_the_simulator_agrees_with_its_own_prediction_and_shows_the_detour() -> None:
    for run, record_, outcome in made(small()):
        assert outcome.status == "complete"
        assert outcome.duration_s == pytest.approx(outcome.predicted_s, rel=1e-12)
        if not run.failures:
            assert outcome.slowdown is None
            continue
        assert outcome.slowdown is not None
        if run.label == "rail-only":  # with spines, the detour may be hashed to links with fewer flows
            assert outcome.slowdown > 0
        (outage,) = outcome.outages
        assert record_.failures[0].link_id == outage.link_id
        assert outage.traffic.before_bytes > 0
        assert outage.traffic.during_bytes == 0
        assert outage.traffic.after_bytes
        assert outage.rerouted_after_s == pytest.approx(0.1)
        assert sum(link.during_bytes or 0 for link in outage.detour) > 0
