"""The way that the installed rules give a packet. Open vSwitch is asked at each hop, so it is any controller's way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from emulator.hop_probe import PROBE_PORT
from emulator.hops import Sighting, disagreement, trace_probes
from emulator.names import interface_name
from topologies.addresses import ipv4, mac
from topologies.model import HOST_PORT, Gpu, LinkKind

if TYPE_CHECKING:
    from emulator.emulation import Emulation

MAX_HOPS = 64
_OUTPUT = re.compile(r"^\s*(?:output:(\d+)|(IN_PORT))\s*$")
_FIELD = re.compile(r"\b(dl_src|dl_dst|nw_tos|nw_ttl)=([0-9a-f:]+)")


def parse_trace(text: str, in_port: int) -> tuple[list[int], dict[str, str]]:
    """(ports by which the packet leaves, header fields that it then has) from what ``ofproto/trace`` prints."""
    ports = []
    fields: dict[str, str] = {}
    skipped = "skipping output to input port"
    for line in text.splitlines():
        found = _OUTPUT.match(line)
        if found:
            ports.append(in_port if found.group(2) else int(found.group(1)))
        elif skipped in line and ports:
            ports.pop()
        elif line.startswith("Final flow:"):
            fields = dict(_FIELD.findall(line))
    return ports, fields


def walk_rules(emulation: Emulation, src: Gpu, dst: Gpu) -> tuple[list[Sighting], str]:
    """(where a probe from ``src`` to ``dst`` passes by the rules as installed, how its way ends)."""
    fabric = emulation.fabric
    fields = {"dl_src": mac(src.domain, src.rail), "dl_dst": mac(dst.domain, dst.rail), "nw_tos": "0", "nw_ttl": "64"}
    switch_id, in_port = src.switch_id, HOST_PORT
    sightings: list[Sighting] = []
    for _ in range(MAX_HOPS):
        sightings.append((interface_name(switch_id, in_port), "in"))
        headers = ",".join(f"{name}={value}" for name, value in fields.items())
        flow = (
            f"in_port={in_port},udp,nw_src={ipv4(src.domain, src.rail)},nw_dst={ipv4(dst.domain, dst.rail)},"
            f"udp_src={PROBE_PORT},udp_dst={PROBE_PORT},{headers}"
        )
        ports, changed = parse_trace(emulation.ovs.trace(switch_id, flow), in_port)
        fields.update(changed)
        if not ports:
            return sightings, f"{switch_id} drops it"
        if len(ports) > 1:
            return sightings, f"{switch_id} sends copies out of ports {', '.join(map(str, ports))}"
        sightings.append((interface_name(switch_id, ports[0]), "out"))
        link = fabric.link_by_port.get((switch_id, ports[0]))
        if link is None:
            return sightings, f"{switch_id} sends it out of port {ports[0]}, which joins it to nothing"
        if link.kind is LinkKind.HOST:
            return sightings, "" if link.a == dst.id else f"it is handed to {link.a}"
        switch_id = link.other(switch_id)
        in_port = link.port(switch_id)
    return sightings, f"it is still under way after {MAX_HOPS} switches: a loop"


def three_paths(emulation: Emulation, src_id: str, dst_id: str, count: int) -> dict[str, Any]:
    """The declared path, the path by the rules as installed and the path that probes took; JSON-ready.

    As :func:`emulator.hops.trace_probes`, with ``rules`` (interface and direction per hop) and ``rules_end`` (why the
    way by the rules ends early, or empty); ``agree`` and ``disagreement`` are about all three.
    """
    result = trace_probes(emulation, src_id, dst_id, count)
    fabric = emulation.fabric
    rules, end = walk_rules(emulation, fabric.gpu(src_id), fabric.gpu(dst_id))
    declared = [(str(name), str(direction)) for name, direction in result["declared"] or []]
    reason = result["disagreement"]
    if result["declared"] is None:
        delivers = [what for what, yes in (("the rules", not end), ("probes", result["arrived"] > 0)) if yes]
        reason = f"no path is declared, but {' and '.join(delivers)} get there" if delivers else ""
    elif end:
        reason = f"by the rules as installed {end}" + (f"; {reason}" if reason else "")
    elif rules != declared:
        by_rules = disagreement(declared, [rules], {}).replace("probe 1", "a packet by the rules")
        reason = by_rules + (f"; {reason}" if reason else "")
    return {**result, "rules": [list(each) for each in rules], "rules_end": end, "agree": not reason,
            "disagreement": reason}  # fmt: skip


def installed(emulation: Emulation, switch_id: str | None) -> dict[str, Any]:
    """Flows and groups of one switch, or of all, as Open vSwitch holds them: by switch id, lists of lines.

    Raises UnknownElementError for a name that is no switch's.
    """
    fabric = emulation.fabric
    asked = fabric.switches if switch_id is None else [fabric.switch(switch_id)]
    statistics = "--no-stats" if switch_id is None else "--stats"
    return {
        each.id: {
            "flows": _entries(emulation.ovs.ofctl(statistics, "dump-flows", each.id)),
            "groups": _entries(emulation.ovs.ofctl("dump-groups", each.id)),
        }
        for each in asked
    }


def _entries(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if "actions=" in line]
