import pytest

from emulator.calibrate import USABLE_SHARE, Calibration, judge, needed_gbps_passes, rows
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec
from topologies.scale import Scale, default_scale

CALIBRATION = Calibration(12.0, 50_000.0, {"3 switches (rail)": 0.4}, 2, "userspace", 0.0)


def test_the_need_is_that_of_the_heavier_of_nvlinks_and_nics():
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    assert needed_gbps_passes(fabric, default_scale(fabric)) == pytest.approx(16 * 0.180 * 3)
    flat = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4, nvlink_rate_mbps=400_000.0))
    assert needed_gbps_passes(flat, Scale(20_000)) == pytest.approx(16 * 0.020 * 5)


def test_a_scale_that_holds_is_faithful_and_one_that_does_not_names_one_that_would():
    fabric = build(FabricSpec(FabricKind.RAIL_ONLY, 4, 4))
    assert judge(fabric, Scale(20_000), CALIBRATION).faithful
    too_fast = judge(fabric, Scale(10_000), CALIBRATION)
    assert not too_fast.faithful
    assert "a scale.rate of" in too_fast.sentence
    assert judge(fabric, Scale(too_fast.holding_rate * 1.0001), CALIBRATION).faithful
    assert too_fast.usable_gbps_passes == pytest.approx(12.0 * USABLE_SHARE)


def test_every_figure_is_shown():
    shown = dict(rows(CALIBRATION))
    assert shown["capacity"] == "12.0 Gbit/s x switch passes"
    assert shown["round trip, 3 switches (rail)"] == "0.40 ms"
