import pytest

from emulator.shape import FRAME_BYTES, WINDOWS_PER_QUEUE, shape, tc_batch, window_bytes

RATES_MBPS = [0.1, 1, 5, 20, 45, 180, 1000, 10_000]


@pytest.mark.parametrize("rate_mbps", RATES_MBPS)
def test_a_shape_keeps_the_rate_and_bounds_the_queue(rate_mbps):
    one = shape(rate_mbps)
    assert one.rate_mbps == pytest.approx(rate_mbps)
    assert one.burst_bytes >= FRAME_BYTES
    assert one.queue_bytes == WINDOWS_PER_QUEUE * window_bytes(rate_mbps)
    assert one.quantum_bytes <= 60_000, "above that HTB warns that the quantum is big"


@pytest.mark.parametrize("rate_mbps", RATES_MBPS)
def test_a_window_is_one_that_the_kernel_keeps(rate_mbps):
    size_bytes = window_bytes(rate_mbps)
    scale = (size_bytes // 65_535).bit_length() - 1
    assert size_bytes == 65_535 << scale
    assert scale <= 14


def test_windows_follow_the_rate():
    assert [window_bytes(rate) for rate in (1, 5, 20, 45, 180, 10_000)] == [
        65_535,
        65_535,
        131_070,
        262_140,
        524_280,
        524_280,
    ]


def test_tc_is_given_bits_per_second_and_queues_under_the_classes():
    lines = tc_batch({"s0r0-eth2": shape(20)}).splitlines()
    assert lines[0] == "qdisc add dev s0r0-eth2 root handle 1: htb default 2"
    assert "classid 1:1 htb rate 20000000bit burst 50000 " in lines[1]
    assert "classid 1:2 htb rate 17800000bit ceil 20000000bit prio 2" in lines[2]
    assert "classid 1:3 htb rate 2000000bit ceil 20000000bit prio 1" in lines[3]
    assert "classid 1:4 htb rate 200000bit ceil 20000000bit prio 0" in lines[4]
    assert "match u8 0xc0 0xff at 1 flowid 1:4" in lines[8]
    assert not any("bps" in line or "mbit" in line for line in lines)
    assert lines[5] == "qdisc add dev s0r0-eth2 parent 1:2 handle 2: bfifo limit 1048560"
