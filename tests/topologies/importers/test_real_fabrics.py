"""Every real fabric file, with the figures counted by hand."""

from __future__ import annotations

import pytest

from tests.real_inputs import needs_inputs, real
from topologies.builders import build
from topologies.importers import ibnetdiscover, nccl_topo, nvidia_smi, simai_topo
from topologies.importers.reading import Pattern
from topologies.model import FabricKind

pytestmark = needs_inputs


def test_a_real_rail_optimized_fabric_with_two_swapped_cables() -> None:
    (path,) = real("fabric-topology/ibnetdiscover/*")
    found = ibnetdiscover.parse(path.name, path.read_text())
    counts = found.counts
    assert found.pattern is Pattern.RAIL_OPTIMIZED
    assert (counts["switches"], counts["leaves"], counts["spines"], counts["adapters"]) == (40, 31, 9, 582)
    assert (counts["cables"], counts["switch_cables"], counts["adapter_cables"]) == (1_114, 532, 582)
    assert (counts["aggregation_nodes"], counts["hosts"], counts["host_cables"]) == (40, 119, 466)
    # 69 adapters without any host name, and 5 that are called localhost or ubuntu.
    assert counts["adapters_without_host"] == 69 + 5
    accounted = ("aggregation_nodes", "host_cables", "adapters_without_host", "other_host_cables")
    assert sum(counts[name] for name in accounted) == counts["adapter_cables"]
    assert found.reason.startswith("464 of 466 NIC cables")
    assert found.odd_cables == (
        "dgx-08-c01 HCA-5 on port 1 of IBLEAF-04-08, which is of rail HCA-6",
        "dgx-08-c01 HCA-6 on port 1 of IBLEAF-03-08, which is of rail HCA-5",
    )
    assert {leaf: rail for leaf, rail in found.rails.items() if leaf.endswith("-05")} == {
        "IBLEAF-01-05": "HCA-1", "IBLEAF-02-05": "HCA-2", "IBLEAF-03-05": "HCA-5", "IBLEAF-04-05": "HCA-6",
    }  # fmt: skip
    spec = found.spec
    assert spec is not None
    assert (spec.kind, spec.domains, spec.rails, spec.spines, spec.parallel_links) == (
        FabricKind.RAIL_OPTIMIZED, 119, 4, 9, 2,
    )  # fmt: skip
    assert spec.nic_rate_mbps == 400_000
    built = build(spec)
    assert {round(link.rate_mbps) for link in built.links if link.kind.value == "fabric"} == {400_000}


@pytest.mark.parametrize(
    ("name", "gpus", "leaves", "spines", "links", "nic_links", "uplinks"),
    [
        ("Spectrum-X_16g_8gps_100Gbps_A100", 16, 8, 64, 544, 16, 1),
        ("Rail_Opti_SingleToR_32g_8gps_200Gbps_A100", 32, 8, 8, 128, 32, 1),
        ("AlibabaHPN_64g_8gps_DualToR_DualPlane_200Gbps_H100", 64, 16, 16, 320, 128, 2),
    ],
)
def test_simai_topologies_become_fabrics_of_the_same_links(
    name: str, gpus: int, leaves: int, spines: int, links: int, nic_links: int, uplinks: int
) -> None:
    (path,) = real(f"fabric-topology/simai-topo/{name}")
    found = simai_topo.parse(path.name, path.read_text())
    counts = found.counts
    assert (found.pattern, found.odd_cables) == (Pattern.RAIL_OPTIMIZED, ())
    assert (counts["gpus"], counts["leaves"], counts["spines"]) == (gpus, leaves, spines)
    assert (counts["links"], counts["nic_links"]) == (links, nic_links)
    assert found.spec is not None
    assert found.spec.uplinks == uplinks
    built = build(found.spec)
    # The same links but for those between a GPU and the switch that stands for its own choice.
    assert len(built.links) - len(built.gpus) == links
    assert {round(link.rate_mbps) for link in built.links if link.kind.value == "fabric"} == {400_000}
    assert {link.rate_mbps for link in built.links if link.kind.value == "nvlink"} == {2_880_000}


def test_the_rails_of_a_server_and_a_server_without() -> None:
    h100, gb200 = (
        nvidia_smi.parse(path.name, path.read_text())
        for path in real("nvidia-smi-topo/*h100*", "nvidia-smi-topo/*gb200*")
    )
    assert h100.rails == {f"GPU{number}": f"mlx5_{number}" for number in range(8)}
    assert (h100.counts["nics"], h100.counts["nvlinks_per_gpu"], h100.preset) == (10, 18, "dgx-h100")
    assert (gb200.rails, gb200.preset, gb200.counts["nics"]) == ({}, None, 6)
    assert "no rail can be derived" in gb200.reason


def test_the_nics_of_two_servers() -> None:
    p4d, p5 = (nccl_topo.parse(path.name, path.read_text()) for path in real("nccl-topo-xml/p4d*", "nccl-topo-xml/p5*"))
    assert (p5.counts["gpus"], p5.counts["nets"], p5.counts["bridges"]) == (8, 32, 8)
    assert (p5.counts["nic_rate_per_gpu_mbps"], p5.counts["rails"], p5.preset) == (400_000, 8, "dgx-h100")
    assert (p4d.counts["cpus"], p4d.counts["bridges"], p4d.counts["gpus"], p4d.counts["nics"]) == (2, 4, 8, 4)
    assert p4d.counts["rails"] == 4
    assert any("2 GPUs share a NIC" in warning for warning in p4d.warnings)
