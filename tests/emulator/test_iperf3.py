import pytest

from emulator import iperf3
from emulator.errors import CapacityError

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
def test_a_sender_is_asked_for_whole_blocks_and_for_what_may_still_be_on_its_way(size_bytes):
    sent = iperf3.sent_bytes(size_bytes, 32_768)
    assert sent % iperf3.BLOCK_BYTES == 0
    assert 3 * 32_768 <= sent - size_bytes < 3 * 32_768 + iperf3.BLOCK_BYTES


def test_commands_are_bounded_in_size_and_time_and_never_reversed():
    client = iperf3.client_command("10.0.1.1", 5201, 100_000, 32_768)
    server = iperf3.server_command(5201)
    assert client[client.index("-n") + 1] == str(iperf3.sent_bytes(100_000, 32_768))
    assert client[client.index("-w") + 1] == "32768"
    assert "--connect-timeout" in client
    assert "-1" in server
    assert "--idle-timeout" in server
    assert "-R" not in client + server
    assert "-P" not in client


def test_the_completion_time_is_when_the_receiver_had_the_size():
    report = iperf3.ReceiverReport(350, 0.4, ((0.0, 0.1, 100), (0.1, 0.2, 0), (0.2, 0.3, 200), (0.3, 0.4, 50)))
    assert report.time_of_byte_s(50) == pytest.approx(0.05)
    assert report.time_of_byte_s(100) == pytest.approx(0.1)
    assert report.time_of_byte_s(200) == pytest.approx(0.25)
    assert report.time_of_byte_s(350) == pytest.approx(0.4)
    assert report.time_of_byte_s(351) is None
    assert report.received_between(0.05, 0.25) == pytest.approx(150)


def test_intervals_are_read_and_broken_ones_left_out():
    text = (
        '{"intervals": [{"sum": {"start": 0, "end": 0.1, "bytes": 7}}, {"sum": {"start": 0.1, "end": 0.1, "bytes": 1}},'
        ' {}], "end": {"sum_received": {"bytes": 8, "seconds": 0.1}}}'
    )
    assert iperf3.receiver_report(text).intervals == ((0.0, 0.1, 7),)


def test_there_are_so_many_ports_and_no_more():
    assert iperf3.flow_port(0) == 5201
    assert iperf3.flow_port(60_334) == 65_535
    with pytest.raises(CapacityError, match="flow number 60335 has no port: 60335 flows can run at once"):
        iperf3.flow_port(60_335)
