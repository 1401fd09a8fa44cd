"""The console on a real fabric: as a script, at a terminal, several at once, and when the fabric goes."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.utils import rdpcap

from emulator import manager
from emulator.manager import RunningFabric
from tests.emulator.live import fabric, live

pytestmark = live

NAME = "conso"
PROMPT = f"railbed {NAME}> "
TIMEOUT_S = 30.0


class Terminal:
    """A console at a terminal of its own, and somebody who types."""

    def __init__(self, state: Path) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cli", "shell", NAME], stdin=slave, stdout=slave, stderr=slave,
            env={**os.environ, "TERM": "xterm", "SUDO_UID": "", "XDG_STATE_HOME": str(state)},
            preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
        )  # fmt: skip
        os.close(slave)
        self._shown = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def expect(self, text: str) -> str:
        """What was shown up to ``text``, which must come."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self._shown:
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"'{text}' did not come: {self._shown}"
            if select.select([self._master], [], [], left_s)[0]:
                try:
                    self._shown += os.read(self._master, 4096).decode(errors="replace")
                except OSError:
                    pytest.fail(f"the console ended before '{text}' came: {self._shown}")
        before, _, self._shown = self._shown.partition(text)
        return before

    def ended(self) -> int:
        return self.process.wait(TIMEOUT_S)

    def close(self) -> None:
        os.close(self._master)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def script(commands: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    words = ["-c", commands] if text is None else []
    return subprocess.run(
        [sys.executable, "-m", "cli", "shell", NAME, *words], input=text, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def running() -> Iterator[RunningFabric]:
    with fabric(NAME, domains=2, rails=2) as up:
        yield up


@pytest.fixture
def terminal(running: RunningFabric, tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    try:
        made.expect(PROMPT)
        yield made
    finally:
        made.close()


def shells(node: str) -> int:
    listed = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
    return listed.count(f"mininet:{node}")


def test_a_script_breaks_and_mends_and_uses_nodes(running: RunningFabric) -> None:
    done = script(
        "fail d0r0-rail0; links d0r0; d0r0 ping -c 1 -W 2 d1r0; restore d0r0-rail0; d0r0 cd /usr; d0r0 pwd; d0r0 cat; "
        "s0r0 ovs-ofctl -O OpenFlow13 dump-ports s0r0 1; pingall; d0r0 sleep 100 &; py d0r0.IP()"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("d0r0-rail0 is down: noticed after")
    assert any(line.startswith("d0r0-rail0") and line.endswith("down") for line in lines)
    assert "1 received" in done.stdout
    assert "/usr" in lines
    assert "OFPST_PORT reply" in done.stdout
    assert "0% dropped (12/12 received)" in done.stdout
    assert lines[-1] == "10.0.1.0"
    assert shells("d0r0") == 0, "nothing that was typed stays behind"
    assert running.status()["links_down"] == []


def test_commands_from_a_pipe_go_on_after_a_failed_one(running: RunningFabric) -> None:
    done = script("", "fail nonsense\nd0r0 false\nfail d0r1-rail1\nrestore d0r1-rail1\n")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "d0r1-rail1 is up" in done.stdout
    assert PROMPT not in done.stdout


def test_at_a_terminal_ctrl_c_ends_the_nodes_command_and_ctrl_d_leaves_the_fabric(
    running: RunningFabric, terminal: Terminal, tmp_path: Path
) -> None:
    terminal.type("degrade d1r0-r\t 5\n")
    terminal.expect("d1r0-rail0: 5 of 20 Mbit/s")
    terminal.expect(PROMPT)
    terminal.type("watch\n")
    terminal.expect("d1r0-rail0  5 Mbit/s only")
    terminal.type("\x03")
    terminal.expect(PROMPT)
    terminal.type("d0r0 ping d1r1\n")
    terminal.expect("icmp_seq=2")
    terminal.type("\x03")
    terminal.expect("packets transmitted")
    terminal.expect(PROMPT)
    other = Terminal(tmp_path)
    try:
        other.expect(PROMPT)
        other.type("d1r1 sleep 100 & echo from the other one\n")
        other.expect("\nfrom the other one")
        assert shells("d1r1") == 1
    finally:
        other.close()  # which kills it
    deadline = time.monotonic() + TIMEOUT_S
    while shells("d1r1") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert shells("d1r1") == 0, "a console that was killed leaves no shell"
    terminal.type("d0r0 exit\n")
    terminal.expect("the shell of d0r0 has ended")
    terminal.expect(PROMPT)
    terminal.type("failures --reset\n")
    terminal.expect("restored: d1r0-rail0")
    terminal.expect(PROMPT)
    terminal.type("\x04")
    assert terminal.ended() == 0
    assert "d0r0 ping d1r1" in (tmp_path / "railbed" / "history").read_text().splitlines()
    assert running.status()["controller"] == "running"


def test_a_link_is_captured_both_ways(running: RunningFabric, tmp_path: Path) -> None:
    path = tmp_path / "nic.pcapng"
    capture = subprocess.Popen(
        [sys.executable, "-m", "cli", "capture", "d0r1-rail1", "--name", NAME, "-w", str(path)], stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    deadline = time.monotonic() + TIMEOUT_S
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert script("d0r1 ping -c 2 -i 0.2 d1r1; d0r0 ping -c 1 d1r0").returncode == 0
    capture.send_signal(signal.SIGINT)
    out, _ = capture.communicate(timeout=TIMEOUT_S)
    assert capture.returncode == 0
    packets = [packet for packet in rdpcap(str(path)) if ICMP in packet]
    assert [(packet[IP].dst, packet.sniffed_on) for packet in packets] == [
        ("10.0.2.1", "d0r1-rail1 out"), ("10.0.1.1", "d0r1-rail1 in"),
    ] * 2, "only those of this link, and each once"  # fmt: skip
    assert f"in {path}" in out


def test_a_line_is_shown_for_each_packet_until_there_are_enough(running: RunningFabric) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "cli", "capture", "d0r0-nv0", "--name", NAME, "--count", "2"], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as capture:  # fmt: skip
        deadline = time.monotonic() + TIMEOUT_S
        while capture.poll() is None and time.monotonic() < deadline:
            running.mininet("d0r0 ping -c 1 -W 1 d0r1")
        assert capture.poll() == 0
        assert capture.stdout is not None
        lines = capture.stdout.read().splitlines()
    seen = {line.split(None, 1)[1] for line in lines}
    assert len(lines) == 2
    assert seen == {"out d0r0 > d0r1 ICMP echo request, 56 bytes", "in  d0r1 > d0r0 ICMP echo reply, 56 bytes"}


def test_a_console_says_that_its_fabric_has_gone(running: RunningFabric, terminal: Terminal) -> None:
    terminal.type("d0r0 true\n")
    terminal.expect(PROMPT)
    manager.down(NAME)
    terminal.expect(f"railbed: the fabric '{NAME}' was taken down; this console ends with it")
    assert terminal.ended() == 1
