"""The socket of the ranks' telemetry: read when asked, nothing that a rank sends ends it."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

from emulator.telemetry_socket import TelemetrySocket


def teller(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.connect(str(path))
    return made


def test_messages_of_several_ranks_are_read_and_rubbish_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.sock"
    here = TelemetrySocket(path, None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(here.poll()) == []
    with teller(path) as one, teller(path) as other:
        one.send(b'{"a": 1}')
        other.send(b"no json \xff")
        other.send(b"[1, 2]")
        one.send(b'{"a": 2}')
        assert [message["a"] for message in here.poll()] == [1, 2]
        one.send(b'{"a": 3}')
    assert [message["a"] for message in here.poll()] == [3]
    assert (here.tellers, here.malformed) == (2, 2)
    here.close()
    assert not path.exists()


def test_a_rank_whose_reader_is_busy_is_refused_at_once_and_what_was_sent_is_not_lost(tmp_path: Path) -> None:
    here = TelemetrySocket(tmp_path / "t.sock", None)
    with teller(here.path) as one:
        one.setblocking(False)
        sent = 0
        try:
            while sent < 100_000:
                one.send(b'{"layer": "operation"}')
                sent += 1
        except BlockingIOError:
            pass
        assert 50 < sent < 100_000
        assert len(list(here.poll())) == sent
    here.close()
