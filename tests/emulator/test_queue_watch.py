import json
import socket
import threading
from pathlib import Path

import pytest

from emulator.loop_probe import GIVE_UP_S, LoopProbe, answer_s, percentile
from emulator.queue_watch import QueueCounters, parse_counters, saturated_shares
from emulator.shape import shape


def qdisc(dev: str, kind: str, handle: str, sent: int, drops: int, backlog: int) -> dict[str, object]:
    return {"kind": kind, "handle": handle, "dev": dev, "bytes": sent, "packets": 1, "drops": drops, "backlog": backlog}


def test_both_queues_of_a_shaper_count_and_others_do_not() -> None:
    text = json.dumps(
        [
            qdisc("lo", "noqueue", "0:", 9, 9, 9),
            qdisc("s0r0-eth2", "htb", "1:", 330, 4, 70),
            qdisc("s0r0-eth2", "bfifo", "2:", 300, 3, 60),
            qdisc("s0r0-eth2", "bfifo", "3:", 30, 1, 10),
            qdisc("eth9", "bfifo", "8001:", 5, 5, 5),
        ]
    )
    assert parse_counters(text) == {"s0r0-eth2": QueueCounters(330, 4, 60)}


def test_only_links_with_work_at_all_looks_are_judged() -> None:
    shapes = dict.fromkeys(("busy", "slow", "idle", "gone"), shape(8))
    before = {name: QueueCounters(0, 0, 100) for name in ("busy", "slow", "gone")} | {"idle": QueueCounters(0, 0, 0)}
    after = {
        "busy": QueueCounters(2_000_000, 0, 100),
        "slow": QueueCounters(1_000_000, 0, 100),
        "idle": QueueCounters(0, 0, 100),
    }
    assert saturated_shares([before, after], 2.0, shapes) == pytest.approx([1.0, 0.5])
    between = before | {"slow": QueueCounters(500_000, 0, 0)}  # drained in the meantime: it only seemed to be saturated
    assert saturated_shares([before, between, after], 2.0, shapes) == pytest.approx([1.0])


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 0.95) == 95.0
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([], 0.95) == 0.0


def test_a_daemon_is_asked_until_the_end(tmp_path: Path) -> None:
    path, asked = tmp_path / "daemon.ctl", threading.Event()
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(path))
        daemon.listen()

        def answer() -> None:
            connection, _ = daemon.accept()
            with connection:
                assert json.loads(connection.recv(4096))["method"] == "version"
                connection.sendall(b'{"id":0,"result":"x","error":null}')
            asked.set()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        probe = LoopProbe([path])
        assert asked.wait(10)
        thread.join()
        assert 0 < probe.stop() < GIVE_UP_S


def test_a_daemon_that_is_gone_counts_as_one_that_does_not_answer(tmp_path: Path) -> None:
    assert answer_s(tmp_path / "nobody.ctl") == GIVE_UP_S
