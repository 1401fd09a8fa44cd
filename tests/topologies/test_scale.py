import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.builders import build
from topologies.errors import ScaleError
from topologies.model import FabricKind, FabricSpec, LinkKind
from topologies.scale import Scale, check_scale, default_scale, link_rate_mbps


@pytest.mark.parametrize(("domains", "rails", "nic_mbps"), [(2, 2, 20), (4, 4, 20), (8, 8, 5), (32, 8, 1)])
def test_the_default_scale_depends_on_the_size_only(domains, rails, nic_mbps):
    for kind in (FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED):
        fabric = build(FabricSpec(kind, domains, rails))
        scale = default_scale(fabric)
        rates = {link.kind: link_rate_mbps(link, scale) for link in fabric.links}
        assert rates[LinkKind.NIC] == pytest.approx(nic_mbps)
        assert rates[LinkKind.NVLINK] == pytest.approx(9 * nic_mbps), "the ratio is kept"


def test_above_256_gpus_there_is_no_default_scale():
    with pytest.raises(ScaleError, match="use the simulator"):
        default_scale(build(FabricSpec(FabricKind.RAIL_ONLY, 33, 8)))


@settings(derandomize=True)
@given(st.floats(1, 1e6), st.floats(1e-3, 1e6), st.integers(1, 10**12), st.floats(1, 1e6))
def test_a_transfer_takes_time_times_as_long(rate, time, size_bytes, rate_mbps):
    scale = Scale(rate, time)
    real_s = size_bytes * 8 / (rate_mbps * 1e6)
    emulated_s = scale.emulated_bytes(size_bytes) * 8 / (scale.emulated_rate_mbps(rate_mbps) * 1e6)
    assert emulated_s >= scale.emulated_s(real_s) * (1 - 1e-12)
    one_byte_s = 8 / (scale.emulated_rate_mbps(rate_mbps) * 1e6)
    assert emulated_s <= scale.emulated_s(real_s) * (1 + 1e-9) + one_byte_s


@pytest.mark.parametrize("values", [{"rate": 0}, {"rate": -1}, {"rate": float("nan")}, {"rate": 1, "time": 0}])
def test_impossible_factors_are_refused(values):
    with pytest.raises(ScaleError):
        Scale(**values)


@pytest.mark.parametrize("rate", [1e9, 10])
def test_a_rate_that_the_shaper_cannot_hold_is_refused(rate):
    with pytest.raises(ScaleError, match=r"change scale\.rate"):
        check_scale(build(FabricSpec(FabricKind.RAIL_ONLY, 2, 2)), Scale(rate))
