"""The fluid model beside packets: the same flows in ns-3, where it is installed (Debian: libns3-dev and g++).

ns-3 sends 1,448 bytes of payload in frames of 1,502: 20 bytes of IPv4, 32 of TCP with time stamps, 2 of its link. The
model gets the same share as its goodput. What is left has three causes, and each has a case or a bound below:
acknowledgements (54 bytes for every two segments, where a link carries data the other way too), slow start and the time
that packets take hop by hop (a few round trips at the start, so less in long flows), and queues (a short one loses
packets, and who loses more ends later; in a long one acknowledgements wait behind data).
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from simulator.fluid import simulate
from simulator.routes import controller_router
from topologies.builders import build
from topologies.model import NO_FAILURES, Fabric, FabricKind, FabricSpec, LinkKind
from topologies.scale import Scale
from workloads.schedule import Schedule, Tag, Transfer

SOURCE = Path(__file__).resolve().parents[2] / "benchmarks" / "peers" / "ns3_flows.cc"
MODULES = ("core", "network", "internet", "point-to-point", "applications", "traffic-control")
FRAME_BYTES, PAYLOAD_BYTES, ACKNOWLEDGEMENT_BYTES = 1502, 1448, 54
GOODPUT = PAYLOAD_BYTES / FRAME_BYTES
ACKNOWLEDGED = 1 / (1 + ACKNOWLEDGEMENT_BYTES / (2 * FRAME_BYTES))
"""Share of a link's rate that is left to data when as much goes the other way, acknowledged every second segment."""
DELAY_S = 1e-6
LONG_QUEUE, SHORT_QUEUE = 20_000, 100
"""Packets: no loss in any case here, and some."""

WINDOW_BYTES, WIDE_BYTES = 1 << 18, 1 << 20
"""A window that fills the links without standing in queues for long, and one that does."""
TAG = Tag("send-recv", "send-recv", "all", 0)

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None or not Path("/usr/include/ns3/core-module.h").exists(),
    reason="ns-3 is not installed (Debian: libns3-dev and g++)",
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("ns3") / "ns3_flows"
    libraries = [f"-lns3-{module}" for module in MODULES]
    done = subprocess.run(["g++", "-O1", "-std=c++17", str(SOURCE), "-o", str(made), *libraries],
                          capture_output=True, text=True, check=False, timeout=180)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return made


def fabric_of(domains: int, rails: int) -> Fabric:
    """NICs of 1 Gbit/s, NVLink of 9."""
    return build(FabricSpec(FabricKind.RAIL_ONLY, domains, rails, nic_rate_mbps=1000.0, nvlink_rate_mbps=9000.0))


def fluid(fabric: Fabric, flows: list[tuple[int, int, int]]) -> list[float]:
    transfers = tuple(Transfer(number, *flow, (), TAG) for number, flow in enumerate(flows))
    schedule = Schedule("flows", "send-recv", "direct", len(fabric.gpus), 2, 1, "", 0, transfers)
    record = simulate(fabric, schedule, controller_router(fabric), scale=Scale(1, 1), goodput=GOODPUT)
    return [transfer.end_s or 0.0 for transfer in record.transfers]


def packets(
    program: Path,
    fabric: Fabric,
    flows: list[tuple[int, int, int]],
    queue_packets: int = LONG_QUEUE,
    window_bytes: int = WINDOW_BYTES,
) -> list[float]:
    """Ends of the flows (source rank, destination rank, bytes) in ns-3, over the controller's paths."""
    number = {switch.id: at for at, switch in enumerate(fabric.switches)}
    wires = [link for link in fabric.links if link.kind is not LinkKind.HOST]
    lines = [f"{len(number)} {len(wires)} {len(flows)} {queue_packets} {window_bytes} {DELAY_S}"]
    lines += [f"{number[link.a]} {number[link.b]} {link.rate_mbps * 1e6:.0f}" for link in wires]
    paths = controller_router(fabric)(NO_FAILURES)
    for src, dst, size_bytes in flows:
        nodes = [fabric.gpu_of_rank(src).switch_id]
        for link in (fabric.link(link_id) for link_id in paths(src, dst) or ()):
            if link.kind is not LinkKind.HOST:
                nodes.append(link.other(nodes[-1]))
        lines.append(f"0 {size_bytes} {len(nodes)} {' '.join(str(number[node]) for node in nodes)}")
    done = subprocess.run([str(program)], input="\n".join(lines), capture_output=True, text=True, check=False,
                          timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.split()]


def test_incast_over_a_rail_switch(program: Path) -> None:
    """Three to one: the receiver's NIC is never idle, so what all take together is the model's to 0.2 %."""
    fabric = fabric_of(4, 1)
    flows = [(src, 3, 10**7) for src in range(3)]
    expected, found = fluid(fabric, flows), packets(program, fabric, flows)
    report("incast", expected, found)
    assert max(found) == pytest.approx(max(expected), rel=0.002)
    assert found == pytest.approx(expected, rel=0.05)


def test_a_ring_shares_its_links_with_acknowledgements(program: Path) -> None:
    """Every NIC sends data and the acknowledgements of what it receives; with their bytes the model is right again."""
    fabric = fabric_of(4, 1)
    flows = [(rank, (rank + 1) % 4, 2 * 10**7) for rank in range(4)]
    expected, found = fluid(fabric, flows), packets(program, fabric, flows)
    report("ring", expected, found)
    assert max(found) == pytest.approx(max(expected) / ACKNOWLEDGED, rel=0.002)


def test_relayed_and_direct_flows_share_a_nic(program: Path) -> None:
    """A parking lot: rank 0 to 3 is relayed by NVLink to rank 1, whose NIC it shares with a flow of half the size."""
    fabric = fabric_of(2, 2)
    flows = [(0, 3, 2 * 10**7), (1, 3, 10**7)]
    expected, found = fluid(fabric, flows), packets(program, fabric, flows)
    report("relay", expected, found)
    assert max(found) == pytest.approx(max(expected), rel=0.002)
    assert found == pytest.approx(expected, rel=0.05)


def test_slow_start_takes_a_time_of_its_own(program: Path) -> None:
    """It does not grow with the flow, so a flow of ten times the bytes is ten times nearer to the model."""
    fabric = fabric_of(2, 1)
    beyond = []
    for size_bytes in (10**6, 10**7):
        flow = [(0, 1, size_bytes)]
        expected, found = fluid(fabric, flow), packets(program, fabric, flow)
        report(f"one flow of {size_bytes:,} bytes", expected, found)
        beyond.append(found[0] / expected[0] - 1)
    assert beyond[0] < 0.005
    assert beyond[1] == pytest.approx(beyond[0] / 10, rel=0.3)


def test_a_queue_that_loses_makes_shares_unequal(program: Path) -> None:
    """The model has no loss. The receiver's NIC stays busy: who ends when differs, not when the last one does."""
    fabric = fabric_of(4, 1)
    flows = [(src, 3, 10**7) for src in range(3)]
    expected, found = fluid(fabric, flows), packets(program, fabric, flows, SHORT_QUEUE)
    report("incast, queues of 100 packets", expected, found)
    assert max(found) == pytest.approx(max(expected), rel=0.002)
    assert min(found) < 0.97 * min(expected)


def test_in_a_long_queue_acknowledgements_wait(program: Path) -> None:
    """A ring with windows that stand in the queues. The same one with shorter windows is within 0.2 %, see above."""
    fabric = fabric_of(4, 1)
    flows = [(rank, (rank + 1) % 4, 2 * 10**7) for rank in range(4)]
    expected, found = fluid(fabric, flows), packets(program, fabric, flows, window_bytes=WIDE_BYTES)
    report("ring, windows of 1 MiB", expected, found)
    assert 1.03 < max(found) * ACKNOWLEDGED / max(expected) < 1.12


def report(name: str, expected: list[float], found: list[float]) -> None:
    """For those who look: ``pytest -s``."""
    apart = [f"{100 * (two / one - 1):+.3f} %" for one, two in zip(expected, found, strict=True)]
    print(f"\n{name}: ns-3 ends later than the model by {', '.join(apart)}")
