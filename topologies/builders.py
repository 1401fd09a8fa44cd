"""Builders: from a :class:`FabricSpec` to the fabric's switches and links."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

from topologies.errors import FabricError
from topologies.model import (
    HOST_PORT,
    NIC_PORT,
    NVLINK_PORT,
    SECOND_NIC_PORT,
    Fabric,
    FabricKind,
    FabricSpec,
    Gpu,
    Link,
    LinkKind,
    Switch,
    SwitchKind,
)
from topologies.presets import preset


@dataclass
class _Parts:
    """Switches and links as they are added; hands out datapath ids and port numbers."""

    switches: list[Switch] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    next_port: dict[str, int] = field(default_factory=dict)

    def switch(self, switch_id: str, kind: SwitchKind, **where: int) -> str:
        self.switches.append(Switch(switch_id, kind, len(self.switches) + 1, **where))
        self.next_port[switch_id] = 1
        return switch_id

    def port(self, switch_id: str) -> int:
        number = self.next_port[switch_id]
        self.next_port[switch_id] = number + 1
        return number

    def link(self, kind: LinkKind, link_id: str, a: str, a_port: int, b: str, b_port: int, rate_mbps: float) -> None:
        self.links.append(Link(link_id, kind, a, a_port, b, b_port, rate_mbps))


def build(spec: FabricSpec) -> Fabric:
    """The fabric that ``spec`` describes; raises FabricError for values that no fabric can have.

    The spec of the result is normalised: defaults that depend on other values are filled in, and an ideal fabric of
    D x K GPUs becomes one domain of D*K.
    """
    spec = _normalised(spec)
    gpus = tuple(Gpu(domain, rail) for domain in range(spec.domains) for rail in range(spec.rails))
    parts = _Parts()
    for gpu in gpus:
        parts.switch(gpu.switch_id, SwitchKind.GPU, domain=gpu.domain, rail=gpu.rail)
    for domain in range(spec.domains):
        parts.switch(f"nv{domain}", SwitchKind.NVSWITCH, domain=domain)
    for gpu in gpus:
        fast = max(spec.nvlink_rate_mbps, spec.nic_rate_mbps)
        parts.link(LinkKind.HOST, f"{gpu.id}-{gpu.switch_id}", gpu.id, 0, gpu.switch_id, HOST_PORT, fast)
        parts.link(
            LinkKind.NVLINK, f"{gpu.id}-nv{gpu.domain}", gpu.switch_id, NVLINK_PORT,
            f"nv{gpu.domain}", gpu.rail + 1, spec.nvlink_rate_mbps,
        )  # fmt: skip
    if spec.kind is not FabricKind.IDEAL:
        for plane in range(spec.uplinks):
            _add_plane(parts, spec, gpus, plane)
    return Fabric(spec, gpus, tuple(parts.switches), tuple(parts.links))


def _add_plane(parts: _Parts, spec: FabricSpec, gpus: tuple[Gpu, ...], plane: int) -> None:
    """Add the switches that the uplink number ``plane`` of every NIC is joined to."""
    assert spec.domains_per_leaf is not None
    suffix = f"p{plane}" if plane else ""
    units = math.ceil(spec.domains / spec.domains_per_leaf)
    leaf_of: dict[tuple[int, int], str] = {}
    groups: list[list[str]] = []
    if spec.kind is FabricKind.SPINE_LEAF:
        groups.append([])
        for unit in range(units):
            leaf = parts.switch(f"leaf{unit}{suffix}", SwitchKind.LEAF, unit=unit, plane=plane)
            groups[0].append(leaf)
            leaf_of.update({(unit, rail): leaf for rail in range(spec.rails)})
    elif spec.kind is FabricKind.RAIL_OPTIMIZED:
        groups.append([])
        for unit in range(units):
            for rail in range(spec.rails):
                leaf_id = f"leaf{unit * spec.rails + rail}{suffix}"
                leaf = parts.switch(leaf_id, SwitchKind.LEAF, rail=rail, unit=unit, plane=plane)
                groups[0].append(leaf)
                leaf_of[unit, rail] = leaf
    else:
        for rail in range(spec.rails):
            group = []
            for unit in range(units):
                if units == 1:
                    leaf = parts.switch(f"rail{rail}{suffix}", SwitchKind.RAIL, rail=rail, unit=0, plane=plane)
                else:
                    leaf_id = f"rail{rail}l{unit}{suffix}"
                    leaf = parts.switch(leaf_id, SwitchKind.RAIL_LEAF, rail=rail, unit=unit, plane=plane)
                group.append(leaf)
                leaf_of[unit, rail] = leaf
            groups.append(group)

    nic_port = SECOND_NIC_PORT if plane else NIC_PORT
    for gpu in gpus:
        leaf = leaf_of[gpu.domain // spec.domains_per_leaf, gpu.rail]
        parts.link(
            LinkKind.NIC, f"{gpu.id}-{leaf}", gpu.switch_id, nic_port, leaf, parts.port(leaf),
            spec.nic_rate_mbps / spec.uplinks,
        )  # fmt: skip
    for index, group in enumerate(groups):
        if len(group) > 1:
            _add_spines(parts, spec, group, index, plane, suffix)


def _add_spines(parts: _Parts, spec: FabricSpec, leaves: list[str], rail: int, plane: int, suffix: str) -> None:
    """Join ``leaves`` by spines; on rail-only these are the spines of one rail."""
    assert spec.spines is not None
    rail_clos = spec.kind is FabricKind.RAIL_ONLY
    down_ports = _down_ports_per_leaf(spec)
    uplink_rate_mbps = (
        down_ports * spec.nic_rate_mbps / spec.uplinks / spec.oversubscription / (spec.spines * spec.parallel_links)
    )
    for unit in range(spec.spines):
        if rail_clos:
            spine_id, kind = f"rail{rail}s{unit}{suffix}", SwitchKind.RAIL_SPINE
        else:
            spine_id, kind = f"spine{unit}{suffix}", SwitchKind.SPINE
        spine = parts.switch(spine_id, kind, rail=rail if rail_clos else -1, unit=unit, plane=plane)
        for leaf in leaves:
            for copy in range(1, spec.parallel_links + 1):
                link_id = f"{leaf}-{spine}" + (f"#{copy}" if copy > 1 else "")
                parts.link(LinkKind.FABRIC, link_id, leaf, parts.port(leaf), spine, parts.port(spine), uplink_rate_mbps)


def _down_ports_per_leaf(spec: FabricSpec) -> int:
    assert spec.domains_per_leaf is not None
    return spec.domains_per_leaf * (spec.rails if spec.kind is FabricKind.SPINE_LEAF else 1)


def _normalised(spec: FabricSpec) -> FabricSpec:
    """``spec`` with its values checked and its dependent defaults filled in."""
    for name, minimum in (("domains", 1), ("rails", 1), ("parallel_links", 1)):
        _check_count(name, getattr(spec, name), minimum)
    for name, minimum in (("spines", 0), ("switch_ports", 2), ("domains_per_leaf", 1)):
        if getattr(spec, name) is not None:
            _check_count(name, getattr(spec, name), minimum)
    for name in ("nic_rate_mbps", "nvlink_rate_mbps", "oversubscription"):
        value = getattr(spec, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            raise FabricError(f"{name} is {value!r}; it must be a number above 0")
    if spec.uplinks not in (1, 2):
        raise FabricError(f"uplinks is {spec.uplinks!r}; a NIC has 1 uplink, or 2 (dual-homed)")

    if spec.kind is FabricKind.IDEAL:
        return dataclasses.replace(
            spec, domains=1, rails=spec.domains * spec.rails, spines=0, domains_per_leaf=1, uplinks=1
        )
    return _with_leaves(spec)


def _with_leaves(spec: FabricSpec) -> FabricSpec:
    """Fill in ``domains_per_leaf`` and ``spines``, and check them against the switches' ports."""
    nics_per_domain = spec.rails if spec.kind is FabricKind.SPINE_LEAF else 1
    ports = spec.switch_ports
    domains_per_leaf = spec.domains_per_leaf
    if domains_per_leaf is None:
        if ports is None:
            domains_per_leaf = 1 if spec.kind is FabricKind.SPINE_LEAF else spec.domains
        elif spec.kind is FabricKind.RAIL_ONLY and spec.domains <= ports:
            domains_per_leaf = spec.domains
        else:
            down_ports = math.floor(ports * spec.oversubscription / (1 + spec.oversubscription))
            domains_per_leaf = down_ports // nics_per_domain
            if domains_per_leaf < 1:
                raise FabricError(
                    f"switch_ports is {ports}: a leaf has room for {down_ports} NICs at {spec.oversubscription:g}:1 "
                    f"oversubscription, but one domain brings {nics_per_domain}; use larger switches"
                )
    domains_per_leaf = min(domains_per_leaf, spec.domains)
    units = math.ceil(spec.domains / domains_per_leaf)
    leaves = units * (spec.rails if spec.kind is FabricKind.RAIL_OPTIMIZED else 1)
    if leaves == 1:
        if spec.spines:
            raise FabricError(
                f"spines is {spec.spines}, but there is only one switch to join (per rail, on rail-only); "
                "leave spines out, or set domains_per_leaf or switch_ports so that several leaves are needed"
            )
        return dataclasses.replace(spec, domains_per_leaf=domains_per_leaf, spines=0)
    down_ports = domains_per_leaf * nics_per_domain
    spines = spec.spines
    if spines == 0:
        raise FabricError(f"spines is 0, but {leaves} leaves need at least one to be joined; leave spines out")
    if spines is None:
        spines = math.ceil(down_ports / spec.oversubscription / spec.parallel_links)
    if ports is not None:
        if down_ports + spines * spec.parallel_links > ports:
            raise FabricError(
                f"a leaf needs {down_ports} ports down and {spines * spec.parallel_links} up, but switch_ports is "
                f"{ports}; use fewer domains_per_leaf, fewer spines or larger switches"
            )
        if leaves * spec.parallel_links > ports:
            raise FabricError(
                f"a spine needs {leaves * spec.parallel_links} ports for {leaves} leaves, but switch_ports is {ports}: "
                "a third tier would be needed, which is not modelled; use larger switches"
            )
    return dataclasses.replace(spec, domains_per_leaf=domains_per_leaf, spines=spines)


def _check_count(name: str, value: object, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise FabricError(f"{name} is {value!r}; it must be a whole number of at least {minimum}")


def preset_spec(preset_name: str, kind: FabricKind, domains: int, rails: int | None = None) -> FabricSpec:
    """A spec with the rates (and, without ``rails``, the domain size) of a hardware preset."""
    hardware = preset(preset_name)
    return FabricSpec(
        kind=kind,
        domains=domains,
        rails=hardware.gpus_per_domain if rails is None else rails,
        nic_rate_mbps=hardware.nic_rate_mbps,
        nvlink_rate_mbps=hardware.nvlink_rate_mbps,
    )
