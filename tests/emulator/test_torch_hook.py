"""The hook inside real PyTorch jobs: what it tells, and that the job computes the same to the last bit."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from controller.diagnosis.telemetry import RankOperation
from emulator.hook_reader import HookReader
from emulator.supervise import HOOK_FOLDER, SOCKET_VARIABLE
from emulator.telemetry_socket import TelemetrySocket

SYSTEM_PYTHON = "/usr/bin/python3"
JOB = Path(__file__).with_name("torch_job.py")
WATCHDOG_S = 120


needs_torch = pytest.mark.skipif(
    not Path("/usr/lib/python3/dist-packages/torch").is_dir(), reason="python3-torch is not installed"
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_job(**values: str) -> str:
    """Standard output of two ranks of the job, both ended well."""
    base = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **values}  # fmt: skip
    ranks = [
        subprocess.Popen([SYSTEM_PYTHON, str(JOB)], env={**base, "RANK": str(rank)}, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]  # fmt: skip
    told = [rank.communicate(timeout=WATCHDOG_S) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], told
    return told[0][0]


@needs_torch
def test_a_job_tells_every_collective_and_computes_the_same(tmp_path: Path) -> None:
    nobody = str(tmp_path / "nobody")
    plain = run_job(PYTHONPATH=str(HOOK_FOLDER), **{SOCKET_VARIABLE: nobody})  # no collector: nothing is wrapped
    here = TelemetrySocket(tmp_path / "t.sock", None)
    assert run_job(PYTHONPATH=str(HOOK_FOLDER), **{SOCKET_VARIABLE: str(here.path)}) == plain
    messages = list(here.poll())
    here.close()
    assert (here.tellers, here.malformed) == (2, 0)
    reader = HookReader([0, 1], {"127.0.0.1": 0})
    operations = [item for item in map(reader.read, messages) if isinstance(item, RankOperation)]
    assert reader.dropped == 0
    for rank in range(2):
        own = [one for one in operations if one.rank == rank]
        entered = [one for one in own if one.left_s is None]
        left = [one for one in own if one.left_s is not None]
        assert {(one.communicator, one.sequence) for one in entered} == {
            (one.communicator, one.sequence) for one in left
        }
        assert all(one.entered_s is not None and one.left_s is not None and one.entered_s <= one.left_s for one in left)
        world = sorted((one for one in left if one.communicator == "group 0"), key=lambda one: one.sequence)
        assert [one.sequence for one in world] == list(range(len(world)))
        assert [one.kind for one in world[:8]] == [
            "all-reduce", "broadcast", "reduce", "all-gather", "gather", "scatter", "barrier", "all-reduce",
        ]  # fmt: skip
        assert [one.size_bytes for one in world[:8]] == [64, 64, 64, 64, 64, 64, 0, 64]
        gradients = [one.size_bytes for one in world if one.kind == "all-reduce"][2:]
        assert gradients == [104] * 4, "26 parameters, twice by the hook of Railbed's, twice by the job's own"
        assert Counter(one.kind for one in left if one.communicator != "group 0") == {"send-recv": 1, "all-reduce": 1}
    groups: dict[str, set[int]] = {}
    for message in messages:
        if message["layer"] == "communicator":
            groups.setdefault(message["id"], set()).add(len(message["ranks"]))
    assert groups == {"group 0": {2}, "p2p 0>1 tag 0": {2}, "group 1": {2}}


def test_programs_without_torch_and_without_a_collector_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the next one')\n")
    path = os.pathsep.join((str(HOOK_FOLDER), str(tmp_path)))
    for told in ({}, {SOCKET_VARIABLE: str(tmp_path / "nobody")}):
        done = subprocess.run(
            [sys.executable, "-c", "import json; print('here')"], env={**os.environ, "PYTHONPATH": path, **told},
            capture_output=True, text=True, check=False, timeout=WATCHDOG_S,
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, "the next one\nhere\n", "")
