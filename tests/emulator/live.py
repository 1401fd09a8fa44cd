"""What the live tests share: fabrics with names of their own, and commands inside them."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emulator import manager
from emulator.rundir import NAMESPACE_DIR, RUN_ROOT
from topologies.model import FabricKind, FabricSpec


def why_not() -> str:
    """Why live tests cannot run here; empty if they can."""
    if os.geteuid() != 0:
        return "live tests need root"
    done = subprocess.run(["unshare", "-n", "-m", "-p", "-f", "true"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"this kernel forbids namespaces: {done.stderr.strip()}"


WHY_NOT = why_not()
live = [pytest.mark.live, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]


@contextmanager
def fabric(
    name: str, kind: FabricKind = FabricKind.RAIL_ONLY, domains: int = 2, rails: int = 2, **values: object
) -> Iterator:
    """A live fabric that is gone at the end."""
    running = manager.up(FabricSpec(kind, domains, rails, **values), name=name)
    try:
        yield running
    finally:
        if any(state.name == name for state in manager.running()):
            manager.down(name)


def in_fabric(name: str, *command: str) -> str:
    """Output of a command in a fabric's network namespace, talking to its Open vSwitch."""
    environment = {**os.environ, "OVS_RUNDIR": str(RUN_ROOT / name / "ovs")}
    done = subprocess.run(
        ["ip", "netns", "exec", f"rb-{name}", *command], capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout


def ofctl(name: str, *words: str) -> str:
    """ovs-ofctl on a fabric's switches."""
    return in_fabric(name, "ovs-ofctl", "-O", "OpenFlow13", *words)


def traces(name: str) -> list[str]:
    """What a fabric of that name has left on the machine: processes, namespace, run directory."""
    found = [str(path) for path in (NAMESPACE_DIR / f"rb-{name}", RUN_ROOT / name) if path.exists()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if any(f"/run/railbed/{name}/".encode() in word for word in words) or (
                f"OVS_RUNDIR={RUN_ROOT / name / 'ovs'}".encode() in environment
            ):
                found.append(f"process {entry.name}: {b' '.join(words)!r}")
    return found
