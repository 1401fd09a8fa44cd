import numpy as np
import pytest

from topologies.builders import build
from topologies.errors import UnknownElementError
from topologies.model import FabricKind, FabricSpec
from workloads.errors import ScheduleError
from workloads.failures import FailureKind, LinkFailure, check_failures
from workloads.records import LinkSeries, OutageBytes, TransferRecord, TransferStatus


def series(times: list[float], carried: list[float]) -> LinkSeries:
    """One link, half of its bytes in each direction."""
    half = np.array(carried).reshape(-1, 1) / 2
    return LinkSeries(("x",), np.array(times), half, half)


def test_rates_and_totals() -> None:
    samples = series([0, 1, 1, 3], [0, 1e6, 1e6, 3e6])
    assert samples.rates_mbps(["x"]).tolist() == [8.0, 0.0, 8.0]
    assert samples.total_bytes("x") == 3e6


def test_bytes_around_an_outage_of_coarse_samples() -> None:
    """Down at 1.5 and up at 4.5: the intervals that hold these moments count as before and as after."""
    samples = series([0, 1, 2, 3, 4, 5, 6], [0, 10, 15, 15, 15, 18, 28])
    assert samples.around_outage("x", 1.5, 4.5) == OutageBytes(15, 0, 13)
    assert samples.around_outage("x", 1.5, None) == OutageBytes(15, 13, None)
    assert samples.around_outage("x", 1.5, 9.0) == OutageBytes(15, 13, None)
    assert samples.around_outage("x", 7.0, 9.0) == OutageBytes(28, None, None)
    assert samples.around_outage("x", 2.2, 2.8).during is None


def test_traffic_on_a_link_that_should_be_dead_is_seen() -> None:
    samples = series([0, 1, 2, 3, 4], [0, 10, 20, 30, 40])
    assert samples.around_outage("x", 1.0, 3.0) == OutageBytes(10, 20, 10)


def test_series_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ScheduleError, match="order of time"):
        series([0, 2, 1], [0, 1, 2])
    with pytest.raises(ScheduleError, match="do not fit"):
        LinkSeries(("x", "y"), np.zeros(2), np.zeros((2, 1)), np.zeros((2, 1)))


def test_duration_of_a_transfer() -> None:
    assert TransferRecord(0, TransferStatus.COMPLETE, 1.0, 3.5, 10, 10).duration_s == 2.5
    assert TransferRecord(0, TransferStatus.FAILED, 1.0, None, 3, 10, "cut").duration_s is None


def test_failures_are_checked() -> None:
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2))
    check_failures(fabric, [LinkFailure("d0r0-rail0", 1.0, 2.0)])
    with pytest.raises(UnknownElementError, match="did you mean 'd0r1-rail1'"):
        check_failures(fabric, [LinkFailure("d0r1-rail7", 1.0)])
    with pytest.raises(ScheduleError, match="cannot fail"):
        check_failures(fabric, [LinkFailure("d0r0-s0r0", 1.0)])
    with pytest.raises(ScheduleError, match="later than it fails"):
        LinkFailure("d0r0-rail0", 2.0, 2.0)
    with pytest.raises(ScheduleError, match="0 or more"):
        LinkFailure("d0r0-rail0", -1.0)


def test_failures_survive_their_own_json() -> None:
    for failure in (
        LinkFailure("a", 1.0, 2.0),
        LinkFailure("a", 1.0, None, FailureKind.BLACKHOLE, direction="out"),
        LinkFailure("a", 1.0, 2.0, FailureKind.LOSS, loss_share=0.5),
    ):
        assert LinkFailure.from_dict(failure.to_dict()) == failure
    assert LinkFailure.from_dict({"link_id": "a", "at_s": 1.0, "restore_s": 2.0}) == LinkFailure("a", 1.0, 2.0)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (FailureKind.DEGRADE, {"rate_share": 1.0}),
        (FailureKind.DEGRADE, {"rate_share": 0.0}),
        (FailureKind.DELAY, {"delay_s": 0.0}),
        (FailureKind.LOSS, {"loss_share": 1.5}),
        (FailureKind.BLACKHOLE, {"direction": "up"}),
    ],
)
def test_impossible_failures_are_refused(kind: FailureKind, values: dict[str, object]) -> None:
    with pytest.raises(ScheduleError, match="link a"):
        LinkFailure("a", 1.0, None, kind, **values)  # type: ignore[arg-type]
