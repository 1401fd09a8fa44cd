"""Where packets really go: marked probes captured hop by hop, held against the declared path and the port counters."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from controller.routing import Path, Routes
from emulator.errors import EmulatorError
from emulator.kernel import die_with_parent
from emulator.names import interface_name
from topologies.addresses import ipv4, mac
from topologies.model import HOST_PORT, Failures, Gpu

if TYPE_CHECKING:
    from emulator.emulation import Emulation

Sighting = tuple[str, str]
"""One interface and the direction of the packet there, ``in`` or ``out`` as the switch sees it."""

PROBE_TIMEOUT_S = 2.0
_PORT_LINE = re.compile(r"port\s+\"?([\w.-]+)\"?:.*rx pkts=(\d+).*")
_TX_LINE = re.compile(r"tx pkts=(\d+)")


def declared_sightings(path: Path) -> tuple[Sighting, ...]:
    """Where a packet on ``path`` would be seen, in order."""
    return tuple(
        sighting
        for hop in path.hops
        for sighting in (
            (interface_name(hop.switch_id, hop.in_port), "in"),
            (interface_name(hop.switch_id, hop.out_port), "out"),
        )
    )


def parse_port_counters(text: str) -> dict[int, tuple[int, int]]:
    """(packets received, packets sent) by port number, from ``ovs-ofctl dump-ports``; the local port is left out."""
    counters: dict[int, tuple[int, int]] = {}
    port, received = None, 0
    for line in text.splitlines():
        head = _PORT_LINE.search(line)
        if head:
            port = int(head.group(1)) if head.group(1).isdigit() else None
            received = int(head.group(2))
        tail = _TX_LINE.search(line)
        if tail and port is not None:
            counters[port] = (received, int(tail.group(1)))
            port = None
    return counters


def disagreement(
    declared: Sequence[Sighting] | None,
    captured: Sequence[Sequence[Sighting]],
    counted: dict[Sighting, int],
) -> str:
    """Why declared path, captured probes and port counters do not tell the same story; empty when they do.

    ``captured`` has one sequence per probe, ``counted`` the packets that each port of the declared path counted.
    """
    if declared is None:
        seen = [probe for probe in captured if probe]
        return "" if not seen else f"no path is declared, but a probe was seen at {seen[0][-1][0]}"
    for number, probe in enumerate(captured, start=1):
        if tuple(probe) == tuple(declared):
            continue
        for position, wanted in enumerate(declared):
            if position >= len(probe):
                return f"probe {number} {_vanished(probe[-1] if probe else None, wanted)}"
            if probe[position] != wanted:
                got = probe[position]
                return f"probe {number} was at {got[0]} ({got[1]}) where {wanted[0]} ({wanted[1]}) is declared"
        return f"probe {number} went on to {probe[len(declared)][0]} after its declared end"
    for (interface, direction), packets in counted.items():
        if packets < len(captured):
            return f"port {interface} counted {packets} packets {direction}, but {len(captured)} probes passed it"
    return ""


def _vanished(last: Sighting | None, wanted: Sighting) -> str:
    """Where a probe has got lost that was seen at ``last`` and should have been seen at ``wanted``."""
    if last is None:
        return f"was seen nowhere: it did not even arrive at {wanted[0]}"
    if last[1] == "out":
        return (
            f"vanished on the link between {last[0]} and {wanted[0]}: it was sent out of {last[0]} "
            f"and never came in at {wanted[0]}"
        )
    return f"vanished in a switch: it came in at {last[0]} and was not sent on to {wanted[0]}"


def trace_probes(emulation: Emulation, src_id: str, dst_id: str, count: int = 5) -> dict[str, Any]:
    """Send ``count`` probes from ``src_id`` to ``dst_id`` and say which way they went; JSON-ready.

    Keys: ``declared`` and per probe ``captured`` (interface, direction, seconds since the first hop, TTL), ``relays``,
    ``arrived``, ``counters`` (packets per port of the declared path), ``agree`` and ``disagreement``. Raises
    UnknownElementError for an unknown GPU.
    """
    fabric = emulation.fabric
    src, dst = fabric.gpu(src_id), fabric.gpu(dst_id)
    if src == dst:
        raise EmulatorError(f"{src_id} to itself is no path; name two different GPUs")
    if not 1 <= count <= 1000:
        raise EmulatorError(f"{count} probes cannot be sent; use 1 to 1000")
    failures = Failures(links=frozenset(emulation.links.links_unused()))
    path = Routes(fabric, failures, emulation.policy).path(src, dst)
    declared = declared_sightings(path) if path else None
    switches = [hop.switch_id for hop in path.hops] if path else []
    before = _counters(emulation, switches)
    probes = _send_probes(emulation, src, dst, count)
    after = _counters(emulation, switches)
    counted = {}
    for hop in path.hops if path else ():
        for port, direction, column in ((hop.in_port, "in", 0), (hop.out_port, "out", 1)):
            key = (interface_name(hop.switch_id, port), direction)
            counted[key] = after[hop.switch_id][port][column] - before[hop.switch_id][port][column]
    captured = [[(hop["interface"], hop["direction"]) for hop in probe] for probe in probes]
    reason = disagreement(declared, captured, counted)
    last = interface_name(dst.switch_id, HOST_PORT)
    return {
        "src": src.id,
        "dst": dst.id,
        "sent": count,
        "arrived": sum(bool(probe) and probe[-1] == (last, "out") for probe in captured),
        "relays": [gpu.id for gpu in path.relays] if path else [],
        "declared": [list(sighting) for sighting in declared] if declared else None,
        "captured": [
            [[hop["interface"], hop["direction"], hop["t_s"] - probe[0]["t_s"], hop["ttl"]] for hop in probe]
            for probe in probes
        ],
        "counters": [[interface, direction, packets] for (interface, direction), packets in counted.items()],
        "agree": not reason,
        "disagreement": reason,
    }


def _counters(emulation: Emulation, switches: Sequence[str]) -> dict[str, dict[int, tuple[int, int]]]:
    return {
        switch_id: parse_port_counters(emulation.ovs.ofctl("dump-ports", switch_id))
        for switch_id in dict.fromkeys(switches)
    }


def _send_probes(emulation: Emulation, src: Gpu, dst: Gpu, count: int) -> list[list[dict[str, Any]]]:
    namespace = emulation.devices.namespaces[src.id]
    order = {
        "namespace_fd": namespace,
        "src_mac": mac(src.domain, src.rail),
        "dst_mac": mac(dst.domain, dst.rail),
        "src_ip": ipv4(src.domain, src.rail),
        "dst_ip": ipv4(dst.domain, dst.rail),
        "count": count,
        "last_interface": interface_name(dst.switch_id, HOST_PORT),
        "timeout_s": PROBE_TIMEOUT_S,
    }
    done = subprocess.run(
        [sys.executable, "-m", "emulator.hop_probe"],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        check=False,
        pass_fds=(namespace,),
        preexec_fn=die_with_parent,
    )
    if done.returncode != 0:
        last_words = done.stderr.strip().splitlines() or ["no message"]
        raise EmulatorError(f"the probe sender failed: {last_words[-1]}")
    probes: list[list[dict[str, Any]]] = json.loads(done.stdout)["probes"]
    return probes
