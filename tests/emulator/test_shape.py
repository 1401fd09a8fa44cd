import pytest

from emulator.shape import FRAME_BYTES, QUEUE_FLOOR_BYTES, shape, tc_batch


@pytest.mark.parametrize("rate_mbps", [0.1, 1, 5, 20, 180, 1000, 10_000])
def test_a_shape_keeps_the_rate_and_bounds_the_queue(rate_mbps):
    one = shape(rate_mbps)
    assert one.rate_mbps == pytest.approx(rate_mbps)
    assert one.burst_bytes >= FRAME_BYTES
    assert one.queue_bytes >= QUEUE_FLOOR_BYTES
    assert one.quantum_bytes <= 60_000, "above that HTB warns that the quantum is big"


def test_tc_is_given_bits_per_second_and_a_queue_under_the_class():
    lines = tc_batch({"s0r0-eth2": shape(20)}).splitlines()
    assert lines[0] == "qdisc replace dev s0r0-eth2 root handle 1: htb default 1"
    assert "rate 20000000bit " in lines[1]
    assert "bps" not in lines[1]
    assert lines[2].startswith("qdisc replace dev s0r0-eth2 parent 1:1 handle 2: bfifo limit ")
