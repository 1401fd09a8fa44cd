"""`setup` on fresh machines: the supported systems from their own packages, and machines that already have something.

Each machine is a minimal system in a folder. The tests fetch packages, so they take minutes and run with --soak only;
`RAILBED_FRESH_BASES` names a folder that keeps the minimal systems between runs.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.launcher.machines import PLACE, SYSTEMS, Machine, NoMachineError, System, base_archive

pytestmark = [pytest.mark.soak, pytest.mark.skipif(os.geteuid() != 0, reason="needs root to enter another system")]

NOTHING = "nothing to do: everything is installed"
FABRIC = """
set -e
railbed=./railbed
$railbed up --name fresh --domains 2 --rails 2
$railbed path d0r0 d1r0 --name fresh
$railbed fail d0r0-rail0 --name fresh
$railbed why d0r0 d1r0 --name fresh
$railbed down fresh
"""
"""A small fabric, a failure and its detour; every command of it must succeed.

It needs the machine's first network namespace, where alone the kernel lets sockets' buffers and TCP cubic be set.
"""


@pytest.fixture(scope="module")
def bases() -> Iterator[Path]:
    kept = os.environ.get("RAILBED_FRESH_BASES")
    if kept:
        yield Path(kept)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(params=SYSTEMS, ids=lambda system: system.suite)
def machine(request: pytest.FixtureRequest, bases: Path) -> Iterator[Machine]:
    with new_folder() as folder:
        yield fresh(request.param, bases, folder)


@pytest.fixture(scope="module")
def ready_debian(bases: Path) -> Iterator[Machine]:
    with new_folder() as folder:
        ready = fresh(SYSTEMS[0], bases, folder)
        done = ready.run("sudo", "./railbed", "setup")
        assert done.returncode == 0, done.stdout
        yield ready


@pytest.fixture
def debian(ready_debian: Machine) -> Iterator[Machine]:
    """A Debian that was set up."""
    with new_folder() as folder:
        yield ready_debian.copy(folder)


def fresh(system: System, bases: Path, folder: Path) -> Machine:
    try:
        return Machine.fresh(base_archive(system, bases), folder)
    except NoMachineError as error:
        pytest.skip(str(error))


@contextmanager
def new_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fresh-"))  # not pytest's: nobody wants to look at 1 GB afterwards
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def test_a_fresh_machine_from_the_first_call_to_uninstall(machine: Machine) -> None:
    refused = machine.run("./railbed", "validate", "failure-nic")
    assert refused.returncode == 2
    assert refused.stdout.splitlines() == [
        "railbed: python3-venv must be installed, which needs root: run sudo ./railbed setup"
    ]

    alone = machine.run("sudo", "./railbed", "setup", network=False)
    assert alone.returncode == 1
    assert "because the network cannot be reached: connect this machine" in alone.stdout.splitlines()[-1]

    # Killed among the packages, then in the Python environment: the next call finishes each.
    machine.cut_short("sudo", "./railbed", "setup", when=lambda: machine.found("/usr/sbin/ovs-vswitchd"))
    machine.cut_short("sudo", "./railbed", "setup", when=lambda: machine.found(PLACE / ".venv/incomplete"))
    finished = machine.run("sudo", "./railbed", "setup")
    assert finished.returncode == 0, finished.stdout
    assert finished.stdout.splitlines()[-1] == "installed: .venv"
    assert printed(machine, "dpkg", "--audit") == ""

    for words in (["sudo", "./railbed", "setup"], ["./railbed", "setup"]):
        again = machine.run(*words)
        assert (again.returncode, again.stdout) == (0, f"{NOTHING}\n")
    assert printed(machine, "find", ".", "!", "-user", "student") == ""

    ran = machine.run("./railbed", "run", "failure-nic", "--backend", "simulator", "--check")
    assert ran.returncode == 0, ran.stdout

    doctor = machine.run("./railbed", "doctor", root=True)
    assert doctor.returncode == 0, doctor.stdout
    live = machine.run("sh", "-c", FABRIC, root=True)
    assert live.returncode == 0, live.stdout
    assert "a detour, because d0r0-rail0 is down" in live.stdout

    removed = machine.run("./railbed", "uninstall", "--packages", root=True)
    assert removed.returncode == 0, removed.stdout
    assert "removed packages:" in removed.stdout
    for program in ("/usr/sbin/ovs-vswitchd", "/usr/bin/mnexec", "/usr/bin/iperf3", "/usr/bin/python3"):
        assert gone(machine, program), program
    left = set(printed(machine, "ls", "-A").split())
    assert "results" in left
    assert not left & {".venv", ".packages-before", ".packages-installed", "railbed.egg-info", "build"}


def test_a_machine_with_an_open_vswitch_of_its_own_keeps_it(debian: Machine) -> None:
    """One that the administrator runs, with a bridge and a rule, installed by hand as from its sources."""
    script = f"""
    set -e
    mkdir -p /run/openvswitch
    ovsdb-tool create /tmp/theirs.db
    ovsdb-server /tmp/theirs.db --remote=punix:/run/openvswitch/db.sock --detach --no-chdir --pidfile
    ovs-vsctl --no-wait init
    ovs-vswitchd --enable-dummy --detach --no-chdir --pidfile
    ovs-vsctl add-br theirs -- set bridge theirs datapath_type=dummy
    ovs-ofctl add-flow theirs priority=7,actions=drop
    ovs-vsctl --no-headings --columns=name,controller,other_config list bridge >/tmp/before
    ovs-ofctl --no-stats dump-flows theirs >>/tmp/before
    {FABRIC}
    ovs-vsctl --no-headings --columns=name,controller,other_config list bridge >/tmp/after
    ovs-ofctl --no-stats dump-flows theirs >>/tmp/after
    cmp /tmp/before /tmp/after
    """
    done = debian.run("sh", "-c", script, root=True)
    assert done.returncode == 0, done.stdout


def test_a_machine_with_another_openflow_controller_keeps_it(debian: Machine) -> None:
    script = f"""
    set -e
    python3 - <<'END' &
import socket
listeners = [socket.create_server(("", port)) for port in (6653, 6633)]
print("listening", flush=True)
try:
    listeners[0].settimeout(300)
    listeners[0].accept()
    print("somebody called the other controller", flush=True)
except TimeoutError:
    pass
END
    theirs=$!
    until ss -tln | grep -q :6633; do kill -0 $theirs; done
    ./railbed doctor
    {FABRIC}
    kill -0 $theirs
    kill $theirs
    """
    done = debian.run("sh", "-c", script, root=True)
    assert done.returncode == 0, done.stdout
    assert "taken outside our namespaces: 6633 by python3" in done.stdout
    assert "somebody called" not in done.stdout


def test_a_machine_with_a_mininet_of_its_own_uses_it(debian: Machine) -> None:
    """Mininet from its sources: mnexec and the package below /usr/local, unknown to dpkg."""
    script = """
    place=$(echo /usr/local/lib/python3.*/dist-packages)
    mkdir -p $place
    cp -r /usr/lib/python3/dist-packages/mininet $place
    cp /usr/bin/mnexec /usr/bin/mn /usr/local/bin
    dpkg --remove --force-depends mininet
    rm -rf .venv
    """
    moved = debian.run("sh", "-ec", script, root=True)
    assert moved.returncode == 0, moved.stdout
    again = debian.run("sudo", "./railbed", "setup")
    assert again.stdout.splitlines()[-1] == "installed: .venv"
    live = debian.run("sh", "-c", FABRIC, root=True)
    assert live.returncode == 0, live.stdout
    assert gone(debian, "/usr/bin/mnexec")

    without = debian.run("sh", "-c", "rm -r /usr/local/lib/python3.*/dist-packages/mininet && ./railbed up", root=True)
    assert without.returncode == 1
    assert without.stdout.splitlines()[-1].startswith(
        "railbed: this machine has a Mininet of its own (/usr/local/bin/mnexec), but not for /usr/bin/python3: "
    )
    assert gone(debian, "/usr/bin/mnexec")


def test_a_user_without_sudo_is_told_what_root_has_to_do(debian: Machine) -> None:
    removed = debian.run("rm", "/usr/bin/sudo", root=True)
    assert removed.returncode == 0
    for command in ("setup", "up"):
        refused = debian.run("./railbed", command)
        assert refused.returncode == 2
        assert refused.stdout.endswith(f"run './railbed {command}' as root (there is no sudo here)\n")
    assert debian.run("./railbed", "setup", root=True).returncode == 0
    assert debian.run("./railbed", "validate", "failure-nic").returncode == 0


def printed(machine: Machine, *words: str) -> str:
    done = machine.run(*words, root=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def gone(machine: Machine, path: str) -> bool:
    return machine.run("test", "!", "-e", path, root=True).returncode == 0
