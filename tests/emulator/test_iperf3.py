import pytest

from emulator import iperf3

GOOD = '{"start": {}, "end": {"sum_sent": {"bytes": 9}, "sum_received": {"seconds": 4.5, "bytes": 11960000}}}'


def test_the_receivers_bytes_and_seconds_are_taken():
    assert iperf3.receiver_report(GOOD) == iperf3.ReceiverReport(11_960_000, 4.5)


@pytest.mark.parametrize(
    "text",
    [
        GOOD + "\niperf3: interrupt - the server has terminated\n",
        "warning: something\n" + GOOD,
        GOOD + "\n" + GOOD,
        '{"start": {}, "error": "unable to receive"}\n' + GOOD,
        GOOD.replace('"sum_sent"', '"jitter_ms": -nan, "lost": nan, "sum_sent"'),
    ],
)
def test_known_oddities_of_the_output_are_survived(text):
    assert iperf3.receiver_report(text) == iperf3.ReceiverReport(11_960_000, 4.5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n",
        "{",
        "not json at all {",
        GOOD[:-30],
        '{"error": "error - unable to connect to server"}',
        '{"end": {}}',
        '{"end": []}',
        '{"end": {"sum_received": {"bytes": 5, "seconds": 0}}}',
        '{"end": {"sum_received": {"bytes": -nan, "seconds": 1}}}',
        "[1, 2, 3]",
    ],
)
def test_no_measurement_is_none_and_never_zero(text):
    assert iperf3.receiver_report(text) is None


def test_an_error_is_read_even_beside_other_output():
    assert iperf3.error_text('x {"error": "unable to connect"} y') == "unable to connect"
    assert iperf3.error_text(GOOD) == ""


@pytest.mark.parametrize("size_bytes", [1, 8191, 8192, 8193, 1_000_000, 12_345_678])
def test_sizes_are_rounded_up_to_whole_blocks(size_bytes):
    rounded = iperf3.rounded_bytes(size_bytes)
    assert rounded % iperf3.BLOCK_BYTES == 0
    assert 0 <= rounded - size_bytes < iperf3.BLOCK_BYTES


def test_commands_are_bounded_in_size_and_time_and_never_reversed():
    client = iperf3.client_command("10.0.1.1", 5201, 100_000)
    server = iperf3.server_command(5201)
    assert client[client.index("-n") + 1] == "106496"
    assert "--connect-timeout" in client
    assert "-1" in server
    assert "--idle-timeout" in server
    assert "-R" not in client + server
    assert "-P" not in client
