"""Real programs on live fabrics: what they find, how they end, and PyTorch and MPI over failing links."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from emulator import manager
from tests.emulator.live import fabric, live
from topologies.model import FabricKind

pytestmark = live

ROOT = Path(__file__).resolve().parents[2]
SYSTEM_PYTHON = "/usr/bin/python3"
TRAIN = [SYSTEM_PYTHON, str(ROOT / "docs" / "examples" / "train_data_parallel.py")]
MISSING = os.environ.get("RAILBED_PROGRAMS_MISSING", "")
WATCHDOG_S = 120

needs_programs = pytest.mark.skipif(bool(MISSING), reason=MISSING)


def words(name: str, *rest: str) -> list[str]:
    return [sys.executable, "-m", "cli", "exec", "--name", name, *rest]


def run(name: str, *rest: str, **values: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words(name, *rest), cwd=ROOT, capture_output=True, text=True, check=False, timeout=WATCHDOG_S, **values
    )


def alive(mark: str) -> list[str]:
    """Processes whose command line has ``mark`` in it."""
    listed = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if mark in line and "cli exec" not in line]


def await_output(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"the program ended before it printed '{text}'")


@pytest.fixture(scope="module")
def rails():
    with fabric("exrail", domains=2, rails=2) as up:
        yield up


@pytest.fixture(scope="module")
def spines():
    with fabric("exspine", FabricKind.SPINE_LEAF, domains=2, rails=2) as up:
        yield up


@pytest.fixture(params=["exrail", "exspine"])
def either(request, rails, spines):
    return rails if request.param == "exrail" else spines


def test_every_rank_is_a_host_of_its_own_and_knows_the_others(rails):
    script = "echo $RANK/$WORLD_SIZE $(hostname) $(getent hosts d1r1) $(ls /sys/class/net | tr '\\n' ' ')"
    done = run("exrail", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    names = ["d0r0", "d0r1", "d1r0", "d1r1"]
    assert lines == [f"[{rank}] {rank}/4 {name} 10.0.2.1 d1r1 eth0 lo" for rank, name in enumerate(names)]


def test_a_name_that_is_none_fails_at_once_and_the_machines_own_files_are_untouched(rails):
    before = Path("/etc/hosts").read_bytes()
    assert run("exrail", "--nproc", "1", "getent", "hosts", "elsewhere.example").returncode == 2
    assert Path("/etc/hosts").read_bytes() == before


def test_the_first_failure_gives_the_exit_code_and_ends_the_others(rails):
    done = run("exrail", "sh", "-c", "if [ $RANK = 2 ]; then exit 7; else exec sleep 98.6001; fi")
    assert done.returncode == 7
    assert "rank 2 (d1r0) ended first with exit code 7" in done.stderr
    assert not alive("98.6001")


def test_a_signal_is_told_as_a_shell_tells_it(rails):
    assert run("exrail", "--nproc", "1", "sh", "-c", "kill -KILL $$").returncode == 128 + signal.SIGKILL


def test_a_time_out_ends_daemons_too(rails):
    done = run("exrail", "--timeout", "0.5", "--", "sh", "-c", "setsid sleep 98.6002 & sleep 98.6002")
    assert done.returncode == 1
    assert "did not end within 0.5 s on 4 of 4 ranks (0, 1, 2, 3); all were ended" in done.stderr
    assert not alive("98.6002")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_kill_leave_nothing(rails, number):
    process = subprocess.Popen(
        words("exrail", "sh", "-c", "echo ready; exec sleep 98.6003"), cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    await_output(process, "ready")
    process.send_signal(number)
    assert process.wait(WATCHDOG_S) == (1 if number == signal.SIGINT else -number)
    assert process.stdout is not None
    process.stdout.close()
    deadline = time.monotonic() + 10
    while alive("98.6003") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive("98.6003")


def test_output_can_go_to_files(rails, tmp_path):
    done = run("exrail", "--nproc", "2", "--output", str(tmp_path / "out"), "sh", "-c", "echo $RANK; printf x >&2")
    assert (done.returncode, done.stdout) == (0, "")
    names = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert names == {"rank0.out": "0\n", "rank0.err": "x", "rank1.out": "1\n", "rank1.err": "x"}


def test_under_sudo_a_program_is_its_users(rails):
    nobody = {**os.environ, "SUDO_UID": "65534", "SUDO_GID": "65534"}
    done = run("exrail", "--nproc", "1", "sh", "-c", "id -un; touch /etc/mine", env=nobody)
    assert done.stdout == "[0] nobody\n"
    assert done.returncode != 0


def test_two_programs_cannot_have_one_fabric(rails):
    process = subprocess.Popen(
        words("exrail", "sh", "-c", "echo ready; exec sleep 98.6004"), cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    await_output(process, "ready")
    done = run("exrail", "true")
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert done.returncode == 1
    assert "another run is using this fabric" in done.stderr


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (["--nproc", "5", "true"], "--nproc 5 is more than the 4 GPUs of fabric 'exrail' allow"),
        (["--", "no-such-program"], "there is no program 'no-such-program' that can be started here"),
        ([], "Missing argument"),
        (["--output", "/proc/nothing", "true"], "cannot be written"),
    ],
)
def test_wrong_use(rails, wrong, sentence):
    done = run("exrail", *wrong)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_end_of_the_fabric_ends_the_programs():
    with fabric("exgone", domains=1, rails=2):
        process = subprocess.Popen(
            words("exgone", "sh", "-c", "echo ready; exec sleep 98.6005"),
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        await_output(process, "ready")
        manager.down("exgone")
        _, errors = process.communicate(timeout=WATCHDOG_S)
    assert process.returncode == 1
    assert "the fabric was taken down while the program ran" in errors
    assert not alive("98.6005")


@needs_programs
def test_a_users_pytorch_script_trains_on_either_fabric(either):
    done = run(either.name, "--timeout", "100", "--", *TRAIN, "--steps", "4")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\[0\] 4 ranks agree; 67588 bytes of gradients a step", done.stdout, re.MULTILINE)
    assert len(re.findall(r"^\[0\] step ", done.stdout, re.MULTILINE)) == 4


@needs_programs
def test_pytorch_trains_on_while_a_link_fails(either):
    target = "d1r0-rail0" if either.name == "exrail" else "leaf0-spine0"
    process = subprocess.Popen(
        words(either.name, "--timeout", "100", "--", *TRAIN, "--steps", "200"),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    errors: list[str] = []
    assert process.stderr is not None
    reading = threading.Thread(target=lambda: errors.append(process.stderr.read()), daemon=True)
    reading.start()
    try:
        await_output(process, "[0] step 5:")
        assert either.fail(target)["changed"]
        output = process.stdout.read()
        assert process.wait(WATCHDOG_S) == 0, errors
    finally:
        either.restore(target)
        process.kill()
        process.wait()
        reading.join()
        process.stdout.close()
        process.stderr.close()
    assert "[0] 4 ranks agree" in output


@needs_programs
def test_an_mpi_program_runs_without_ssh(rails):
    script = (
        "from mpi4py import MPI; import socket; c = MPI.COMM_WORLD; "
        "names = c.gather(socket.gethostname()); total = c.allreduce(c.rank); "
        "print(*(names if c.rank == 0 else []), total)"
    )
    done = run("exrail", "--timeout", "100", "--mpi", "--", SYSTEM_PYTHON, "-c", script)
    assert done.returncode == 0, done.stderr
    assert "[0] d0r0 d0r1 d1r0 d1r1 6" in done.stdout.splitlines()
    failing = run("exrail", "--timeout", "100", "--mpi", "--", "sh", "-c", 'exit "$OMPI_COMM_WORLD_RANK"')
    assert failing.returncode in (1, 2, 3)
