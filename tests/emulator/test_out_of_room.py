"""A machine that has no room: one clear sentence for each thing that can run out, and nothing left behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import NetlinkError

from emulator import devices, manager
from emulator.errors import CapacityError, out_of_room
from emulator.rundir import RUN_ROOT
from emulator.wire import error_message
from tests.emulator.live import live, traces
from topologies.builders import build
from topologies.errors import RailbedError
from topologies.model import FabricKind, FabricSpec
from topologies.scale import default_scale

ROOT = Path(__file__).resolve().parent.parent.parent
SPEC = FabricSpec(FabricKind.RAIL_ONLY, 2, 2)
PIDS = Path("/sys/fs/cgroup/pids")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EMFILE, "no file descriptors left"),
        (errno.EAGAIN, "no more processes"),
        (errno.ENOMEM, "the memory is used up"),
        (errno.EADDRNOTAVAIL, "no port is left"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_what_ran_out_is_said_with_a_remedy(number: int, words: str) -> None:
    text = str(out_of_room(OSError(number, os.strerror(number), "/run/x"), "start the fabric 'x'"))
    assert text.startswith("this machine cannot start the fabric 'x': ")
    assert words in text
    assert "/run/x" in text
    assert text.endswith("or build a smaller fabric")
    assert "\n" not in text


def test_an_error_number_crosses_the_socket_as_that_sentence() -> None:
    message = error_message(OSError(errno.EMFILE, "Too many open files"))["error"]
    assert "file descriptors" in message["message"]
    assert message["exit_code"] == 1


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "files"), NetlinkError(errno.ENOMEM, "memory")])
def test_too_many_interfaces_are_a_sentence_with_their_number(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    class Full:
        def link(self, *_words: object, **_named: object) -> None:
            raise error

        def close(self) -> None:
            pass

    monkeypatch.setattr(devices, "IPRoute", Full)
    monkeypatch.setattr(devices, "write_sysctls", lambda _values: None)
    fabric = build(SPEC)
    with pytest.raises(CapacityError, match=r"cannot hold the 24 interfaces of this fabric: .*smaller fabric"):
        devices.create_devices(fabric, default_scale(fabric))


def railbed_up(*prefix: str, name: str, words: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*prefix, sys.executable, "-m", "cli", "up", "--domains", "2", "--rails", "2", "--name", name, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)


def clear_away(name: str) -> None:
    if (RUN_ROOT / name).exists():  # the logs of a failed start are kept
        manager.down(name)
    assert traces(name) == []


@pytest.mark.live
@pytest.mark.skipif(bool(live[1].args[0]), reason="live tests need root and namespaces")
@pytest.mark.parametrize("size", ["4k", "32k", "48k"])
def test_a_full_disk(size: str) -> None:
    directory = RUN_ROOT / "full"
    directory.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(directory)], check=True)
    try:
        with pytest.raises(RailbedError) as caught:
            manager.up(SPEC, name="full", timeout_s=30)
        assert "disk is full" in str(caught.value)
        assert "\n" not in str(caught.value)
    finally:
        subprocess.run(["umount", str(directory)], check=True)
        clear_away("full")


@pytest.mark.live
@pytest.mark.skipif(bool(live[1].args[0]), reason="live tests need root and namespaces")
def test_too_few_file_descriptors() -> None:
    done = railbed_up("prlimit", "--nofile=26:26", name="files")
    assert done.returncode == 1
    assert "file descriptors" in done.stderr
    assert done.stderr.count("\n") == 1
    clear_away("files")


@pytest.fixture
def few_processes() -> Iterator[Path]:
    group = PIDS / f"railbed-test-{os.getpid()}"
    group.mkdir()
    (group / "pids.max").write_text("9")
    yield group
    group.rmdir()


@pytest.mark.live
@pytest.mark.skipif(bool(live[1].args[0]) or not os.access(PIDS, os.W_OK), reason="needs root and the pids controller")
def test_too_few_processes(few_processes: Path) -> None:
    enter = ("sh", "-c", f'echo $$ > {few_processes}/cgroup.procs; exec "$@"', "sh")
    done = railbed_up(*enter, name="pids")
    assert done.returncode == 1
    assert "no more processes" in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1
    clear_away("pids")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--rails", "257", "--domains", "1", "--rate-factor", "400000"), "256"),
        (("--rails", "8", "--domains", "200"), "1600 GPUs are more than the emulator's 256"),
        (("--name", "thirteenchars"), "has 13 characters; the kernel's names leave room for 12"),
        (("--name", "Not/a/name"), "cannot name a fabric"),
        (("--openflow-port", "70000"), "is not in the range"),
    ],
)
def test_what_no_machine_has_room_for_is_wrong_use(words: tuple[str, ...], text: str) -> None:
    command = [sys.executable, "-m", "cli", "up", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)
    assert done.returncode == 2, done.stderr
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
