"""NCCL topology files (``NCCL_TOPO_FILE``): the PCIe tree of one server as XML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from xml.etree import ElementTree

from topologies.importers.errors import MalformedFileError, TruncatedFileError
from topologies.importers.reading import FabricReading, Pattern

KIND = "nccl-topo"
TITLE = "NCCL topology (XML)"

_GPU_CLASS = "0x0302"
_NIC_CLASSES = ("0x0200", "0x0207")
_BRIDGE_CLASS = "0x0604"
_PRESETS = {(8, "80"): "dgx-a100", (8, "90"): "dgx-h100"}


def matches(text: str) -> bool:
    """Whether ``text``, the start of a file, can be that of such a file."""
    return bool(re.search(r"<system\b", text)) and text.lstrip().startswith("<")


def parse(name: str, text: str) -> FabricReading:
    """The server in the file called ``name``. Raises TruncatedFileError and MalformedFileError."""
    try:
        system = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        lines = text.rstrip("\n").count("\n") + 1
        if "</system>" not in text or error.position[0] >= lines + 1:
            raise TruncatedFileError(
                f"{name} is truncated: it ends before </system>; dump the topology again"
            ) from None
        raise MalformedFileError(f"{name} is not valid XML: {error}; dump the topology again") from None
    gpus = [node for node in system.iter("pci") if _class(node).startswith(_GPU_CLASS)]
    nics = [node for node in system.iter("pci") if _class(node).startswith(_NIC_CLASSES)]
    if not gpus:
        raise MalformedFileError(f"{name} has no GPU (a pci element of class 0x030200); dump it on a GPU server")
    above = {child: parent for parent in system.iter() for child in parent}
    near = {gpu: _near(gpu, above) for gpu in gpus}
    speeds = {nic: sum(float(net.get("speed", 0)) for net in nic.iter("net")) for nic in nics}
    rates = {gpu: sum(speeds[nic] for nic in found) for gpu, found in near.items()}
    sharing = Counter(tuple(nic.get("busid", "") for nic in found) for found in near.values() if found)
    shared = max(sharing.values(), default=0)
    warnings = []
    if shared > 1:
        warnings.append(f"{shared} GPUs share a NIC, so a rail carries the traffic of {shared} GPUs")
    if not any(speeds.values()):
        warnings.append("the file does not tell the rate of the NICs")
    if any(not found for found in near.values()):
        reason = f"{sum(bool(found) for found in near.values())} of {len(gpus)} GPUs have a NIC near to them"
    else:
        reason = f"the {len(gpus)} GPUs have NICs on their own PCIe switch, which makes {len(sharing)} rails"
    levels = {gpu.get("sm") for gpu in system.iter("gpu")}
    rate_mbps = Counter(rates.values()).most_common(1)[0][0] / shared if shared else 0.0
    counts = {
        "cpus": len(list(system.iter("cpu"))),
        "bridges": sum(_class(node).startswith(_BRIDGE_CLASS) and len(node) > 0 for node in system.iter("pci")),
        "gpus": len(gpus),
        "nics": len(nics),
        "nets": len(list(system.iter("net"))),
        "rails": len(sharing),
        "nic_rate_per_gpu_mbps": round(rate_mbps),
    }
    preset = _PRESETS.get((len(gpus), next(iter(levels)) or "")) if len(levels) == 1 else None
    named: Mapping[str, str] = {
        gpu.get("busid", ""): ", ".join(_nic_name(nic) for nic in found) for gpu, found in near.items()
    }
    return FabricReading(
        KIND, TITLE, name, Pattern.ONE_SERVER, reason, counts, preset=preset, warnings=tuple(warnings), rails=named
    )


def _class(node: ElementTree.Element) -> str:
    return node.get("class", "")


def _near(
    gpu: ElementTree.Element, above: Mapping[ElementTree.Element, ElementTree.Element]
) -> list[ElementTree.Element]:
    """The NICs below the nearest PCIe bridge over a GPU that has any; none where only the CPU joins them."""
    node = gpu
    while (node := above[node]).tag == "pci":
        found = [nic for nic in node.iter("pci") if _class(nic).startswith(_NIC_CLASSES)]
        if found:
            return found
    return []


def _nic_name(nic: ElementTree.Element) -> str:
    return next((name for net in nic.iter("net") if (name := net.get("name"))), nic.get("busid", ""))
