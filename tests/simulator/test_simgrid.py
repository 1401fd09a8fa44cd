"""The same flows in SimGrid's raw model, where it is installed (Debian: python3-simgrid): ends within 0.1 %.

SimGrid's sizes are whole bytes, and it compares times with a precision of its own; hence flows of megabytes.
"""

import json
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from simulator.fluid import simulate
from simulator.paths import NO_LINK, link_positions, pair_links
from simulator.routes import controller_router
from topologies.builders import build
from topologies.model import NO_FAILURES, Fabric, FabricKind, FabricSpec, Failures
from topologies.scale import Scale
from workloads.failures import LinkFailure
from workloads.schedule import Schedule, Tag, Transfer

PEER = Path(__file__).resolve().parents[2] / "benchmarks" / "peers" / "simgrid_flows.py"
REPAIR_S = 0.002
SPECS = (
    FabricSpec(FabricKind.RAIL_ONLY, 4, 4),
    FabricSpec(FabricKind.RAIL_ONLY, 6, 2, domains_per_leaf=2, spines=2),
    FabricSpec(FabricKind.RAIL_OPTIMIZED, 4, 4, spines=3),
    FabricSpec(FabricKind.SPINE_LEAF, 4, 4, spines=2, parallel_links=2),
)


@lru_cache(maxsize=1)
def interpreter() -> str | None:
    """A Python that has SimGrid's module: that of the system, whose package it is."""
    for name in ("/usr/bin/python3", shutil.which("python3") or ""):
        if name and subprocess.run([name, "-c", "import simgrid"], capture_output=True, check=False).returncode == 0:
            return name
    return None


def case(seed: int) -> tuple[Fabric, Schedule, tuple[LinkFailure, ...]]:
    """Random transfers; in two of three cases a link fails while they run, or is down from the start."""
    rng = np.random.default_rng(seed)
    fabric = build(SPECS[seed % len(SPECS)])
    tag = Tag("send-recv", "send-recv", "all", 0)
    transfers = []
    for number in range(int(rng.integers(5, 40))):
        src, dst = rng.choice(len(fabric.gpus), size=2, replace=False).tolist()
        size_bytes, delay_s = int(rng.integers(10**7, 10**9)), float(rng.choice([0.0, 0.001, 0.004]))
        transfers.append(Transfer(number, src, dst, size_bytes, (), tag, delay_s))
    schedule = Schedule("random", "send-recv", "direct", len(fabric.gpus), 2, 1, "", 0, tuple(transfers))
    link_id = str(rng.choice(sorted(link.id for link in fabric.failure_targets())))
    failures = ((), (LinkFailure(link_id, 0.005),), (LinkFailure(link_id, 0.0),))[seed % 3]
    return fabric, schedule, failures


def peer_flows(
    fabric: Fabric, schedule: Schedule, failures: tuple[LinkFailure, ...], first_link: int
) -> list[list[object]]:
    """The flows of a case for the peer, whose links are counted from ``first_link``."""
    positions = link_positions(fabric)
    router = controller_router(fabric)
    src, dst = (np.array([getattr(one, end) for one in schedule.transfers]) for end in ("src", "dst"))
    down = frozenset(failure.link_id for failure in failures)
    healthy, repaired = (
        pair_links(fabric, positions, router(state), src, dst) for state in (NO_FAILURES, Failures(links=down))
    )
    dead = {2 * positions[link_id] + end for link_id in down for end in (0, 1)}
    flows: list[list[object]] = []
    for transfer, row, later in zip(schedule.transfers, healthy, repaired, strict=True):
        path, detour = row[row != NO_LINK].tolist(), later[later != NO_LINK].tolist()
        flow: list[object] = [transfer.delay_s, transfer.size_bytes, [first_link + one for one in path]]
        at_s = failures[0].at_s if failures else 0.0
        if not dead.isdisjoint(path):
            there = [first_link + one for one in detour]
            if transfer.delay_s >= at_s:  # never moves before the routes change
                flow = [max(transfer.delay_s, at_s + REPAIR_S), transfer.size_bytes, there]
            else:
                flow += [at_s, at_s + REPAIR_S, there]
        flows.append(flow)
    return flows


@pytest.mark.skipif(interpreter() is None, reason="SimGrid is not installed (Debian: python3-simgrid)")
def test_sixty_random_cases_healthy_and_failed() -> None:
    """All cases lie beside each other in one platform, as SimGrid starts once a process."""
    capacity: list[float] = []
    flows: list[list[object]] = []
    expected: list[float] = []
    failed = 0
    for seed in range(60):
        fabric, schedule, failures = case(seed)
        record = simulate(fabric, schedule, controller_router(fabric), scale=Scale(1, 1), failures=failures,
                          repair_delay_s=REPAIR_S, goodput=1.0)  # fmt: skip
        assert record.complete
        expected += [transfer.end_s for transfer in record.transfers if transfer.end_s is not None]
        made = peer_flows(fabric, schedule, failures, len(capacity))
        failed += any(len(flow) > 3 for flow in made)
        flows += made
        capacity += [link.rate_mbps * 1e6 / 8 for link in fabric.links for _ in (0, 1)]
    done = subprocess.run([str(interpreter()), str(PEER)], input=json.dumps({"capacity": capacity, "flows": flows}),
                          capture_output=True, text=True, check=True, timeout=300)  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])["end_s"]
    assert failed >= 10
    assert len(found) == len(expected) > 1000
    assert np.array(found) == pytest.approx(np.array(expected), rel=1e-3)
