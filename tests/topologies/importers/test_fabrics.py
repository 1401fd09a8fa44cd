"""Fabrics made by hand, with one thing wrong at a time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.builders import build
from topologies.importers import ibnetdiscover, nccl_topo, nvidia_smi, simai_topo
from topologies.importers.errors import CountMismatchError, MalformedFileError, TruncatedFileError
from topologies.importers.reading import FabricReading, NicCable, Pattern, find_rails
from topologies.model import Fabric, FabricKind, FabricSpec, LinkKind


def as_simai(fabric: Fabric) -> str:
    """A fabric of ours as a SimAI topology."""
    spec = fabric.spec
    nv = [switch.id for switch in fabric.switches if switch.kind.value == "nvswitch"]
    others = [switch.id for switch in fabric.switches if switch.kind.value not in ("gpu", "nvswitch")]
    number = {gpu.switch_id: rank for rank, gpu in enumerate(fabric.gpus)}
    number |= {switch: len(fabric.gpus) + place for place, switch in enumerate((*nv, *others))}
    links = [link for link in fabric.links if link.kind is not LinkKind.HOST]
    first = f"{len(number)} {spec.rails} {len(nv)} {len(others)} {len(links)} H100"
    rows = [f"{number[link.a]} {number[link.b]} {link.rate_mbps / 1000:.3f}Gbps 0.0005ms 0" for link in links]
    return "\n".join([first, " ".join(str(number[switch]) for switch in (*nv, *others)), *rows]) + "\n"


def as_ibnetdiscover(fabric: Fabric) -> str:
    """The network of a fabric of ours, without NVLink, as an ibnetdiscover dump."""
    switches = [switch.id for switch in fabric.switches if switch.kind.value not in ("gpu", "nvswitch")]
    guid = {switch: f"S-{0x100 + place:016x}" for place, switch in enumerate(switches)}
    names = dict(zip(switches, switches, strict=True))
    for gpu in fabric.gpus:
        guid[gpu.switch_id] = f"H-{0x9000 + fabric.rank(gpu):016x}"
        names[gpu.switch_id] = f"node{gpu.domain:02d} mlx5_{gpu.rail}"
    blocks = []
    for node, own in guid.items():
        is_switch = own.startswith("S-")
        label = f"MF0;{node}:MQM9701/U1" if is_switch else names[node]
        lines = [f'{"Switch" if is_switch else "Ca"}\t65 "{own}"\t\t# "{label}" x']
        for link in fabric.links_of(node):
            if link.kind in (LinkKind.NIC, LinkKind.FABRIC):
                peer = link.other(node)
                lines.append(
                    f'[{link.port(node)}]\t"{guid[peer]}"[{link.port(peer)}](00) \t\t# "{names[peer]}" lid 1 4xNDR'
                )
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


kinds = st.sampled_from([FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED, FabricKind.SPINE_LEAF])
EXPECTED = {
    FabricKind.RAIL_ONLY: Pattern.RAIL_ONLY,
    FabricKind.RAIL_OPTIMIZED: Pattern.RAIL_OPTIMIZED,
    FabricKind.SPINE_LEAF: Pattern.NEITHER,
}


@settings(derandomize=True, max_examples=60, deadline=None)
@given(kinds, st.integers(2, 5), st.integers(2, 4), st.integers(1, 2), st.integers(1, 2), st.integers(1, 5))
def test_a_fabric_of_ours_is_read_back(
    kind: FabricKind, domains: int, rails: int, uplinks: int, parallel: int, per_leaf: int
) -> None:
    spec = FabricSpec(
        kind, domains, rails, uplinks=uplinks, parallel_links=parallel, domains_per_leaf=min(per_leaf, domains)
    )
    fabric = build(spec)
    found = simai_topo.parse("x", as_simai(fabric))
    assert found.pattern is EXPECTED[kind]
    assert found.odd_cables == ()
    assert found.spec is not None
    again = build(found.spec)
    assert sorted((link.a, link.b, round(link.rate_mbps)) for link in again.links) == sorted(
        (link.a, link.b, round(link.rate_mbps)) for link in fabric.links
    )


@settings(derandomize=True, max_examples=30, deadline=None)
@given(kinds, st.integers(2, 5), st.integers(2, 4))
def test_a_dump_of_ours_is_read_back(kind: FabricKind, domains: int, rails: int) -> None:
    found = ibnetdiscover.parse("x", as_ibnetdiscover(build(FabricSpec(kind, domains, rails))))
    assert found.pattern is EXPECTED[kind]
    assert found.counts["hosts"] == domains
    assert found.odd_cables == ()
    if kind is not FabricKind.SPINE_LEAF:
        assert found.spec is not None
        assert (found.spec.kind, found.spec.domains, found.spec.rails) == (kind, domains, rails)


def test_a_swapped_pair_of_cables_is_named() -> None:
    cables = [
        NicCable(f"h{host}", f"a{rail}", f"leaf{rail}", f"h{host} a{rail}") for host in range(8) for rail in (0, 1)
    ]
    cables[0], cables[1] = (
        NicCable("h0", "a0", "leaf1", "h0 a0 on leaf1"),
        NicCable("h0", "a1", "leaf0", "h0 a1 on leaf0"),
    )
    # 14 of 16 are fewer than nine in ten.
    assert find_rails(cables, []).pattern is Pattern.NEITHER
    more = [NicCable(f"g{host}", f"a{rail}", f"leaf{rail}", "") for host in range(8) for rail in (0, 1)]
    found = find_rails([*cables, *more], [("leaf0", "spine"), ("spine", "leaf1")])
    assert (found.pattern, found.odd) == (
        Pattern.RAIL_OPTIMIZED,
        ("h0 a0 on leaf1, which is of rail a1", "h0 a1 on leaf0, which is of rail a0"),
    )
    assert find_rails([*cables, *more], []).pattern is Pattern.RAIL_ONLY


def test_hosts_with_one_adapter_have_no_rails() -> None:
    cables = [NicCable(f"h{host}", "a0", "leaf0", "") for host in range(4)]
    assert find_rails(cables, []).reason == "every host has a single adapter, so there are no rails"
    assert find_rails([], []).pattern is Pattern.NEITHER


DUMP = as_ibnetdiscover(build(FabricSpec(FabricKind.RAIL_OPTIMIZED, 3, 2)))
TOPO = as_simai(build(FabricSpec(FabricKind.RAIL_ONLY, 3, 2)))
MATRIX = (
    "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\n"
    "GPU0\t X \tNV12\tPXB\tSYS\t0-7\n"
    "GPU1\tNV12\t X \tSYS\tPXB\t8-15\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_3\n"
)
XML = """<system version="1"><cpu numaid="0">
 <pci busid="a" class="0x060400"><pci busid="g0" class="0x030200"/><pci busid="n0" class="0x020700"/></pci>
 <pci busid="b" class="0x060400"><pci busid="g1" class="0x030200"/></pci>
</cpu></system>
"""


def test_names_of_nics_come_from_the_legend() -> None:
    found = nvidia_smi.parse("x", "\x1b[4m" + MATRIX.replace("\n", "\x1b[0m\n", 1))
    assert found.rails == {"GPU0": "mlx5_0", "GPU1": "mlx5_3"}


def test_a_gpu_whose_nic_is_behind_the_cpu_has_no_rail() -> None:
    found = nccl_topo.parse("x", XML)
    assert found.rails == {"g0": "n0", "g1": ""}
    assert found.reason == "1 of 2 GPUs have a NIC near to them"


def test_mixed_links_are_warned_of() -> None:
    found = nvidia_smi.parse("x", MATRIX.replace("NV12\t X", "SYS\t X"))
    assert found.warnings == ("the GPUs are not all joined alike: NV12, SYS",)


@pytest.mark.parametrize(
    ("module", "text", "error", "sentence"),
    [
        (ibnetdiscover, DUMP.rsplit("\n\n", 1)[0], CountMismatchError, "cables are not written at both ends"),
        (ibnetdiscover, DUMP[: DUMP.rindex("4xNDR")], TruncatedFileError, "its last, breaks off"),
        (ibnetdiscover, DUMP.replace('"[1]', "(1)", 1), MalformedFileError, "line 5: .* cannot be read"),
        (simai_topo, TOPO.replace(" 12 H100", " 9 H100", 1), CountMismatchError, "states 9 links, but the file has 12"),
        (simai_topo, "\n".join(TOPO.split("\n")[:-3]) + "\n0 6 40", TruncatedFileError, "its last, breaks off"),
        (simai_topo, TOPO.replace("Gbps", "Gb", 1), MalformedFileError, "line 3: .* is no link"),
        (simai_topo, TOPO.replace("11 2 3 2 12", "10 2 3 2 12", 1), CountMismatchError, "states 10 nodes"),
        (nvidia_smi, MATRIX[: MATRIX.index("SYS")], TruncatedFileError, "the row of GPU0 has"),
        (nvidia_smi, MATRIX.replace("GPU1\tNV12\t X \tSYS\tPXB\t8-15\n", ""), TruncatedFileError, "1 of the 2 rows"),
        (nvidia_smi, MATRIX.replace(" X ", "PIX", 1), MalformedFileError, "no X on the diagonal"),
        (nccl_topo, XML[:120], TruncatedFileError, "ends before </system>"),
        (nccl_topo, XML.replace("</cpu>", "</gpu>"), MalformedFileError, "is not valid XML: mismatched tag"),
        (nccl_topo, XML.replace("0x0302", "0x0999"), MalformedFileError, "has no GPU"),
    ],
)
def test_bad_files(module: object, text: str, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence) as raised:
        module.parse("x", text)  # type: ignore[attr-defined]
    assert "\n" not in str(raised.value)


def test_a_reading_is_ready_for_json() -> None:
    found = simai_topo.parse("x", TOPO)
    assert isinstance(found, FabricReading)
    described = found.to_dict()
    assert (described["pattern"], described["spec"]["kind"]) == ("rail-only", "rail-only")
