"""The fabric model: an immutable multigraph of GPU switches, NVSwitches, rail switches, leaves and spines.

A GPU is named by its HB domain ``d`` and its rail ``r``. Its host ``d3r1`` hangs on its own switch ``s3r1``, the
forwarding choice inside that GPU. All rates in the model are those of the real machine, in Mbit/s per direction;
:mod:`topologies.scale` turns them into emulated ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from topologies.errors import FabricError, UnknownElementError
from topologies.near import did_you_mean


class FabricKind(str, Enum):
    """The fabrics that can be built."""

    RAIL_ONLY = "rail-only"
    RAIL_OPTIMIZED = "rail-optimized"
    SPINE_LEAF = "spine-leaf"
    IDEAL = "ideal"


class SwitchKind(str, Enum):
    """What a switch stands for."""

    GPU = "gpu"
    NVSWITCH = "nvswitch"
    RAIL = "rail"
    RAIL_LEAF = "rail-leaf"
    RAIL_SPINE = "rail-spine"
    LEAF = "leaf"
    SPINE = "spine"


class LinkKind(str, Enum):
    """What a link stands for. HOST joins a GPU to its own switch and is no failure target."""

    HOST = "host"
    NIC = "nic"
    NVLINK = "nvlink"
    FABRIC = "fabric"


HOST_PORT = 1
NIC_PORT = 2
NVLINK_PORT = 3
SECOND_NIC_PORT = 4

_GPU_ID = re.compile(r"d(\d+)r(\d+)\Z")


@dataclass(frozen=True, order=True)
class Gpu:
    """One GPU: its HB domain and its rail (local rank in the domain)."""

    domain: int
    rail: int

    @property
    def id(self) -> str:
        """Id of the GPU and of its emulated host, e.g. ``d3r1``."""
        return f"d{self.domain}r{self.rail}"

    @property
    def switch_id(self) -> str:
        """Id of the switch that stands for the forwarding choice inside the GPU, e.g. ``s3r1``."""
        return f"s{self.domain}r{self.rail}"


@dataclass(frozen=True)
class Switch:
    """One OpenFlow switch. ``dpid`` is assigned and never derived from the name; the first one is 1.

    ``domain``, ``rail``, ``unit`` and ``plane`` are -1 where they mean nothing. ``unit`` numbers the leaves of one
    rail (or of the fabric), ``plane`` is 1 for the switches of a dual-homed NIC's second uplink, else 0.
    """

    id: str
    kind: SwitchKind
    dpid: int
    domain: int = -1
    rail: int = -1
    unit: int = -1
    plane: int = -1


@dataclass(frozen=True)
class Link:
    """One cable between port ``a_port`` of node ``a`` and port ``b_port`` of node ``b``; full duplex.

    ``a`` is the end nearer to the GPU. For HOST links ``a`` is the GPU's host id and ``a_port`` is 0.
    """

    id: str
    kind: LinkKind
    a: str
    a_port: int
    b: str
    b_port: int
    rate_mbps: float

    def other(self, node_id: str) -> str:
        """The node at the other end than ``node_id``."""
        return self.b if node_id == self.a else self.a

    def port(self, node_id: str) -> int:
        """Port number of this link at ``node_id``."""
        return self.a_port if node_id == self.a else self.b_port


@dataclass(frozen=True)
class FabricSpec:
    """Everything that a fabric is built from; equal specs give equal fabrics.

    ``spines``, ``parallel_links`` and ``oversubscription`` describe the any-to-any part (or each rail's own Clos);
    ``spines`` None means as many as a 1:``oversubscription`` fabric with NIC-rate uplinks needs. ``switch_ports`` is
    the radix of rail, leaf and spine switches; None means large enough. ``uplinks`` is 1, or 2 for dual-homed NICs.
    ``domains_per_leaf`` None means as many as the radix allows.
    """

    kind: FabricKind
    domains: int
    rails: int
    nic_rate_mbps: float = 400_000.0
    nvlink_rate_mbps: float = 3_600_000.0
    spines: int | None = None
    parallel_links: int = 1
    oversubscription: float = 1.0
    switch_ports: int | None = None
    uplinks: int = 1
    domains_per_leaf: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form that :meth:`from_dict` reads back."""
        return {**{name: getattr(self, name) for name in self.__dataclass_fields__}, "kind": self.kind.value}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FabricSpec:
        """Inverse of :meth:`to_dict`; raises FabricError for unknown or missing keys and unknown kinds."""
        unknown = set(data) - set(cls.__dataclass_fields__)
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise FabricError(f"unknown fabric key '{sorted(unknown)[0]}'; known: {known}")
        if not {"kind", "domains", "rails"} <= set(data):
            raise FabricError("a fabric needs the keys 'kind', 'domains' and 'rails'")
        return cls(**{**data, "kind": fabric_kind(data["kind"])})


def fabric_kind(name: str) -> FabricKind:
    """The fabric kind called ``name`` (underscores allowed); raises FabricError naming the kinds."""
    key = str(name).strip().lower().replace("_", "-")
    try:
        return FabricKind(key)
    except ValueError:
        kinds = [kind.value for kind in FabricKind]
        raise FabricError(
            f"unknown fabric '{name}': {did_you_mean(key, kinds)}The fabrics are {', '.join(kinds)}"
        ) from None


@dataclass(frozen=True)
class Failures:
    """What is broken: links that are down, and GPUs or switches that are down with all their links."""

    links: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.links or self.nodes)


NO_FAILURES = Failures()


@dataclass(frozen=True, eq=False)
class Fabric:
    """An immutable fabric. Built by :func:`topologies.builders.build`; identified by its spec."""

    spec: FabricSpec
    gpus: tuple[Gpu, ...]
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    _adjacency: dict[str, tuple[Link, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        adjacency: dict[str, list[Link]] = {switch.id: [] for switch in self.switches}
        adjacency.update({gpu.id: [] for gpu in self.gpus})
        for link in self.links:
            adjacency[link.a].append(link)
            adjacency[link.b].append(link)
        object.__setattr__(self, "_adjacency", {node: tuple(links) for node, links in adjacency.items()})

    @property
    def kind(self) -> FabricKind:
        """The kind of the fabric."""
        return self.spec.kind

    @cached_property
    def switch_by_id(self) -> dict[str, Switch]:
        """Switches by id."""
        return {switch.id: switch for switch in self.switches}

    @cached_property
    def switch_by_dpid(self) -> dict[int, Switch]:
        """Switches by datapath id."""
        return {switch.dpid: switch for switch in self.switches}

    @cached_property
    def link_by_id(self) -> dict[str, Link]:
        """Links by id."""
        return {link.id: link for link in self.links}

    @cached_property
    def link_by_port(self) -> dict[tuple[str, int], Link]:
        """Links by (switch id, port number)."""
        ports = {(link.b, link.b_port): link for link in self.links}
        ports.update({(link.a, link.a_port): link for link in self.links if link.kind is not LinkKind.HOST})
        return ports

    @cached_property
    def gpu_by_id(self) -> dict[str, Gpu]:
        """GPUs by id."""
        return {gpu.id: gpu for gpu in self.gpus}

    def links_of(self, node_id: str) -> tuple[Link, ...]:
        """All links at a switch or host, in port order of creation."""
        try:
            return self._adjacency[node_id]
        except KeyError:
            raise self._unknown("node", node_id, self._adjacency) from None

    def link(self, link_id: str) -> Link:
        """The link of that id; raises UnknownElementError with the nearest known id."""
        try:
            return self.link_by_id[link_id]
        except KeyError:
            raise self._unknown("link", link_id, self.link_by_id) from None

    def switch(self, switch_id: str) -> Switch:
        """The switch of that id; raises UnknownElementError with the nearest known id."""
        try:
            return self.switch_by_id[switch_id]
        except KeyError:
            raise self._unknown("switch", switch_id, self.switch_by_id) from None

    def gpu(self, gpu_id: str) -> Gpu:
        """The GPU of that id; raises UnknownElementError with the nearest known id."""
        try:
            return self.gpu_by_id[gpu_id]
        except KeyError:
            raise self._unknown("GPU", gpu_id, self.gpu_by_id) from None

    def rank(self, gpu: Gpu) -> int:
        """Global rank of a GPU: domain * rails + rail."""
        return gpu.domain * self.spec.rails + gpu.rail

    def gpu_of_rank(self, rank: int) -> Gpu:
        """Inverse of :meth:`rank`; raises FabricError for a rank that the fabric does not have."""
        if not 0 <= rank < len(self.gpus):
            count = len(self.gpus)
            raise FabricError(f"rank {rank} does not exist: the fabric has {count} GPUs, ranks 0 to {count - 1}")
        return self.gpus[rank]

    def failure_targets(self) -> Iterator[Link]:
        """The links that may be failed: all but the host links."""
        return (link for link in self.links if link.kind is not LinkKind.HOST)

    def links_down(self, failures: Failures) -> frozenset[str]:
        """Ids of all links that are unusable under ``failures``; raises UnknownElementError for unknown ids."""
        down = {self.link(link_id).id for link_id in failures.links}
        for node_id in failures.nodes:
            node = self.gpu_by_id[node_id].switch_id if node_id in self.gpu_by_id else node_id
            down.update(link.id for link in self.links_of(node))
        return frozenset(down)

    @staticmethod
    def _unknown(what: str, wanted: str, known: Iterable[str]) -> UnknownElementError:
        hint = did_you_mean(wanted, known, cutoff=0.5).rstrip() or "'railbed status' lists them"
        return UnknownElementError(f"this fabric has no {what} '{wanted}': {hint}")


def parse_gpu_id(text: str) -> Gpu:
    """The GPU named by ``text`` (``d3r1``); raises UnknownElementError for any other text."""
    found = _GPU_ID.match(text)
    if not found:
        raise UnknownElementError(f"'{text}' is not the name of a GPU; GPUs are named like d3r1 (domain 3, rail 1)")
    return Gpu(int(found.group(1)), int(found.group(2)))
