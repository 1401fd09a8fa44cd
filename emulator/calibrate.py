"""What this machine can forward, and whether a scale asks for more than that.

The unit is Gbit/s times switch passes: a flow of 1 Gbit/s over three switches costs 3.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.errors import EmulatorError
from emulator.kernel import inside_network_namespace
from topologies.addresses import ipv4
from topologies.model import Fabric, Gpu, LinkKind
from topologies.scale import Scale, link_rate_mbps

if TYPE_CHECKING:
    from emulator.emulation import Emulation

PATH = Path(__file__).resolve().parent.parent / ".calibration.json"
USABLE_SHARE = 0.85
"""Share of the measured capacity that a scale may ask for; the rest is for hosts, controller and measurement."""

RTT_PORT = 5996
RTT_SAMPLES = 40
WINDOW_S = 5.0


@dataclass(frozen=True)
class Calibration:
    """What a machine was measured to do. Round-trip times are medians on an idle fabric, by switches on the way."""

    gbps_passes: float
    packets_per_s: float
    rtt_ms: dict[str, float]
    cpus: int
    datapath: str
    measured_s: float

    def save(self) -> None:
        """Keep it for later judgements."""
        PATH.write_text(json.dumps(asdict(self), indent=2) + "\n")


def stored() -> Calibration | None:
    """The calibration kept on this machine, None if there is none that can be read."""
    try:
        return Calibration(**json.loads(PATH.read_text()))
    except (OSError, ValueError, TypeError):
        return None


@dataclass(frozen=True)
class Judgement:
    """Whether a scale asks for more than a machine can forward; ``holding_rate`` is the rate factor that would hold."""

    faithful: bool
    needed_gbps_passes: float
    usable_gbps_passes: float
    holding_rate: float

    @property
    def sentence(self) -> str:
        """What to tell the user."""
        if self.faithful:
            return (
                f"faithful: all links saturated need {self.needed_gbps_passes:.1f} of "
                f"{self.usable_gbps_passes:.1f} Gbit/s x passes"
            )
        return (
            f"too fast for this machine: all links saturated need {self.needed_gbps_passes:.1f} Gbit/s x passes, "
            f"{self.usable_gbps_passes:.1f} are usable; a scale.rate of {self.holding_rate:.0f} would hold"
        )


def needed_gbps_passes(fabric: Fabric, scale: Scale) -> float:
    """What the heaviest pattern asks for: every NVLink full with flows over three switches, or every NIC over five."""
    load = {LinkKind.NVLINK: 0.0, LinkKind.NIC: 0.0}
    for link in fabric.links:
        if link.kind in load:
            load[link.kind] += link_rate_mbps(link, scale) / 1000
    return max(3 * load[LinkKind.NVLINK], 5 * load[LinkKind.NIC])


def judge(fabric: Fabric, scale: Scale, calibration: Calibration) -> Judgement:
    """Hold a scale for a fabric against what the machine can do."""
    needed = needed_gbps_passes(fabric, scale)
    usable = calibration.gbps_passes * USABLE_SHARE
    return Judgement(needed <= usable, needed, usable, scale.rate * max(1.0, needed / usable))


def measure(emulation: Emulation) -> dict[str, Any]:
    """Measure on a fabric whose links are faster than the machine: capacity, packets a second, round-trip times."""
    fabric = emulation.fabric
    domains, rails = fabric.spec.domains, fabric.spec.rails
    rtt_ms = {
        "3 switches (NVLink)": _rtt_ms(emulation, Gpu(0, 0), Gpu(0, 1)),
        "3 switches (rail)": _rtt_ms(emulation, Gpu(0, 0), Gpu(1, 0)),
        "5 switches (cross-rail)": _rtt_ms(emulation, Gpu(0, 0), Gpu(1, 1)),
    }
    pairs = [(Gpu(d, r).id, Gpu(d, (r + 1) % rails).id) for d in range(domains) for r in range(rails)]
    before = _switch_packets(emulation)
    started_s = time.monotonic()
    steady = emulation.steady(pairs, WINDOW_S, threading.Event())
    packets_per_s = (_switch_packets(emulation) - before) / (time.monotonic() - started_s)
    calibration = Calibration(
        gbps_passes=3 * sum(steady["rates_mbps"]) / 1000,
        packets_per_s=packets_per_s,
        rtt_ms=rtt_ms,
        cpus=os.cpu_count() or 1,
        datapath="kernel" if emulation.ovs.kernel_datapath else "userspace",
        measured_s=time.time(),
    )
    return asdict(calibration)


def _switch_packets(emulation: Emulation) -> int:
    """Packets that all switches have sent so far, from the kernel's counters."""
    return sum(message.get_attr("IFLA_STATS64")["tx_packets"] for message in emulation.devices.netlink.get_links())


def _rtt_ms(emulation: Emulation, src: Gpu, dst: Gpu) -> float:
    """Median round-trip time of small datagrams between two GPUs."""
    namespaces = emulation.devices.namespaces
    with inside_network_namespace(namespaces[dst.id]):
        mirror = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    mirror.bind(("0.0.0.0", RTT_PORT))
    with inside_network_namespace(namespaces[src.id]):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with mirror, sender, selectors.DefaultSelector() as selector:
        selector.register(mirror, selectors.EVENT_READ)
        selector.register(sender, selectors.EVENT_READ)
        samples = [_round_trip_s(selector, sender, mirror, dst) for _ in range(RTT_SAMPLES)]
    return statistics.median(samples) * 1000


def _round_trip_s(
    selector: selectors.BaseSelector, sender: socket.socket, mirror: socket.socket, dst: Gpu, timeout_s: float = 2.0
) -> float:
    started_s = time.monotonic()
    sender.sendto(b"?", (ipv4(dst.domain, dst.rail), RTT_PORT))
    while time.monotonic() < started_s + timeout_s:
        for key, _ in selector.select(timeout_s):
            if key.fileobj is mirror:
                data, address = mirror.recvfrom(16)
                mirror.sendto(data, address)
            else:
                sender.recv(16)
                return time.monotonic() - started_s
    raise EmulatorError(f"no answer from {dst.id} within {timeout_s:g} s while measuring round-trip times")


def rows(calibration: Calibration) -> Sequence[tuple[str, str]]:
    """Name and value of every measured figure, for a table."""
    return [
        ("capacity", f"{calibration.gbps_passes:.1f} Gbit/s x switch passes"),
        ("packets", f"{calibration.packets_per_s:,.0f} a second through all switches"),
        *((f"round trip, {hops}", f"{value:.2f} ms") for hops, value in calibration.rtt_ms.items()),
        ("datapath", calibration.datapath),
        ("cores", str(calibration.cpus)),
    ]
